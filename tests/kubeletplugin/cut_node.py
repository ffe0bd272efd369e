"""What tests look at on a fake node whose GPUs are cut, and what an admin does to it by hand."""

from __future__ import annotations

import json
from typing import Any

from driver.nvml.api import NvmlDevice
from driver.nvml.mig import GpuInstance, Placement
from kubeletplugin.kubelet.wire.claim_call import ClaimRef
from tests.kubeletplugin.fake_node import FakeNode
from tests.kubeletplugin.held import partition_of

ONE, THREE = 19, 9
"""The ids of the profiles 1g.10gb and 3g.40gb of an H100."""


def handle(node: FakeNode, gpu: int = 0) -> NvmlDevice:
    """A handle of a GPU in a session of the test's own."""
    nvml = node.machine.nvml()
    nvml.init()
    return nvml.device_by_pci(node.gpus[gpu])


def instances(node: FakeNode, gpu: int = 0) -> tuple[GpuInstance, ...]:
    """What lies on a GPU, whoever made it; nothing with MIG mode off."""
    device = handle(node, gpu)
    return device.gpu_instances() if device.mig_mode().enabled else ()


def mig_enabled(node: FakeNode, gpu: int = 0) -> bool:
    return handle(node, gpu).mig_mode().enabled


def starts(node: FakeNode, gpu: int = 0) -> list[int]:
    return sorted(instance.placement.start for instance in instances(node, gpu))


def foreign(node: FakeNode, profile: int, start: int, size: int) -> GpuInstance:
    """What an admin cuts on GPU 0 with nvidia-smi."""
    device = handle(node, 0)
    device.set_mig_mode(enabled=True)
    made = device.create_gpu_instance(profile, Placement(start, size))
    device.create_compute_instance(made.id, {ONE: 0, THREE: 2}[profile])
    return made


def nodes_of(node: FakeNode, ref: ClaimRef) -> list[list[str]]:
    spec: dict[str, Any] = json.loads(node.spec_path(ref).read_bytes())
    return [[n["path"] for n in device["containerEdits"]["deviceNodes"]] for device in spec["devices"]]


def uuid_of(node: FakeNode, ref: ClaimRef) -> str:
    entry = node.journal.get(ref.uid)
    assert entry is not None
    record = partition_of(entry.devices[0])
    assert record is not None
    return record.uuid
