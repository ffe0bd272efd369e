"""Turns the persistence mode of GPUs off before their fabric partition is activated, and on again at the end.

NVIDIA's own driver turns it off, too: nothing is to keep GPUs initialised while their partition is activated.
"""

from __future__ import annotations

from collections.abc import Iterable

from driver.errors import NvmlError
from driver.hardware.persistence import Persistence
from driver.nvml.pci_address import PciAddress
from driver.process.log import get_logger

_log = get_logger("fabric")


class PersistenceOfMembers:
    """The persistence mode of a partition's GPUs, which are named by their addresses."""

    def __init__(self, persistence: Persistence) -> None:
        self._persistence = persistence

    def on_of(self, gpus: Iterable[str]) -> tuple[str, ...]:
        """Those of the GPUs whose mode is on; one that NVML does not have has none. Raises NvmlError."""
        return tuple(pci for pci in gpus if self._persistence.is_on(PciAddress.parse(pci)))

    def turn_off(self, gpus: Iterable[str]) -> None:
        """Turn the mode off; raises NvmlError."""
        for pci in self.on_of(gpus):
            self._persistence.set(PciAddress.parse(pci), on=False)

    def turn_on(self, gpus: Iterable[str]) -> None:
        """Turn the mode on again; what fails is logged, since it costs the next user a second and no more."""
        for pci in gpus:
            try:
                self._persistence.set(PciAddress.parse(pci), on=True)
            except NvmlError as error:
                _log.warning("persistence mode is not put back", gpu=pci, error=str(error))
