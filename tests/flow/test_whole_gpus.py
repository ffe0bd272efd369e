"""Whole GPUs: from the node's slices to what a container sees, and back."""

from tests.clusters import DriverNode, Object, paths, wait_for, wait_gone
from tests.flow.claims import (
    allocated,
    claim_of,
    gpu_nodes,
    gpu_pod,
    is_refusal,
    journal_states,
    make_claim,
    make_template,
    start,
    wait_published,
    wait_released,
    wait_running,
)


def unschedulable(pod: Object) -> bool:
    """Whether the scheduler said that it finds no place for a pod."""
    return bool(message_of(pod))


def message_of(pod: Object) -> str:
    """Why the scheduler finds no place for a pod."""
    for condition in pod["status"].get("conditions", []):
        if condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable":
            return str(condition["message"])
    return ""


def test_the_node_publishes_its_gpus_as_the_api_server_stores_them(driver: DriverNode) -> None:
    (stored,) = wait_published(driver)

    spec, devices = stored["spec"], stored["spec"]["devices"]
    assert spec["pool"].pop("generation") >= 1  # a new one for each change of all slices at once
    assert spec["pool"] == {"name": "node-0/gpu.nvidia.com", "resourceSliceCount": 1}
    assert len(devices) == 8
    first = devices[0]
    assert first["name"] == "gpu-0000-1b-00-0"
    assert first["capacity"]["memory"]["value"] == "81559Mi"
    assert first["attributes"]["type"] == {"string": "gpu"}
    assert first["attributes"]["productName"] == {"string": "NVIDIA H100 80GB HBM3"}
    assert first["attributes"]["nvlinkPeers"] == {"string": "1,2,3,4,5,6,7"}
    assert first["attributes"]["resource.kubernetes.io/numaNode"] == {"int": 0}
    assert len({device["attributes"]["nvlinkDomain"]["string"] for device in devices}) == 1
    (owner,) = stored["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("Node", "node-0", True)


def test_a_pod_sees_its_device_nodes_environment_and_driver_files(driver: DriverNode, namespace: str) -> None:
    cluster = driver.cluster
    make_template(cluster, namespace)
    start(cluster, namespace, gpu_pod("train"))

    (device,) = allocated(claim_of(cluster, namespace, "train"))
    slot = next(i for i, pci in enumerate(sorted(driver.machine.state.gpus)) if device.endswith(_tail(pci)))
    minor = driver.machine.state.gpus[driver.machine.pci(slot)].minor
    assert gpu_nodes(cluster, namespace, "train") == [f"/dev/nvidia{minor}"]
    found = cluster.container("train", namespace)
    assert found.device_nodes == (
        f"/dev/dri/card{slot + 1}",
        f"/dev/dri/renderD{slot + 128}",
        *("/dev/nvidia-modeset", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", f"/dev/nvidia{minor}"),
        "/dev/nvidiactl",
    )
    assert found.env["NVIDIA_VISIBLE_DEVICES"] == "void"
    version = driver.machine.state.driver_version
    for name in (f"usr/lib/x86_64-linux-gnu/libnvidia-ml.so.{version}", "usr/bin/nvidia-smi"):
        mounted = found.mounts[f"/{name}"]
        assert mounted.source.endswith(f"{driver.folder.name}/driver/{name}")
        assert {"ro", "nosuid", "nodev"} <= set(mounted.options)


def _tail(pci: object) -> str:
    return str(pci).replace(":", "-").replace(".", "-")


def test_eight_pods_get_eight_gpus_and_the_ninth_waits_for_one(driver: DriverNode, namespace: str) -> None:
    cluster = driver.cluster
    make_template(cluster, namespace)
    names = [f"pod-{index}" for index in range(9)]
    for name in names[:8]:
        cluster.api.create(gpu_pod(name), namespace)
    for name in names[:8]:
        wait_running(cluster, namespace, name)

    seen = [node for name in names[:8] for node in gpu_nodes(cluster, namespace, name)]
    assert sorted(seen) == [f"/dev/nvidia{minor}" for minor in range(8)]
    cluster.api.create(gpu_pod("pod-8"), namespace)
    waiting = wait_for(cluster.api, paths.pod("pod-8", namespace), unschedulable)
    assert is_refusal(message_of(waiting), "1 cannot allocate all claims")
    (freed,) = gpu_nodes(cluster, namespace, "pod-3")
    cluster.api.delete(paths.pod("pod-3", namespace))
    wait_running(cluster, namespace, "pod-8")
    assert gpu_nodes(cluster, namespace, "pod-8") == [freed]


def test_two_pods_share_one_claim_and_the_last_to_go_frees_it(driver: DriverNode, namespace: str) -> None:
    cluster = driver.cluster
    uid = make_claim(cluster, namespace, "shared")["metadata"]["uid"]
    for name in ("first", "second"):
        start(cluster, namespace, gpu_pod(name, "shared"))
    assert gpu_nodes(cluster, namespace, "first") == gpu_nodes(cluster, namespace, "second")

    cluster.api.delete(paths.pod("first", namespace))
    wait_gone(cluster.api, paths.pod("first", namespace))
    assert journal_states(driver)[uid] == "prepared"
    assert len(gpu_nodes(cluster, namespace, "second")) == 1
    cluster.api.delete(paths.pod("second", namespace))
    wait_released(driver, uid)
