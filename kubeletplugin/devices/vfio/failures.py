"""What can go wrong with a function on its way to vfio and back, in words for people.

All of it can be repeated as it was: the record says how far it came.
"""

from __future__ import annotations

from collections.abc import Sequence

from driver.errors import ClaimBlocked
from driver.nvml.pci_address import PciAddress
from kubeletplugin.devices.vfio.users import User, named, shown


class FunctionInDoubt(ClaimBlocked):
    """The kernel has not ended yet what it was told to do with a function; it may still do it."""


class FunctionInUse(ClaimBlocked):
    """A process has a function open, so its driver would not let go of it."""


class FunctionNotMoved(ClaimBlocked):
    """The kernel refused a change of a function, or did something else."""


def in_use(pci: PciAddress, driver: str, users: Sequence[User]) -> FunctionInUse:
    """For a function that would have to be waited for."""
    who, told = shown(users)
    return FunctionInUse(
        f"{pci} cannot be taken from {driver or 'its user'}: it is in use",
        f"it is tried again; end {who}",
        for_log=told,
    )


def in_doubt(pci: PciAddress, what: str, seconds: float, users: Sequence[User]) -> FunctionInDoubt:
    """For a function that the kernel still has the lock of."""
    return FunctionInDoubt(
        f"{pci} is in doubt: the kernel has not ended {what} within {seconds:g} s",
        "it goes on by itself once nothing uses the function any more; look for its address in the kernel "
        "log (dmesg)",
        for_log=f"in use by {named(users)}" if users else "",
    )


def refused(pci: PciAddress, what: str, error: OSError) -> FunctionNotMoved:
    """For a write that the kernel answered with a number."""
    return FunctionNotMoved(
        f"{pci}: {what} failed: {error.strerror or error}",
        "it is tried again; the kernel log (dmesg) says why, where the driver told",
    )


def not_as_told(pci: PciAddress, what: str, found: str) -> FunctionNotMoved:
    """For a write that the kernel took, after which it shows something else."""
    return FunctionNotMoved(
        f"{pci}: {what}, but it has {found}",
        "it is tried again; see whether another program binds this function, and what the kernel log (dmesg) "
        "says of it",
    )


def moved(pci: PciAddress, driver: str) -> FunctionNotMoved:
    """For a function that somebody else bound to a driver that the record does not know."""
    return FunctionNotMoved(
        f"{pci} was bound to {driver} by somebody else",
        "take it back from there, or delete the pod; it is left as it is",
    )
