"""What tests look at on a fake node whose GPUs are shared, and the configurations that its claims carry."""

from __future__ import annotations

import json
from typing import Any

from driver.devices.names import DRIVER_NAME, gpu_device_name
from driver.nvml.modes import ComputeMode
from kubeletplugin.claims.journal.entry import Entry, ShareRecord
from kubeletplugin.claims.journal.locks import Peers
from kubeletplugin.kubelet.wire.claim_call import ClaimRef
from kubeletplugin.kubelet.wire.mps_daemon import MpsDaemon
from kubeletplugin.sharing.time_slices import Interval
from tests.kubeletplugin.fake_node import FakeNode
from tests.kubeletplugin.fake_sharing import time_slice

MIB = 1 << 20
GIB = 1 << 30
H100_MIB = 81559 - 454
"""The memory that shares of one GPU of the node in the fixture have."""


def whole(node: FakeNode, gpu: int = 0) -> str:
    """The device name of a GPU, which is its group's as well."""
    return gpu_device_name(node.gpus[gpu])


def shared(node: FakeNode, form: str, gpu: int = 0) -> str:
    """The device name of a GPU that is shared so: ``ts-4``, ``mps-4``, ``mps-mem``."""
    return f"{whole(node, gpu)}-{form}"


def config(
    sharing: dict[str, Any] | None, *requests: str, kind: str = "GpuConfig", source: str = "FromClaim"
) -> list[dict[str, Any]]:
    """An opaque configuration of the claim or of its class, for these requests or for all."""
    parameters = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": kind, "sharing": sharing}
    opaque = {"driver": DRIVER_NAME, "parameters": parameters}
    return [{"source": source, "requests": list(requests), "opaque": opaque}]


def slicing(interval: str, *requests: str, source: str = "FromClaim") -> list[dict[str, Any]]:
    """A configuration that asks for a time-slice."""
    sharing = {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": interval}}
    return config(sharing, *requests, source=source)


def class_slicing(interval: str, *requests: str) -> list[dict[str, Any]]:
    """A class's configuration that gives a time-slice."""
    return slicing(interval, *requests, source="FromClass")


def mps(*requests: str, kind: str = "GpuConfig", **settings: Any) -> list[dict[str, Any]]:
    """A configuration that asks for MPS with these limits."""
    return config({"strategy": "MPS", "mpsConfig": settings}, *requests, kind=kind)


def mode(node: FakeNode, gpu: int = 0) -> ComputeMode:
    return node.machine.state.gpus[node.gpus[gpu]].compute_mode


def interval(node: FakeNode, gpu: int = 0) -> Interval:
    return time_slice(node.machine, node.gpus[gpu])


def uuid(node: FakeNode, gpu: int = 0) -> str:
    return node.machine.uuid(node.gpus[gpu])


def daemon(node: FakeNode, gpu: int = 0) -> MpsDaemon:
    """The daemon that runs for a GPU."""
    return node.mps.running[whole(node, gpu)]


def limits(node: FakeNode, gpu: int = 0) -> tuple[int, tuple[int, ...]]:
    """The percentage and the MiB that the daemon of a GPU lets its clients have."""
    found = daemon(node, gpu)
    return found.active_thread_percentage, found.pinned_memory_mib


def entry_of(node: FakeNode, ref: ClaimRef) -> Entry:
    entry = node.journal.get(ref.uid)
    assert entry is not None
    return entry


def share_of(node: FakeNode, ref: ClaimRef, position: int = 0) -> ShareRecord:
    share = entry_of(node, ref).devices[position].share
    assert share is not None
    return share


def spec_of(node: FakeNode, ref: ClaimRef) -> dict[str, Any]:
    spec: dict[str, Any] = json.loads(node.spec_path(ref).read_bytes())
    return spec


def variables(node: FakeNode, ref: ClaimRef, position: int = 0) -> dict[str, str]:
    """The variables that one device of a claim brings, by name."""
    lines = spec_of(node, ref)["devices"][position]["containerEdits"].get("env", ())
    return dict(line.split("=", 1) for line in lines)


def read_anew(node: FakeNode) -> None:
    """Have the plugin look at its files again, as when another instance was there and wrote them."""
    Peers(node.folder / "instances").close()


def recorded(node: FakeNode) -> list[str]:
    """The groups that have a record on the disk."""
    return sorted(path.stem for path in (node.boot_files / "sharing").glob("*.json"))


def assert_as_before(node: FakeNode) -> None:
    """No daemon, no mode, no time-slice and no record is left."""
    assert node.mps.running == {}
    assert {gpu.compute_mode for gpu in node.machine.state.gpus.values() if gpu.present} == {"default"}
    assert {gpu.time_slice for gpu in node.machine.state.gpus.values()} == {0}
    assert recorded(node) == []


def assert_holds_nothing(node: FakeNode, ref: ClaimRef) -> None:
    """A prepare that failed has left neither an entry nor a spec."""
    assert node.journal.get(ref.uid) is None
    assert not node.spec_path(ref).exists()
