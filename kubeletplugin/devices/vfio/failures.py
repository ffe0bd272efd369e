"""The errors of binding a function to vfio and giving it back, with their messages.

Each call can be repeated unchanged: the record says how far the last one came.
"""

from __future__ import annotations

from collections.abc import Sequence

from driver.errors import ClaimBlocked
from driver.nvml.pci_address import PciAddress
from kubeletplugin.devices.vfio.users import User, named, shown


class FunctionInDoubt(ClaimBlocked):
    """The kernel has not finished a change of a function yet; it may still do so."""


class FunctionInUse(ClaimBlocked):
    """A process has a function open, so its driver would not let go of it."""


class FunctionNotMoved(ClaimBlocked):
    """The kernel refused a change of a function, or the function has another driver than expected."""


def in_use(pci: PciAddress, driver: str, users: Sequence[User]) -> FunctionInUse:
    """The error for a function that a process has open."""
    who, for_log = shown(users)
    return FunctionInUse(
        f"cannot take {pci} from {driver or 'its user'}: it is in use",
        f"it is tried again; end {who}",
        for_log=for_log,
    )


def in_doubt(pci: PciAddress, what: str, seconds: float, users: Sequence[User]) -> FunctionInDoubt:
    """The error for a function whose lock the kernel still holds."""
    return FunctionInDoubt(
        f"the state of {pci} is unknown: the kernel has not finished {what} within {seconds:g} s",
        "it continues once nothing uses the function any more; look for its address in the kernel log "
        "(dmesg)",
        for_log=f"in use by {named(users)}" if users else "",
    )


def refused(pci: PciAddress, what: str, error: OSError) -> FunctionNotMoved:
    """The error for a write that the kernel refused with an error number."""
    return FunctionNotMoved(
        f"{pci}: {what} failed: {error.strerror or error}",
        "it is tried again; the kernel log (dmesg) may say why",
    )


def without_effect(pci: PciAddress, what: str, found: str) -> FunctionNotMoved:
    """The error for a write that succeeded but after which the kernel shows something else."""
    return FunctionNotMoved(
        f"{pci}: {what}, but it has {found}",
        "it is tried again; check whether another program binds this function, and look for its address in "
        "the kernel log (dmesg)",
    )


def moved(pci: PciAddress, driver: str) -> FunctionNotMoved:
    """The error for a function that somebody else bound to a driver that is not in the record."""
    return FunctionNotMoved(
        f"another program bound {pci} to {driver}",
        "unbind it from there, or delete the pod; the driver leaves it as it is",
    )
