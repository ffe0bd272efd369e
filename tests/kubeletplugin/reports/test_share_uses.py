"""The metrics and the claim's status say which share of which GPU a claim has, and what holds for it."""

from __future__ import annotations

from driver.devices.names import gpu_device_name
from kubeletplugin.plugin_metrics import share_uses
from kubeletplugin.reports.device_status import Observed, claim_statuses
from tests.kubeletplugin.fake_node import FakeNode

CONFIG = {
    "source": "FromClaim",
    "opaque": {
        "driver": "gpu.nvidia.com",
        "parameters": {
            "apiVersion": "resource.nvidia.com/v1beta1",
            "kind": "GpuConfig",
            "sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}},
        },
    },
}


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
    node.prepare(node.claim("alone", 0))
    node.prepare(node.claim("together", 1, config=[CONFIG]))

    (use,) = uses(node)

    assert (use["claim"], use["strategy"], use["share_id"]) == ("together", "time-slicing", "")
    limits = ("shares", "memory_bytes", "active_thread_percentage", "pinned_memory_mib")
    assert [use[name] for name in limits] == ["", "", "", ""]


def test_what_was_shared_before_a_reboot_is_not_told(node: FakeNode) -> None:
    node.prepare(node.claim_shares("serve", f"{gpu_device_name(node.gpus[0])}-ts-4"))
    node.reboot()
    assert uses(node) == []


def test_the_status_of_a_claim_says_how_its_device_is_shared(node: FakeNode) -> None:
    gpus = [gpu_device_name(pci) for pci in node.gpus]
    node.prepare(node.claim_shares("mps", f"{gpus[0]}-mps-4"))
    node.prepare(node.claim("slices", 1, config=[CONFIG]))
    node.prepare(node.claim("whole", 2))

    statuses = claim_statuses(node.journal.entries(), "", Observed(node.kinds))
    told = {claim.name: claim.devices for claim in statuses}

    assert told.keys() == {"mps", "slices", "whole"}
    (mps,), (slices,) = told["mps"], told["slices"]
    assert mps.share_id is not None
    assert mps.key[-1] == mps.share_id
    assert mps.ready.reason == "ShareReady"
    assert dict(mps.data) == {
        "uuid": node.machine.uuid(node.gpus[0]),
        "pciBusID": str(node.gpus[0]),
        "sharing": "mps",
        "activeThreadPercentage": 25,
        "pinnedMemoryMiB": 20276,
        "shares": 1,
    }
    assert dict(slices.data) == {
        "uuid": node.machine.uuid(node.gpus[1]),
        "pciBusID": str(node.gpus[1]),
        "sharing": "time-slicing",
        "interval": "Long",
    }
