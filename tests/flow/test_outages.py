"""The parts of a node end and start again while pods have GPUs, and nothing is lost."""

from __future__ import annotations

from driver.process.sockets import service_socket_name
from envtest.client import paths
from envtest.client.waiting import wait_gone
from gpuctl.demo.driver_node import DriverNode
from tests.flow.claims import (
    claim_of,
    gpu_nodes,
    gpu_pod,
    make_claim,
    make_template,
    spec_files,
    start,
    wait_published,
    wait_released,
    wait_running,
)


def test_a_kubelet_restart_wipes_the_slices_and_they_come_back(driver: DriverNode, namespace: str) -> None:
    cluster = driver.cluster
    make_template(cluster, namespace)
    start(cluster, namespace, gpu_pod("before"))
    (old,) = wait_published(driver)

    cluster.restart_kubelet(0)

    wait_gone(cluster.api, paths.resource_slice(old["metadata"]["name"]))
    driver.wait_serving()
    (new,) = wait_published(driver)
    assert new["spec"]["devices"] == old["spec"]["devices"]
    assert len(gpu_nodes(cluster, namespace, "before")) == 1
    start(cluster, namespace, gpu_pod("after"))
    assert gpu_nodes(cluster, namespace, "after") != gpu_nodes(cluster, namespace, "before")
    uid = claim_of(cluster, namespace, "before")["metadata"]["uid"]
    cluster.api.delete(paths.pod("before", namespace))
    wait_released(driver, uid)


def test_a_plugin_restart_leaves_pods_and_slices_alone(driver: DriverNode, namespace: str) -> None:
    cluster = driver.cluster
    make_template(cluster, namespace)
    start(cluster, namespace, gpu_pod("before"))
    before = wait_published(driver)

    assert driver.process("kubeletplugin").stop() == 0
    assert not driver.plugin_socket.exists()
    driver.start_plugin()
    driver.wait_serving()

    start(cluster, namespace, gpu_pod("after"))
    assert gpu_nodes(cluster, namespace, "after") != gpu_nodes(cluster, namespace, "before")
    after = wait_published(driver)
    assert [s["metadata"]["resourceVersion"] for s in after] == [
        s["metadata"]["resourceVersion"] for s in before
    ], "nothing changed, so nothing was written"


def test_a_killed_plugin_goes_on_where_it_was(driver: DriverNode, namespace: str) -> None:
    cluster = driver.cluster
    make_template(cluster, namespace)
    start(cluster, namespace, gpu_pod("before"))
    uid = claim_of(cluster, namespace, "before")["metadata"]["uid"]

    driver.process("kubeletplugin").kill()
    cluster.api.delete(paths.pod("before", namespace))
    driver.start_plugin()
    driver.wait_serving()

    wait_released(driver, uid)
    start(cluster, namespace, gpu_pod("after"))


def test_a_lost_cdi_spec_comes_back_when_the_container_is_started_again(
    driver: DriverNode, namespace: str
) -> None:
    """A reboot empties the CDI folder; here the sandbox ends, so that the kubelet prepares again."""
    cluster = driver.cluster
    make_claim(cluster, namespace, "kept")
    start(cluster, namespace, gpu_pod("first", "kept"))
    uid = cluster.api.get(paths.resource_claim("kept", namespace))["metadata"]["uid"]
    for path in driver.node.cdi_dir.glob(f"*{uid}*"):
        path.unlink()

    cluster.restart_kubelet(0)
    driver.wait_serving()
    start(cluster, namespace, gpu_pod("second", "kept"))

    assert uid in spec_files(driver)
    assert gpu_nodes(cluster, namespace, "second") == gpu_nodes(cluster, namespace, "first")


def test_two_instances_serve_side_by_side_during_a_rolling_update(driver: DriverNode, namespace: str) -> None:
    cluster = driver.cluster
    make_template(cluster, namespace)
    start(cluster, namespace, gpu_pod("before"))
    uid = claim_of(cluster, namespace, "before")["metadata"]["uid"]
    pod_uid = "11111111-2222-3333-4444-555555555555"
    new = driver.start_second_plugin(pod_uid)
    try:
        driver.wait_serving(driver.data_dir / service_socket_name(pod_uid))
        start(cluster, namespace, gpu_pod("during"))
        assert driver.process("kubeletplugin").stop() == 0
        start(cluster, namespace, gpu_pod("after"))
        nodes = [gpu_nodes(cluster, namespace, name) for name in ("before", "during", "after")]
        assert len({tuple(found) for found in nodes}) == 3
        cluster.api.delete(paths.pod("before", namespace))
        wait_released(driver, uid)
    finally:
        driver.start_plugin()
        driver.wait_serving()
        new.stop()


def test_an_api_server_outage_loses_nothing(driver: DriverNode, namespace: str) -> None:
    cluster = driver.cluster
    make_template(cluster, namespace)
    start(cluster, namespace, gpu_pod("before"))
    before = wait_published(driver)

    cluster.stop_api_server()
    cluster.start_api_server()

    start(cluster, namespace, gpu_pod("after"), timeout_seconds=120)
    assert gpu_nodes(cluster, namespace, "after") != gpu_nodes(cluster, namespace, "before")
    assert [s["metadata"]["uid"] for s in wait_published(driver)] == [s["metadata"]["uid"] for s in before]
    wait_running(cluster, namespace, "before")
