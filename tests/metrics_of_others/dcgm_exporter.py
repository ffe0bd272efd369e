"""The rules by which the DCGM exporter finds the GPU of a container's device in ResourceSlices.

Of NVIDIA/dcgm-exporter, internal/pkg/transformation/dra.go, as of 2026: a pool counts once all slices of its
newest generation are there.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tests.clusters import Object

_MADE = re.compile(r"gpu-(\d+)-mig-(\d+)-(\d+)")
"""How NVIDIA's driver names a partition that it makes on request: minor, profile's id, place."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """What the exporter knows of a device: the GPU, and of a partition what finds it on that GPU."""

    gpu_uuid: str
    mig_uuid: str = ""
    profile: str = ""
    is_found: bool = True


def resolve(slices: Iterable[Object], pool: str, device: str) -> Resolved | None:
    """The GPU of a device; None where the exporter puts no labels of pods on any metric for it."""
    specs = [one["spec"] for one in slices if one["spec"]["driver"] == "gpu.nvidia.com"]
    mine = [spec for spec in specs if spec["pool"]["name"] == pool]
    newest = max((spec["pool"]["generation"] for spec in mine), default=0)
    current = [spec for spec in mine if spec["pool"]["generation"] == newest]
    if not current or len(current) < current[0]["pool"]["resourceSliceCount"]:
        return None
    found = [one for spec in current for one in spec.get("devices", ()) if one["name"] == device]
    return _mapped(device, found[-1].get("attributes", {})) if found else None


def _mapped(device: str, attributes: Object) -> Resolved | None:
    def text(name: str) -> str:
        return str(attributes.get(name, {}).get("string", ""))

    if text("type") == "gpu":
        return Resolved(text("uuid")) if text("uuid") else None
    if text("type") != "mig" or not text("parentUUID"):
        return None
    is_found = bool(text("uuid") or _MADE.fullmatch(device))
    return Resolved(text("parentUUID"), text("uuid"), text("profile"), is_found)
