"""Two nodes move from a device plugin to this driver, one after the other, under the same pods."""

from collections.abc import Callable

from tests.clusters import (
    PACKAGE_ROOT,
    DriverNode,
    Object,
    RealCluster,
    fresh_namespace,
    paths,
    wait_for,
    wait_for_list,
    wait_gone,
)
from tests.device_plugin import VARIABLE, DevicePlugin
from tests.flow.claims import gpu_nodes, gpu_pod, make_template, start
from tests.gpus import TAINT_BLOCKED, TAINT_DEVICE_PLUGIN

RESOURCE = "nvidia.com/gpu"


def pod_with_limits(name: str, node: str) -> Object:
    """The pod as it was written for the device plugin."""
    container = {
        "name": "main",
        "image": "localhost/busybox:1",
        "imagePullPolicy": "Never",
        "resources": {"limits": {RESOURCE: "1"}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "nodeSelector": {"kubernetes.io/hostname": node},
            "containers": [container],
        },
    }


def wait_offered(cluster: RealCluster, node: str, amount: str) -> None:
    """Wait until the kubelet has this much of the resource in the capacity of its node."""
    wait_for(
        cluster.api,
        paths.node(node),
        lambda stored: (stored["status"].get("capacity") or {}).get(RESOURCE, "0") == amount,
    )


def wait_taints(driver: DriverNode, wanted: set[str]) -> None:
    """Wait until the devices of a node are published, all of them with this value of the taint or none."""

    def is_so(slices: list[Object]) -> bool:
        devices = [device for item in slices for device in item["spec"].get("devices") or ()]
        values = [
            {taint["value"] for taint in device.get("taints") or () if taint["key"] == TAINT_DEVICE_PLUGIN}
            for device in devices
        ]
        return len(devices) == 8 and all(value == wanted for value in values)

    selector = f"spec.nodeName={driver.node.name}"
    wait_for_list(driver.cluster.api, paths.resource_slice(), is_so, fieldSelector=selector)


def wait_blocked(driver: DriverNode, reasons: list[str]) -> None:
    """Wait until so many devices of a node are blocked, for these reasons."""

    def is_so(slices: list[Object]) -> bool:
        taints = [
            taint
            for item in slices
            for device in item["spec"].get("devices") or ()
            for taint in device.get("taints") or ()
        ]
        return [taint["value"] for taint in taints if taint["key"] == TAINT_BLOCKED] == reasons

    selector = f"spec.nodeName={driver.node.name}"
    wait_for_list(driver.cluster.api, paths.resource_slice(), is_so, fieldSelector=selector)


def is_unschedulable(pod: Object) -> bool:
    return any(one.get("reason") == "Unschedulable" for one in pod["status"].get("conditions") or ())


def start_on(driver: DriverNode) -> None:
    driver.start_plugin()
    driver.wait_serving()
    driver.start_controller()


def test_nodes_move_over_one_by_one_under_the_same_pods(
    start_cluster: Callable[[int], RealCluster], driver_launcher: tuple[str, ...]
) -> None:
    cluster = start_cluster(2)
    old, new = (DriverNode.install(cluster, index, launcher=driver_launcher) for index in (0, 1))
    cluster.api.apply(PACKAGE_ROOT / "deviceclasses" / "opt-in" / "gpu.yaml")
    with fresh_namespace(cluster.api) as namespace:
        uuids = [old.machine.uuid(pci) for pci in old.machine.state.listed()]
        with DevicePlugin(old.node.kubelet_dir / "device-plugins", uuids):
            wait_offered(cluster, "node-0", "8")
            start_on(new)
            wait_taints(new, set())
            for pod, node in (("on-old", "node-0"), ("on-new", "node-1")):
                start(cluster, namespace, pod_with_limits(pod, node))
            assert cluster.container("on-old", namespace).env[VARIABLE] == "yes"
            assert len(gpu_nodes(cluster, namespace, "on-new")) == 1

            start_on(old)
            wait_taints(old, {"gpu"})
            make_template(cluster, namespace)
            claiming = gpu_pod("claims")
            claiming["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "node-0"}
            cluster.api.create(claiming, namespace)
            wait_for(cluster.api, paths.pod("claims", namespace), is_unschedulable)
            # The resource itself is still the device plugin's there.
            start(cluster, namespace, pod_with_limits("still-old", "node-0"))
            assert cluster.container("still-old", namespace).env[VARIABLE] == "yes"

            cluster.api.delete(paths.pod("still-old", namespace))
            wait_gone(cluster.api, paths.pod("still-old", namespace))
        cluster.restart_kubelet(0)
        wait_offered(cluster, "node-0", "0")
        old.wait_serving()
        wait_taints(old, set())
        # Somebody forgot to drain the node: that pod keeps its GPU, and nobody else gets it.
        wait_blocked(old, ["device-plugin"])
        cluster.api.delete(paths.pod("on-old", namespace))
        wait_blocked(old, [])
        start(cluster, namespace, pod_with_limits("moved", "node-0"), timeout_seconds=120)
        assert len(gpu_nodes(cluster, namespace, "moved")) == 1
        assert VARIABLE not in cluster.container("moved", namespace).env
        wait_for(
            cluster.api,
            paths.pod("claims", namespace),
            lambda pod: pod["status"].get("phase") == "Running",
            timeout_seconds=120,
        )
        assert gpu_nodes(cluster, namespace, "claims") != gpu_nodes(cluster, namespace, "moved")
        assert len(gpu_nodes(cluster, namespace, "on-new")) == 1
