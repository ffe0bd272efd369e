"""A GPU that falls ill takes no new pods, its pods are told or evicted, and it comes back by itself."""

from collections.abc import Callable

from tests.clusters import DriverNode, Object, paths, wait_for, wait_for_list, wait_gone
from tests.flow.claims import allocated, claim_of, gpu_pod, make_template, start
from tests.flow.mig_scene import restart_controller
from tests.gpus import PciAddress, parse_gpu_device_name

Slices = list[Object]
FIRST = "gpu-0000-1b-00-0"
EVICTS = """version: v1
health:
  evict: [needs-reset]
"""


def taints(slices: Slices) -> dict[str, list[str]]:
    """The devices with taints, each with ``xid=95:NoSchedule`` and the like."""
    return {
        device["name"]: [
            f"{one['key'].removeprefix('gpu.nvidia.com/')}={one.get('value', '')}:{one['effect']}"
            for one in device["taints"]
        ]
        for item in slices
        for device in item["spec"].get("devices", [])
        if device.get("taints")
    }


def tainted(wanted: dict[str, list[str]]) -> Callable[[Slices], bool]:
    """Whether just these devices have these taints."""
    return lambda slices: bool(slices) and taints(slices) == wanted


def has(taint: str) -> Callable[[Slices], bool]:
    """Whether the first GPU has this taint."""
    return lambda slices: taint in taints(slices).get(FIRST, [])


def lacks(key: str) -> Callable[[Slices], bool]:
    """Whether the first GPU has no taint whose text begins so."""
    return lambda slices: not any(one.startswith(key) for one in taints(slices).get(FIRST, []))


def holder(driver: DriverNode, namespace: str, pod: str) -> tuple[str, PciAddress]:
    """The device of a pod, and where its GPU is."""
    (device,) = allocated(claim_of(driver.cluster, namespace, pod))
    pci = parse_gpu_device_name(device)
    assert pci is not None
    return device, pci


def health(word: str) -> Callable[[Object], bool]:
    """Whether the kubelet says this of all devices of a pod."""

    def says(pod: Object) -> bool:
        resources = [
            resource
            for status in pod["status"].get("containerStatuses", [])
            for entry in status.get("allocatedResourcesStatus", [])
            for resource in entry["resources"]
        ]
        return bool(resources) and all(resource["health"] == word for resource in resources)

    return says


def node_event(reason: str) -> Callable[[list[Object]], bool]:
    """Whether there is an event of the node with this reason."""
    return lambda events: any(
        event["reason"] == reason and event["involvedObject"]["kind"] == "Node" for event in events
    )


def test_an_xid_taints_the_gpu_and_its_pod_hears_of_it_until_nvml_says_that_all_is_well(
    driver: DriverNode, namespace: str
) -> None:
    cluster = driver.cluster
    make_template(cluster, namespace)
    start(cluster, namespace, gpu_pod("victim"))
    device, gpu = holder(driver, namespace, "victim")
    driver.machine.recovery_action(gpu, "reset")
    driver.machine.xid(gpu, 95)

    wanted = ["xid=95:NoSchedule", "needs-reset=xid-95:NoSchedule"]
    wait_for_list(cluster.api, paths.resource_slice(), tainted({device: wanted}), 60)
    wait_for(cluster.api, paths.pod("victim", namespace), health("Unhealthy"), 60)
    wait_for_list(cluster.api, paths.event(), node_event("GpuSick"), 60)
    start(cluster, namespace, gpu_pod("beside"))
    assert allocated(claim_of(cluster, namespace, "beside")) != [device]

    driver.machine.recovery_action(gpu, "none")

    wait_for_list(cluster.api, paths.resource_slice(), tainted({}), 60)
    wait_for(cluster.api, paths.pod("victim", namespace), health("Healthy"), 60)
    wait_for_list(cluster.api, paths.event(), node_event("GpuWell"), 60)


def test_a_pod_is_evicted_and_gets_another_gpu_where_the_admin_asks_for_it(
    driver: DriverNode, namespace: str
) -> None:
    cluster = driver.cluster
    rules = driver.folder / "evicts.yaml"
    rules.write_text(EVICTS)
    restart_controller(driver, "--config", str(rules))
    try:
        make_template(cluster, namespace)
        start(cluster, namespace, gpu_pod("victim"))
        device, gpu = holder(driver, namespace, "victim")
        driver.machine.recovery_action(gpu, "reset")
        driver.machine.xid(gpu, 119)
        wait_gone(cluster.api, paths.pod("victim", namespace))
        start(cluster, namespace, gpu_pod("next"))
        assert allocated(claim_of(cluster, namespace, "next")) != [device]
        driver.machine.recovery_action(gpu, "none")
        wait_for_list(cluster.api, paths.resource_slice(), tainted({}), 60)
    finally:
        restart_controller(driver)
