"""The metrics say which claim uses which partition, in the terms of those who measure partitions."""

from __future__ import annotations

from driver.kinds.partition.names import static_device_name
from driver.nvml.api import NvmlDevice
from kubeletplugin.plugin_metrics import partition_uses
from tests.kubeletplugin.cut_node import THREE, foreign, handle
from tests.kubeletplugin.fake_node import FakeNode


def uses(node: FakeNode) -> list[dict[str, str]]:
    return [
        dict(reading.labels) for reading in partition_uses(node.journal.entries(), node.driver_generation)
    ]


def only_instance(device: NvmlDevice) -> tuple[str, str, str]:
    """UUID, GPU instance and compute instance of the one partition of a GPU."""
    (instance,) = device.gpu_instances()
    (inside,) = device.compute_instances(instance.id)
    (made,) = device.mig_devices()
    return made.uuid, str(instance.id), str(inside.id)


def test_a_partition_is_told_with_its_claim_and_what_nvml_calls_it(node: FakeNode) -> None:
    device = node.partition(1, "1g.10gb", 6)
    node.prepare(node.claim_devices("train", device))
    uuid, gpu_instance, compute_instance = only_instance(handle(node, 1))

    assert uses(node) == [
        {
            "claim_namespace": "team",
            "claim": "train",
            "device": device,
            "profile": "1g.10gb",
            "uuid": uuid,
            "parent_uuid": handle(node, 1).uuid(),
            "pci_bus_id": str(node.gpus[1]),
            "gpu_instance_id": gpu_instance,
            "compute_instance_id": compute_instance,
        }
    ]


def test_whole_gpus_are_not_told_and_static_partitions_are(node: FakeNode) -> None:
    foreign(node, THREE, 4, 4)
    static = static_device_name(node.gpus[0], "3g.40gb", 4)
    node.prepare(node.claim("whole", 1))
    node.prepare(node.claim_devices("static", static))
    uuid, gpu_instance, compute_instance = only_instance(handle(node, 0))

    (use,) = uses(node)
    assert (use["device"], use["uuid"]) == (static, uuid)
    assert (use["gpu_instance_id"], use["compute_instance_id"]) == (gpu_instance, compute_instance)


def test_a_partition_that_an_admin_looks_at_is_told_once(node: FakeNode) -> None:
    device = node.partition(0, "1g.10gb", 6)
    node.prepare(node.claim_devices("owner", device))
    node.prepare(node.claim_devices("looker", device, admin=True))
    assert [use["claim"] for use in uses(node)] == ["owner"]
