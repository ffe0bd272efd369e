"""A node that is a host of vGPUs, and what its kernel shows of them."""

import json
from pathlib import Path
from typing import Any

from tests.clusters import Object
from tests.gpus import MadeVgpu, PciAddress, made_on
from tests.kubeletplugin.fake_node import FakeNode
from tests.plugin import ClaimRef

L40S, A100, A30 = "vgpu-host-l40s", "vgpu-host-a100-mdev", "vgpu-and-passthrough"
TYPES = {
    "l40s-8q": 1152,
    "l40s-24q": 1155,
    "l40s-8a": 1162,
    "a100-4c": 468,
    "a100-10c": 471,
    "a100-1-5c": 474,
}
"""Profiles of the machines, as names have them, and NVML's ids."""

DEVICES = {L40S: "gpu-0000-17-00-0-vgpu-l40s-8q-3", A100: "gpu-0000-3b-00-0-vgpu-a100-10c-1"}
"""A device of each framework."""


def opened(folder: Path, machine: str, *, on_disk: bool = False) -> FakeNode:
    """A node whose kernel can be told things."""
    return FakeNode(folder, machine, binds=True, on_disk=on_disk)


def made(node: FakeNode) -> dict[str, MadeVgpu]:
    """The vGPUs that the kernel shows, by the address of their functions."""
    functions = (PciAddress.parse(one.name) for one in (node.sysfs / "bus/pci/devices").iterdir())
    return {str(pci): vgpu for pci in functions for vgpu in made_on(node.sysfs, pci)}


def edits(node: FakeNode, ref: ClaimRef) -> Object:
    """What the claim's CDI spec gives a container with its first device."""
    found: Object = json.loads(node.spec_path(ref).read_bytes())["devices"][0]["containerEdits"]
    return found


def with_config(**iommu: Any) -> Object:
    """The rest of an allocation whose claim has a configuration of vfio."""
    parameters = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "VfioDeviceConfig", "iommu": iommu}
    opaque = {"driver": "gpu.nvidia.com", "parameters": parameters}
    return {"config": [{"source": "FromClaim", "requests": [], "opaque": opaque}]}
