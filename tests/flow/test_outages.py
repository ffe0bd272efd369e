"""The parts of a node end and start again while pods have GPUs, and nothing is lost."""

from tests.clusters import DriverNode, paths, wait_gone
from tests.flow.claims import (
    claim_of,
    gpu_nodes,
    gpu_pod,
    make_template,
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
