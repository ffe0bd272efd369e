"""The files of sysfs by which a PCI function gets another driver; each write is checked by reading back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from driver.hardware.functions import PciFunction
from driver.hardware.pci import bound_driver
from driver.hardware.pci_view import function_folder, read_function
from driver.nvml.pci_address import PciAddress
from kubeletplugin.devices.host.kernel import Kernel
from kubeletplugin.devices.vfio.users import (
    FunctionInDoubt,
    FunctionNotMoved,
    User,
    in_doubt,
    refused,
    without_effect,
)

_NO_OVERRIDE = "(null)"
"""What the kernel shows for no override (driver_override_show). Written back, it would count as a name."""


@dataclass(frozen=True, slots=True)
class Deadlines:
    """How long the kernel may take, in seconds. Binding or restoring a GPU fits into a kubelet's 45 s."""

    override: float = 5.0
    unbind: float = 15.0
    probe: float = 20.0
    module: float = 20.0


Users = Callable[[PciFunction], Sequence[User]]
"""Returns the processes that have a function open."""


class FunctionFiles:
    """The files of one PCI function."""

    def __init__(
        self,
        kernel: Kernel,
        sysfs_root: Path,
        pci: PciAddress,
        users: Users,
        deadlines: Deadlines,
    ) -> None:
        self.pci = pci
        self._users = users
        self._kernel = kernel
        self._sysfs_root = sysfs_root
        self._deadlines = deadlines
        # Linux has this file for every PCI function (Documentation/ABI/testing/sysfs-bus-pci).
        self._override = function_folder(sysfs_root, pci) / "driver_override"

    def users(self) -> Sequence[User]:
        """The processes that have it open, for error messages."""
        function = read_function(self._sysfs_root, self.pci)
        return () if function is None else self._users(function)

    @property
    def is_there(self) -> bool:
        """Whether the function is on the bus."""
        return function_folder(self._sysfs_root, self.pci).exists()

    def driver(self) -> str:
        """The driver that it is bound to, empty for none.

        The kernel removes the link to the driver before the driver has let go. ``override`` waits until it
        has.
        """
        return bound_driver(self._sysfs_root, self.pci) or ""

    def has_driver(self, driver: str) -> bool:
        """Whether the kernel has a driver of that name now."""
        return self._of_driver(driver).exists()

    def override(self) -> str:
        """The name in ``driver_override``, empty for none.

        Raises FunctionInDoubt while a driver has not let go of the function, FunctionNotMoved.
        """
        # The kernel holds the function's lock from unbind to the end of the driver's remove, and takes the
        # same lock to show driver_override. So an answer means that no change is under way.
        try:
            text = self._kernel.read(self._override, self._deadlines.override)
        except TimeoutError as error:
            raise self._doubt("an earlier change of it", self._deadlines.override) from error
        except OSError as error:
            raise refused(self.pci, "reading its driver_override", error) from error
        name = text.removesuffix("\n")
        return "" if name == _NO_OVERRIDE else name

    def set_override(self, name: str) -> None:
        """Let only this driver take it, or any driver that fits if the name is empty."""
        what = f"setting its driver_override to {name or 'nothing'}"
        # A lone line end clears the override; a write of no bytes never reaches the kernel.
        self._tell(self._override, f"{name}\n", what, self._deadlines.override)
        found = self.override()
        if found != name:
            raise without_effect(
                self.pci, f"its driver_override was set to {name or 'nothing'}", found or "none"
            )

    def unbind(self, driver: str, to: str) -> None:
        """Make the driver let go of it, unless it has done so already.

        The function may have the driver ``to`` afterwards, which ``driver_override`` names: loading a module
        or rescanning the bus offers functions without a driver to every driver.
        """
        what = f"taking it from {driver}"
        try:
            # The kernel answers ENODEV if this driver does not hold the function any more.
            self._tell(self._of_driver(driver) / "unbind", str(self.pci), what, self._deadlines.unbind)
        except FunctionNotMoved:
            if self.driver() not in {"", to}:
                raise
        found = self.driver()
        if found not in {"", to}:
            raise without_effect(self.pci, f"it was taken from {driver}", f"the driver {found}")

    def probe(self, driver: str) -> None:
        """Bind it to the driver that its ``driver_override`` names."""
        self.offer(driver)
        found = self.driver()
        if found != driver:
            raise without_effect(
                self.pci, f"it was offered to {driver}", f"the driver {found}" if found else "no driver"
            )

    def offer(self, to: str) -> None:
        """Make the kernel look for a driver if the function has none.

        The write succeeds even if no driver takes it (drivers_probe_store).
        """
        path = self._sysfs_root / "bus" / "pci" / "drivers_probe"
        self._tell(path, str(self.pci), f"giving it to {to}", self._deadlines.probe)

    def _of_driver(self, driver: str) -> Path:
        return self._sysfs_root / "bus" / "pci" / "drivers" / driver

    def _tell(self, path: Path, text: str, what: str, seconds: float) -> None:
        try:
            self._kernel.write(path, text, seconds)
        except TimeoutError as error:
            raise self._doubt(what, seconds) from error
        except OSError as error:
            raise refused(self.pci, what, error) from error

    def _doubt(self, what: str, seconds: float) -> FunctionInDoubt:
        return in_doubt(self.pci, what, seconds, self.users())
