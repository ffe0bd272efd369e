"""MPS shares outlive the plugin, and a container in which MPS would hide a GPU does not start."""

from functools import partial

from tests.clusters import DriverNode, Object, paths, wait_for
from tests.eventually import eventually
from tests.flow.claims import gpu_pod, make_claim, make_template, request, start
from tests.flow.memory_scene import status_of
from tests.flow.mig_scene import end
from tests.flow.share_scene import (
    LIMITS,
    SAMPLES,
    ask_mps,
    clients,
    daemon_pid,
    defaults,
    given,
    mps_environment,
    pipes_of,
    shared,
    start_all,
    uuids_seen,
    wait_first_gpu,
    wait_no_daemon,
)
from tests.flow.test_explain import explained
from tests.gpus import CudaProcess, PciAddress

ONE_GPU = """version: v1
rules:
  - when: gpu.index == 0
    shared: {strategy: MPS, shares: 4}
  - offer: hidden
"""
TWO_AND_WHOLE = """version: v1
rules:
  - {when: gpu.index < 2, shared: {strategy: MPS, shares: 4}}
  - {when: gpu.index == 2, offer: whole}
  - offer: hidden
"""
"""The memory of an H100 without what its driver keeps."""


def started(driver: DriverNode, namespace: str, *pods: str) -> None:
    """Pods with a share each."""
    make_template(driver.cluster, namespace, request(device_class="shared-mps"))
    for pod in pods:
        start(driver.cluster, namespace, gpu_pod(pod))


def test_the_end_of_the_plugin_is_not_that_of_the_daemon(driver: DriverNode, namespace: str) -> None:
    with shared(driver, namespace, ONE_GPU):
        started(driver, namespace, "before")
        pipes = pipes_of(driver, namespace, "before")
        pid = daemon_pid(pipes)
        with CudaProcess(pipes, process_id=4_100_001):
            assert driver.process("kubeletplugin").stop() == 0
            driver.start_plugin()
            driver.wait_serving()
            driver.process("kubeletplugin").kill()
            driver.start_plugin()
            driver.wait_serving()
            start(driver.cluster, namespace, gpu_pod("after"))
            assert daemon_pid(pipes) == pid
            (server,) = ask_mps(driver, pipes, "get_server_list")
            assert ask_mps(driver, pipes, f"get_client_list {server}") == ["4100001"], "it was not dropped"
        assert pipes_of(driver, namespace, "after") == pipes
        wait_first_gpu(driver, ("exclusive-process", 0))


def blocked(devices: list[Object]) -> list[str]:
    """The values of the taints about MPS daemons."""
    return [
        taint.get("value", "")
        for device in devices
        for taint in device.get("taints") or ()
        if taint["key"] == "gpu.nvidia.com/blocked"
    ]


def test_two_pods_of_one_claim_compute_on_a_whole_gpu_within_the_limits_of_the_claim(
    driver: DriverNode, namespace: str
) -> None:
    pods = start_all(driver.cluster, namespace, SAMPLES / "one-claim-mps.yaml")
    (held,) = given(driver, namespace, pods[0])
    pci = PciAddress.parse(held.held["pci"])
    assert [uuids_seen(driver, namespace, pod) for pod in pods] == [[driver.machine.uuid(pci)]] * 2
    assert driver.machine.state.gpus[pci].compute_mode == "exclusive-process"
    assert mps_environment(driver, namespace, pods[0]) == dict(zip(LIMITS, ("50", "0=8192M"), strict=True))
    with clients(driver, namespace, *pods) as limits:
        assert [one.percentage for one in limits] == [50.0] * 2
        assert [one.pinned_mib for one in limits] == [{"0": 8 * 1024}] * 2
    assert defaults(driver, pipes_of(driver, namespace, pods[0])) == (["50.0"], ["8G"])
    end(driver.cluster, namespace, *pods)
    wait_no_daemon(driver)
    eventually(
        "the compute mode is put back",
        lambda: driver.machine.state.gpus[pci].compute_mode,
        lambda mode: mode == "default",
    )


def test_a_container_in_which_mps_would_hide_a_gpu_does_not_start_and_others_do(
    driver: DriverNode, namespace: str
) -> None:
    cluster = driver.cluster
    with shared(driver, namespace, TWO_AND_WHOLE):
        shares = [request(name, "shared-mps") for name in ("a", "b")]
        claim = make_claim(cluster, namespace, "none", *shares)
        claim["spec"]["devices"]["constraints"] = [{"distinctAttribute": "gpu.nvidia.com/uuid"}]
        cluster.api.create({**claim, "metadata": {"name": "two"}}, namespace)
        make_claim(cluster, namespace, "mixed", shares[0], request("whole"))
        for name, other in (("two", "b"), ("mixed", "whole")):
            cluster.api.create(gpu_pod(name, name), namespace)
            is_refused = partial(names_both, f"request a of claim {name}", f"request {other} of claim {name}")
            wait_for(cluster.api, paths.pod(name, namespace), is_refused, 60)
            code, answer = explained(cluster, namespace, "pod", name)
            assert (code, f"container main: request a of claim {name} is used" in answer) == (3, True)
            apart = gpu_pod(f"{name}-apart", name, ("first", "second"))
            for container, one in zip(apart["spec"]["containers"], ("a", other), strict=True):
                container["resources"]["claims"] = [{"name": "gpu", "request": one}]
            start(cluster, namespace, apart)
            end(cluster, namespace, name, f"{name}-apart")


def names_both(one: str, other: str, stored: Object) -> bool:
    """Whether the container ``main`` did not start, and runc named both requests."""
    status = status_of(stored, "main")
    said = str([(status.get(state) or {}).get("terminated") for state in ("state", "lastState")])
    return all(words in said for words in ("is used through MPS", one, other))
