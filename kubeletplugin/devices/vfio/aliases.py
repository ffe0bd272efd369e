"""Which driver hands a function to virtual machines best, by the aliases of the kernel's modules.

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

VFIO_PCI = "vfio-pci"
VFIO_PCI_MODULE = "vfio_pci"

_LINE = re.compile(
    r"^alias[ \t]+vfio_(?P<pattern>pci:\S+)[ \t]+(?P<module>[\w-]+)[ \t]*$", re.MULTILINE | re.ASCII
)


@dataclass(frozen=True, slots=True)
class VfioAlias:
    """A module's word that it hands functions to vfio whose ``modalias`` fits the pattern."""

    pattern: str
    module: str

    def fits(self, modalias: str) -> bool:
        """Whether a function with this modalias is meant."""
        return fnmatchcase(modalias, self.pattern)

    @property
    def says(self) -> int:
        """How much it says of the functions that it means: patterns with fewer stars say more."""
        return -self.pattern.count("*")


def parse_aliases(modules_alias: str) -> tuple[VfioAlias, ...]:
    """The aliases for vfio in the text of a ``modules.alias``."""
    return tuple(VfioAlias(match["pattern"], match["module"]) for match in _LINE.finditer(modules_alias))


def best_module(aliases: tuple[VfioAlias, ...], modalias: str | None) -> str:
    """The module for a function with this ``modalias``, None for unknown; vfio-pci's where none says more."""
    fitting = [alias for alias in aliases if modalias is not None and alias.fits(modalias)]
    return max(fitting, key=lambda alias: alias.says).module if fitting else VFIO_PCI_MODULE


def read_aliases(host_root: Path, release: str) -> tuple[VfioAlias, ...]:
    """Those of the host's modules for a kernel of this release (uname -r); none where they cannot be read."""
    for modules in ("lib/modules", "usr/lib/modules"):
        try:
            return parse_aliases(
                (host_root / modules / release / "modules.alias").read_text(errors="replace")
            )
        except OSError:
            continue
    return ()
