"""The files of sysfs by which a function gets another driver; each write is checked by reading."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from driver.hardware.functions import PciFunction
from driver.hardware.pci import bound_driver
from driver.hardware.pci_view import function_folder, read_function
from driver.nvml.pci_address import PciAddress
from kubeletplugin.devices.host.kernel import Kernel
from kubeletplugin.devices.vfio.failures import (
    FunctionInDoubt,
    FunctionNotMoved,
    in_doubt,
    not_as_told,
    refused,
)
from kubeletplugin.devices.vfio.users import User

_NO_OVERRIDE = "(null)"
"""What the kernel writes for no override (driver_override_show); it takes the same word for a name."""


@dataclass(frozen=True, slots=True)
class Deadlines:
    """How long the kernel may take, in seconds. Both ways of a GPU fit into the 45 s of a kubelet's call."""

    override: float = 5.0
    unbind: float = 15.0
    probe: float = 20.0
    module: float = 20.0


Users = Callable[["PciFunction"], "Sequence[User]"]
"""Says who has a function open."""


class FunctionFiles:
    """One function."""

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
        self._override = function_folder(sysfs_root, pci) / "driver_override"

    def users(self) -> Sequence[User]:
        """Who has it open, for what is told when it does not let go."""
        function = read_function(self._sysfs_root, self.pci)
        return () if function is None else self._users(function)

    @property
    def is_there(self) -> bool:
        """Whether the function is on the bus."""
        return function_folder(self._sysfs_root, self.pci).exists()

    def driver(self) -> str:
        """The driver that holds it, empty for none.

        The kernel drops the link before the driver has let go; ``override`` tells the two apart.
        """
        return bound_driver(self._sysfs_root, self.pci) or ""

    def has_driver(self, driver: str) -> bool:
        """Whether the kernel has a driver of that name now."""
        return self._of_driver(driver).exists()

    def override(self) -> str:
        """The name in ``driver_override``, empty for none.

        Raises FunctionInDoubt while a driver still has to let go of the function: the kernel gives the name
        out under the same lock. Raises FunctionNotMoved.
        """
        try:
            text = self._kernel.read(self._override, self._deadlines.override)
        except TimeoutError as error:
            raise self._doubt("what it was told before", self._deadlines.override) from error
        except OSError as error:
            raise refused(self.pci, "reading its driver_override", error) from error
        name = text.removesuffix("\n")
        return "" if name == _NO_OVERRIDE else name

    def set_override(self, name: str) -> None:
        """Let only this driver take it, or any that fits if the name is empty."""
        what = f"setting its driver_override to {name or 'nothing'}"
        # The kernel takes a lone line end for no name; a write of nothing never reaches it.
        self._tell(self._override, f"{name}\n", what, self._deadlines.override)
        found = self.override()
        if found != name:
            raise not_as_told(
                self.pci, f"its driver_override was set to {name or 'nothing'}", found or "none"
            )

    def unbind(self, driver: str, to: str) -> None:
        """Make the driver let go of it; fine if it has done so meanwhile.

        Also fine if the driver ``to``, which ``driver_override`` names, has it by then: loading a module or
        rescanning the bus offers functions without a driver to all.
        """
        what = f"taking it from {driver}"
        try:
            self._tell(self._of_driver(driver) / "unbind", str(self.pci), what, self._deadlines.unbind)
        except FunctionNotMoved:
            if self.driver() not in {"", to}:
                raise
        found = self.driver()
        if found not in {"", to}:
            raise not_as_told(self.pci, f"it was taken from {driver}", f"the driver {found}")

    def probe(self, driver: str) -> None:
        """Make the driver take it that its ``driver_override`` names."""
        self.offer(driver)
        found = self.driver()
        if found != driver:
            raise not_as_told(
                self.pci, f"it was offered to {driver}", f"the driver {found}" if found else "no driver"
            )

    def offer(self, to: str) -> None:
        """Make the kernel look for a driver if the function has none.

        The kernel reports success whatever comes of it (drivers_probe_store).
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
