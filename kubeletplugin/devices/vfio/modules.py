"""Chooses the kernel module that serves a function to virtual machines best, and loads modules.

vfio-pci takes every function. Some functions have a better one, NVIDIA's superchips
``nvgrace_gpu_vfio_pci``. Such a module has an alias ``vfio_pci:v…d…`` in ``modules.alias``, in the format of
ordinary drivers (scripts/mod/file2alias.c, do_pci_entry). If several match, the most specific one is chosen,
as libvirt does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from driver.errors import ClaimBlocked, NodeIncomplete
from kubeletplugin.devices.host.kernel import Kernel

VFIO_PCI = "vfio-pci"
VFIO_PCI_MODULE = "vfio_pci"

# depmod writes one line for each alias: "alias PATTERN MODULE".
_LINE = re.compile(
    r"^alias[ \t]+vfio_(?P<pattern>pci:\S+)[ \t]+(?P<module>[\w-]+)[ \t]*$", re.MULTILINE | re.ASCII
)


@dataclass(frozen=True, slots=True)
class VfioAlias:
    """An alias of a module that serves functions by vfio whose ``modalias`` matches the pattern."""

    pattern: str
    module: str

    def fits(self, modalias: str) -> bool:
        """Whether the pattern matches a function with this modalias."""
        # kmod matches them in the same way, with fnmatch(3).
        return fnmatchcase(modalias, self.pattern)

    @property
    def specificity(self) -> int:
        """Higher for more specific patterns: those with fewer stars."""
        return -self.pattern.count("*")


def parse_aliases(modules_alias: str) -> tuple[VfioAlias, ...]:
    """The aliases for vfio in the text of a ``modules.alias``."""
    return tuple(VfioAlias(match["pattern"], match["module"]) for match in _LINE.finditer(modules_alias))


def best_module(aliases: tuple[VfioAlias, ...], modalias: str | None) -> str:
    """The best module for a function with this ``modalias``, None if unknown; vfio-pci's if none matches."""
    fitting = [alias for alias in aliases if modalias is not None and alias.fits(modalias)]
    return max(fitting, key=lambda alias: alias.specificity).module if fitting else VFIO_PCI_MODULE


def read_aliases(host_root: Path, release: str) -> tuple[VfioAlias, ...]:
    """The aliases of the host's modules for a kernel release (uname -r); empty if they cannot be read."""
    for modules in ("lib/modules", "usr/lib/modules"):
        try:
            return parse_aliases(
                (host_root / modules / release / "modules.alias").read_text(errors="replace")
            )
        except OSError:
            continue
    return ()


def load_module(kernel: Kernel, module: str, deadline_seconds: float, without: str) -> None:
    """Load the module; raises NodeIncomplete if that fails, ClaimBlocked if it takes too long.

    ``without`` is appended to the advice of the error: what else helps on a node without the module.
    """
    try:
        kernel.load_module(module, deadline_seconds)
    except TimeoutError as error:
        raise ClaimBlocked(
            f"the kernel module {module} was not loaded within {deadline_seconds:g} s",
            "it is tried again; look for the cause in the kernel log (dmesg)",
        ) from error
    except OSError as error:
        raise NodeIncomplete(
            f"cannot load the kernel module {module}: {error.strerror or error}",
            f"install the kernel's modules on the node{without}",
        ) from error
