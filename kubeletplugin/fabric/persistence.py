"""Turns the persistence mode of GPUs off before their fabric partition is activated, and on again at the end.

NVIDIA's own driver turns it off, too: nothing is to keep GPUs initialised while their partition is activated.
"""

from __future__ import annotations

from collections.abc import Iterable

from driver.errors import NvmlError
from driver.hardware.inventory import Discovery
from driver.nvml.api import DriverNotLoaded, NotFound, NotSupported
from driver.nvml.pci_address import PciAddress
from driver.process.log import get_logger

_NO_SUCH_MODE = (DriverNotLoaded, NotFound, NotSupported)

_log = get_logger("fabric")


class Persistence:
    """The persistence mode of the node's GPUs, which NVML names by their addresses."""

    def __init__(self, discovery: Discovery) -> None:
        self._discovery = discovery

    def on_of(self, gpus: Iterable[str]) -> tuple[str, ...]:
        """Those of the GPUs whose mode is on; one that NVML does not have has none. Raises NvmlError."""
        return tuple(pci for pci in gpus if self._is_on(PciAddress.parse(pci)))

    def turn_off(self, gpus: Iterable[str]) -> None:
        """Turn the mode off; raises NvmlError."""
        for pci in gpus:
            if self._is_on(PciAddress.parse(pci)):
                self._set(PciAddress.parse(pci), on=False)

    def turn_on(self, gpus: Iterable[str]) -> None:
        """Turn the mode on again; what fails is logged, since it costs the next user a second and no more."""
        for pci in gpus:
            try:
                self._set(PciAddress.parse(pci), on=True)
            except NvmlError as error:
                _log.warning("persistence mode is not put back", gpu=pci, error=str(error))

    def _is_on(self, pci: PciAddress) -> bool:
        try:
            return self._discovery.on_gpu(
                pci, lambda device, watch: watch("persistence_mode", device.persistence_mode)
            )
        except _NO_SUCH_MODE:
            return False

    def _set(self, pci: PciAddress, *, on: bool) -> None:
        self._discovery.on_gpu(
            pci,
            lambda device, watch: watch("set_persistence_mode", lambda: device.set_persistence_mode(on)),
        )
