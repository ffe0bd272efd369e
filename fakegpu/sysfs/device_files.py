"""The device nodes and files of /proc that come and go with drivers, below a fake machine's driver root."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fakegpu.machine.capabilities import null_device
from fakegpu.smi.listing import list_anew
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


def information_of(node: Node) -> dict[str, str]:
    """The file for each GPU that the NVIDIA driver has in /proc, below the root -> its text."""
    return {
        f"proc/driver/nvidia/gpus/{pci}/information": (
            f"Model: \t\t {node.spec.product.name}\n"
            f"GPU UUID: \t {node.spec.board_uuid(pci, gpu.board)}\n"
            f"Bus Type: \t PCIe\nBus Location: \t {pci}\nDevice Minor: \t {gpu.minor}\n"
        )
        for pci, gpu in node.machine.gpus.items()
        if node.kernel.has_nvidia(pci)
    }


def lay(root: Path, node: Node) -> None:
    """Make all nodes and files of now below a root."""
    for name, leads_to in nodes_of(node).items():
        _make_node(root, name, leads_to)
    for name, text in information_of(node).items():
        _write(root / name, text)


def follow(root: Path, before: Node, after: Node) -> None:
    """Remove and make the device nodes that are other below a root."""
    old, new = nodes_of(before), nodes_of(after)
    for name in old.keys() - new.keys():
        (root / "dev" / name).unlink(missing_ok=True)
    for name in new.keys() - old.keys():
        _make_node(root, name, new[name])
    was, now = information_of(before), information_of(after)
    for name in was.keys() - now.keys():
        (root / name).unlink(missing_ok=True)
        if (root / name).parent.is_dir():
            (root / name).parent.rmdir()
    for name, text in now.items():
        if was.get(name) != text:
            _write(root / name, text)
    if was.keys() != now.keys():  # a minor moves only while another driver has the GPU
        list_anew(root, after.spec, after.machine)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _make_node(root: Path, name: str, leads_to: str) -> None:
    """Make one node below /dev: a device, or a link."""
    place = root / "dev" / name
    if not leads_to:
        null_device(place)
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    place.symlink_to(leads_to)
