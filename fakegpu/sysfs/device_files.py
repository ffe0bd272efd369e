"""The device nodes that come and go with drivers, below the /dev of a fake machine's driver root."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fakegpu.capabilities import null_device
from fakegpu.sysfs.tree import drm_names
from fakegpu.sysfs.vfio_files import vfio_nodes

if TYPE_CHECKING:
    from fakegpu.sysfs.binding import Node


def nodes_of(node: Node) -> dict[str, str]:
    """Node below /dev -> where it is a link to, empty for a device: GPUs', DRM's, and those of vfio."""
    found = dict.fromkeys(vfio_nodes(node), "")
    for pci, gpu in node.machine.gpus.items():
        if not node.kernel.has_nvidia(pci):
            continue
        found[f"nvidia{gpu.minor}"] = ""
        for name, kind in zip(drm_names(node.spec)[pci], ("card", "render"), strict=True):
            found[f"dri/{name}"] = ""
            found[f"dri/by-path/pci-{pci}-{kind}"] = f"../{name}"
    return found


def follow(root: Path, before: Node, after: Node) -> None:
    """Remove and make the device nodes that are other below a root."""
    old, new = nodes_of(before), nodes_of(after)
    for name in old.keys() - new.keys():
        (root / "dev" / name).unlink(missing_ok=True)
    for name in new.keys() - old.keys():
        make_node(root, name, new[name])


def make_node(root: Path, name: str, leads_to: str) -> None:
    """Make one node below /dev: a device, or a link."""
    place = root / "dev" / name
    if not leads_to:
        null_device(place)
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    place.symlink_to(leads_to)
