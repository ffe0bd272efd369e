"""The persistence mode of GPUs: whether the kernel driver keeps a GPU initialised while nobody uses it."""

from __future__ import annotations

from driver.hardware.inventory import Discovery
from driver.nvml.api import DriverNotLoaded, NotFound, NotSupported
from driver.nvml.pci_address import PciAddress

_NO_SUCH_MODE = (DriverNotLoaded, NotFound, NotSupported)


class Persistence:
    """Reads and sets the mode of the node's GPUs."""

    def __init__(self, discovery: Discovery) -> None:
        self._discovery = discovery

    def is_on(self, pci: PciAddress) -> bool | None:
        """Whether it is on; None if NVML lists no such GPU, or the GPU has no such mode. Raises NvmlError."""
        try:
            return self._discovery.on_gpu(
                pci, lambda device, watch: watch("persistence_mode", device.persistence_mode)
            )
        except _NO_SUCH_MODE:
            return None

    def set(self, pci: PciAddress, *, on: bool) -> None:
        """Turn it on or off; raises NvmlError."""
        self._discovery.on_gpu(
            pci,
            # While it is on, the kernel driver keeps the GPU open, so the function cannot be given to another
            # driver.
            lambda device, watch: watch("set_persistence_mode", lambda: device.set_persistence_mode(on)),
        )
