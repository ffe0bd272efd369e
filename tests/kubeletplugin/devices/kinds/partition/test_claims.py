"""Claims for partitions: made when prepared, destroyed when unprepared, handed out side by side."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier

import pytest

from kubeletplugin.devices.kinds.partition.record import written
from tests.gpus import (
    DRIVER_NAME,
    ClaimBlocked,
    ClaimRefused,
    DeviceHeld,
    NodeIncomplete,
    gpu_device_name,
)
from tests.kubeletplugin.fake_node import Crash, FakeNode
from tests.kubeletplugin.shown_node import ONE
from tests.plugin import ClaimRef, PartitionRecord


def test_a_gpu_that_is_asked_for_whole_and_in_parts_at_once_is_given_one_way(node: FakeNode) -> None:
    refs = [node.claim("whole", 0)]
    refs += [node.claim_devices(f"c{start}", node.part(start)) for start in range(7)]
    begin = Barrier(len(refs))

    def prepare(ref: ClaimRef) -> bool:
        begin.wait(30)
        try:
            return bool(node.prepare(ref))
        except DeviceHeld:
            return False

    with ThreadPoolExecutor(len(refs)) as pool:
        whole, *parts = pool.map(prepare, refs)
    assert whole != any(parts)
    assert all(parts) or whole
    assert node.starts() == ([] if whole else list(range(7)))


@pytest.mark.parametrize("known", [None, 7], ids=["no ids", "no compute instance"])
def test_a_partition_that_is_not_made_never_becomes_its_whole_gpu(node: FakeNode, known: int | None) -> None:
    ref = node.prepared_devices("train", node.part(0))
    entry = node.entry(ref)
    record = written(PartitionRecord("1g.10gb", 19, 0, 1, attempted=True, gpu_instance_id=known))
    node.journal.put(replace(entry, devices=(replace(entry.devices[0], record=record),)))
    node.spec_path(ref).unlink()

    node.reconciler.restore_specs()

    assert not node.spec_path(ref).exists()


def test_a_config_for_all_requests_is_for_the_devices_of_its_kind(node: FakeNode) -> None:
    parameters = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig"}
    entry = {"source": "FromClaim", "opaque": {"driver": DRIVER_NAME, "parameters": parameters}}
    part, gpu = node.part(), gpu_device_name(node.gpus[1])
    for wrong, devices in (
        (entry, (part,)),
        ({**entry, "requests": ["gpu-0"]}, (part, gpu)),
        ({**entry, "source": "FromClass"}, (part, gpu)),
    ):
        with pytest.raises(ClaimRefused, match="a GpuConfig, but the device it applies to is a partition"):
            node.prepared_devices("wrong", *devices, config=[wrong])
    assert node.prepare(node.claim_devices("both", part, gpu, config=[entry]))

    # It may be meant for another alternative than the one that was allocated.
    ref = node.claim_devices("alternative", node.part(5), config=[entry])
    allocation = node.api[ref.namespace, ref.name]["status"]["allocation"]
    allocation["devices"]["results"][0]["request"] = "gpu-0/part"
    assert node.prepare(ref)


def test_a_retry_that_failed_forgets_what_it_destroyed(node: FakeNode) -> None:
    """Else it would take what somebody else makes there afterwards for its own."""
    ref = node.claim_devices("train", node.part())
    node.crash_after = "made"
    with pytest.raises(Crash):
        node.prepare(ref)
    node.restart()
    node.on_step = lambda step: (
        shutil.rmtree(node.driver_root / "dev/nvidia-caps") if step == "begun" else None
    )
    with pytest.raises(NodeIncomplete):
        node.prepare(ref)
    assert node.instances() == ()

    theirs = node.cut_by_hand(ONE, 6, 1)
    with pytest.raises(ClaimBlocked, match="did not make"):
        node.prepare(ref)
    node.unprepare(ref)
    assert node.instances() == (theirs,)
