"""Makes and reads the names under which devices and pools are published."""

from __future__ import annotations

import re
from dataclasses import dataclass

from driver.devices.sharing import SharedForm, shared_suffix, split_shared_suffix
from driver.errors import ConfigError
from driver.nvml.pci_address import PciAddress

DRIVER_NAME = "gpu.nvidia.com"
"""The name of NVIDIA's own DRA driver, so that claims and classes written for it work unchanged."""

_GPU = re.compile(r"^gpu-([0-9a-f]{4,8})-([0-9a-f]{2})-([0-9a-f]{2})-([0-7])$")
_PARTITION = re.compile(
    r"^(?P<gpu>gpu-[0-9a-f-]+)-(?P<kind>mig|static)-"
    r"(?P<profile>(?:[1-8]c-)?[1-8]g-[0-9]{1,4}gb(?:-no-me|-me-all|-me|-gfx)*)-"
    r"(?P<start>[0-9]{1,2})(?:-(?P<compute_start>[0-9]))?\Z"
)
_PARTIAL = tuple(f"{slices}c-" for slices in range(1, 9))
_NODE = re.compile(r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?\Z")
_MAX_NODE_NAME_CHARACTERS = 253


def gpu_device_name(pci: PciAddress) -> str:
    """The device name of a whole GPU, ``gpu-0000-8a-00-0``: it survives reboots, unlike a minor."""
    return f"gpu-{pci.domain:04x}-{pci.bus:02x}-{pci.device:02x}-{pci.function:x}"


def parse_gpu_device_name(name: str) -> PciAddress | None:
    """The PCI address in a whole GPU's device name, or None when it is no such name."""
    match = _GPU.match(name)
    if match is None:
        return None
    return PciAddress(*(int(part, 16) for part in match.groups()))


@dataclass(frozen=True, slots=True)
class DeviceName:
    """What a device's name says: the GPU, and of a partition its profile and place.

    ``profile`` is the profile as names have it (``profile_slug``), None for a whole GPU. ``start`` is the
    first memory slice. ``static``: somebody else made the partition and keeps it; else it is made when a
    claim is prepared. ``compute_start`` is the first compute slice of a compute instance that is only a
    part of its GPU instance (static ones alone), else None. ``shared`` is how the GPU or the partition is
    shared, None for one that a claim has for itself.
    """

    pci: PciAddress
    profile: str | None = None
    start: int = 0
    static: bool = False
    compute_start: int | None = None
    shared: SharedForm | None = None


def profile_slug(profile: str) -> str:
    """A profile's name as device names have it, different for each: ``1g.10gb+me`` is ``1g-10gb-me``.

    ``-me`` takes all media engines away where ``+me`` brings them: it becomes ``-no-me``.
    """
    return profile.replace("-me", "-no-me").replace("+", "-").replace(".", "-")


def partition_device_name(pci: PciAddress, profile: str, start: int) -> str:
    """The device name of a partition that is made on request: ``gpu-0000-8a-00-0-mig-1g-10gb-6``."""
    return f"{gpu_device_name(pci)}-mig-{profile_slug(profile)}-{start}"


def static_device_name(pci: PciAddress, profile: str, start: int, compute_start: int | None = None) -> str:
    """The device name of a partition that exists: ``gpu-0000-8a-00-0-static-3g-40gb-4``.

    ``compute_start`` tells the parts of one GPU instance apart: ``…-static-1c-3g-40gb-4-2``.
    """
    part = "" if compute_start is None else f"-{compute_start}"
    return f"{gpu_device_name(pci)}-static-{profile_slug(profile)}-{start}{part}"


def shared_device_name(device: str, form: SharedForm) -> str:
    """The name under which a GPU or a partition is shared: ``gpu-0000-8a-00-0-ts-4``."""
    return device + shared_suffix(form)


def unshared_name(name: str) -> str:
    """The name of the GPU or the partition that a device is, shared or not."""
    return split_shared_suffix(name)[0]


def parse_device_name(name: str) -> DeviceName | None:
    """What a name that this driver gave means; None for any other."""
    base, shared = split_shared_suffix(name)
    pci = parse_gpu_device_name(base)
    if pci is not None:
        return DeviceName(pci, shared=shared)
    match = _PARTITION.match(base)
    pci = parse_gpu_device_name(match["gpu"]) if match else None
    if match is None or pci is None:
        return None
    part = match["compute_start"]
    static = match["kind"] == "static"
    if (part is not None) != match["profile"].startswith(_PARTIAL) or (part is not None and not static):
        return None
    compute_start = None if part is None else int(part)
    return DeviceName(pci, match["profile"], int(match["start"]), static, compute_start, shared)


def pool_name(node: str, driver: str = DRIVER_NAME) -> str:
    """The pool of a node: ``<node>/<driver>``.

    Schedulers up to 1.36.3 key counters by pool name alone, so a name that no other driver uses
    keeps theirs and ours apart.
    """
    return f"{node}/{driver}"


def checked_node_name(name: str) -> str:
    """The name itself when a Node object can have it (RFC 1123 subdomain); raises ConfigError."""
    if len(name) > _MAX_NODE_NAME_CHARACTERS or not _NODE.match(name):
        raise ConfigError(
            f"--node-name {name[:_MAX_NODE_NAME_CHARACTERS]!r} is no name of a node",
            "give the name that kubectl get nodes shows",
        )
    return name
