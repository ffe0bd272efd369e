"""Chooses the kernel module that hands a function to virtual machines best, and loads modules.

vfio-pci takes every function. Some have a driver that can do more with them, NVIDIA's superchips
``nvgrace_gpu_vfio_pci``. Its module has an alias ``vfio_pci:v…d…`` in ``modules.alias``, written as those of
ordinary drivers are (scripts/mod/file2alias.c, do_pci_entry). Of several the one that says most about the
function fits best, as libvirt has it.
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

_LINE = re.compile(
    r"^alias[ \t]+vfio_(?P<pattern>pci:\S+)[ \t]+(?P<module>[\w-]+)[ \t]*$", re.MULTILINE | re.ASCII
)


@dataclass(frozen=True, slots=True)
class VfioAlias:
    """A module's alias: it hands functions to vfio whose ``modalias`` fits the pattern."""

    pattern: str
    module: str

    def fits(self, modalias: str) -> bool:
        """Whether a function with this modalias is meant."""
        return fnmatchcase(modalias, self.pattern)

    @property
    def says(self) -> int:
        """How specific the pattern is: patterns with fewer stars are more specific."""
        return -self.pattern.count("*")


def parse_aliases(modules_alias: str) -> tuple[VfioAlias, ...]:
    """The aliases for vfio in the text of a ``modules.alias``."""
    return tuple(VfioAlias(match["pattern"], match["module"]) for match in _LINE.finditer(modules_alias))


def best_module(aliases: tuple[VfioAlias, ...], modalias: str | None) -> str:
    """The module for a function with this ``modalias``, None for unknown; vfio-pci's where none says more."""
    fitting = [alias for alias in aliases if modalias is not None and alias.fits(modalias)]
    return max(fitting, key=lambda alias: alias.says).module if fitting else VFIO_PCI_MODULE


def read_aliases(host_root: Path, release: str) -> tuple[VfioAlias, ...]:
    """The aliases of the host's modules for a kernel release (uname -r); none if they cannot be read."""
    for modules in ("lib/modules", "usr/lib/modules"):
        try:
            return parse_aliases(
                (host_root / modules / release / "modules.alias").read_text(errors="replace")
            )
        except OSError:
            continue
    return ()


def load_module(kernel: Kernel, module: str, deadline_seconds: float, without: str) -> None:
    """Have the module loaded; raises NodeIncomplete where it cannot be, ClaimBlocked while it is not yet.

    ``without`` is what else can be done on a node that does not have it.
    """
    try:
        kernel.load_module(module, deadline_seconds)
    except TimeoutError as error:
        raise ClaimBlocked(
            f"the kernel module {module} was not loaded within {deadline_seconds:g} s",
            "it is tried again; look for what keeps it in the kernel log (dmesg)",
        ) from error
    except OSError as error:
        raise NodeIncomplete(
            f"the kernel module {module} cannot be loaded: {error.strerror or error}",
            f"install the kernel's modules on the node{without}",
        ) from error
