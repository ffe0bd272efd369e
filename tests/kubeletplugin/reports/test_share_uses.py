"""The metrics and the claim's status say which share or partition of which GPU a claim has."""

from driver.kinds.partition.names import static_device_name
from kubeletplugin.plugin_metrics import partition_uses, share_uses
from tests.gpus import NvmlDevice, gpu_device_name
from tests.kubeletplugin.fake_node import FakeNode
from tests.kubeletplugin.share_node import slicing
from tests.kubeletplugin.shown_node import THREE


def uses(node: FakeNode) -> list[dict[str, str]]:
    found = share_uses(node.journal.entries(), node.driver_generation)
    return [dict(reading.labels) for reading in found]


def test_an_mps_share_is_told_with_its_claim_its_id_and_its_limits(node: FakeNode) -> None:
    device = f"{gpu_device_name(node.gpus[1])}-mps-4-mem"
    ref = node.claim_shares("serve", device, consumed={"shares": "2", "memory": "10Gi"})
    (prepared,) = node.prepare(ref)

    assert prepared.share_id is not None
    assert uses(node) == [
        {
            "claim_namespace": "team",
            "claim": "serve",
            "device": device,
            "share_id": prepared.share_id,
            "strategy": "mps",
            "uuid": node.machine.uuid(node.gpus[1]),
            "pci_bus_id": str(node.gpus[1]),
            "shares": "2",
            "memory_bytes": str(10 << 30),
            "active_thread_percentage": "50",
            "pinned_memory_mib": "10240",
        }
    ]
    node.unprepare(ref)
    assert uses(node) == []


def test_time_slices_have_no_limits_to_tell_and_whole_gpus_are_left_out(node: FakeNode) -> None:
    node.prepared("alone", 0)
    node.prepared("together", 1, config=slicing("Long"))

    (use,) = uses(node)

    assert (use["claim"], use["strategy"], use["share_id"]) == ("together", "time-slicing", "")
    limits = ("shares", "memory_bytes", "active_thread_percentage", "pinned_memory_mib")
    assert [use[name] for name in limits] == ["", "", "", ""]
    node.reboot()
    assert uses(node) == []


def uses_of_partitions(node: FakeNode) -> list[dict[str, str]]:
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
    device = node.part(6, 1)
    node.prepared_devices("train", device)
    uuid, gpu_instance, compute_instance = only_instance(node.handle(1))

    assert uses_of_partitions(node) == [
        {
            "claim_namespace": "team",
            "claim": "train",
            "device": device,
            "profile": "1g.10gb",
            "uuid": uuid,
            "parent_uuid": node.handle(1).uuid(),
            "pci_bus_id": str(node.gpus[1]),
            "gpu_instance_id": gpu_instance,
            "compute_instance_id": compute_instance,
        }
    ]


def test_static_partitions_are_told_and_neither_whole_gpus_nor_who_only_looks(node: FakeNode) -> None:
    node.cut_by_hand(THREE, 4, 4)
    device = static_device_name(node.gpus[0], "3g.40gb", 4)
    node.prepared("whole", 1)
    node.prepared_devices("owner", device)
    node.prepared_devices("looker", device, admin=True)
    uuid, gpu_instance, compute_instance = only_instance(node.handle(0))
    (use,) = uses_of_partitions(node)
    assert (use["claim"], use["device"], use["uuid"]) == ("owner", device, uuid)
    assert (use["gpu_instance_id"], use["compute_instance_id"]) == (gpu_instance, compute_instance)
