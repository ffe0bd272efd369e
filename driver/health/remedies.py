"""What each taint means and what helps: one table for events, commands, the page and docs/health.md."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from driver.devices import taints
from driver.health.xids import XidClass, meaning_of

Action = Literal["reboot", "repair", "reset", "other"]
"""What makes a GPU well: a restart of the machine, the repair or replacement of hardware, a reset, or what
the remedy says. The first of these comes first: it makes the others needless, or they do not help without."""

_ORDER: tuple[Action | None, ...] = ("reboot", "repair", "reset", "other", None)


class HasKeyAndValue(Protocol):
    """A taint, whoever read it."""

    @property
    def key(self) -> str:
        """Its key, with the driver's domain."""

    @property
    def value(self) -> str:
        """Its value, which may be empty."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """What a taint means, and what to do, for people; ``action`` is None if the GPU itself is well."""

    meaning: str
    todo: str
    action: Action | None

    def __str__(self) -> str:
        return f"{self.meaning}: {self.todo}"


_REPLACE = "have the board replaced; a reset does not help"
_REBOOT = "drain the node and restart the machine; a reset does not help"
_WHEN_FREE = "running pods continue; reset it when it is free (`gpuctl heal`)"
_HEAL = "end its pods and reset it (`gpuctl heal`)"
_LOGS = "read the controller's log and the kernel log"

BY_KEY: Mapping[str, Remedy] = {
    taints.TAINT_LOST: Remedy("the GPU fell off the bus", _REBOOT, "reboot"),
    taints.TAINT_UNRESPONSIVE: Remedy(
        "an NVML call hangs", "look for Xid 119 or 120 in the kernel log; a reset may help", "reset"
    ),
    taints.TAINT_XID: Remedy("the NVIDIA driver reported a fault", _WHEN_FREE, "reset"),
    taints.TAINT_RESET: Remedy("the GPU needs a reset", _HEAL, "reset"),
    taints.TAINT_REBOOT: Remedy("the machine needs a restart", _REBOOT, "reboot"),
    taints.TAINT_MEMORY: Remedy("the memory has errors", _WHEN_FREE, "reset"),
    taints.TAINT_FAILING: Remedy("an NVML call fails", f"{_LOGS}; a reset may help", "reset"),
    taints.TAINT_FABRIC: Remedy(
        "the NVLink fabric is not ready or slower", "if this lasts, check the fabric manager", "other"
    ),
    taints.TAINT_UNLICENSED: Remedy("the vGPU has no license", "check nvidia-gridd and its log", "other"),
    taints.TAINT_DRIVER: Remedy("the NVIDIA driver is not loaded", "install or load it", "other"),
    taints.TAINT_UNMONITORED: Remedy(
        "something about the GPU cannot be read", "read the controller's log", None
    ),
    taints.TAINT_CHANGING: Remedy(
        "the devices in this place will change", "end the claims that have the old ones", None
    ),
    taints.TAINT_DEVICE_PLUGIN: Remedy(
        "a device plugin on the node offers the same GPUs", "remove it from the node", None
    ),
    taints.TAINT_BLOCKED: Remedy("something occupies the device's place", "the plugin's log names it", None),
}

BY_VALUE: Mapping[tuple[str, str], Remedy] = {
    (taints.TAINT_BLOCKED, taints.HELD_BY_CLAIM): Remedy(
        "a claim still has another device in this place", "end that claim to get this one", None
    ),
    (taints.TAINT_MEMORY, "unrepairable"): Remedy(
        "the memory has errors that nothing repairs", _REPLACE, "repair"
    ),
    (taints.TAINT_MEMORY, "rows-failed"): Remedy(
        "a bad row of the memory could not be replaced", _REPLACE, "repair"
    ),
    (taints.TAINT_MEMORY, "page-pending"): Remedy(
        "a bad page of the memory stays in use until a reset", _WHEN_FREE, "reset"
    ),
    (taints.TAINT_MEMORY, "rows-pending"): Remedy(
        "a bad row of the memory is replaced at the next reset", _WHEN_FREE, "reset"
    ),
    (taints.TAINT_RESET, "drain-and-reset"): Remedy("the GPU needs a reset", _WHEN_FREE, "reset"),
    (taints.TAINT_FABRIC, "drain-p2p"): Remedy(
        "work between this GPU and others has to end", "end the pods that use several GPUs", "other"
    ),
    (taints.TAINT_FABRIC, "recover-imex"): Remedy(
        "the IMEX domain has to be recovered", "restart nvidia-imex on its nodes", "other"
    ),
}
"""What only holds for one value of a key."""

_CHECKED_BY_PEOPLE = frozenset({54, 142, 159})
"""XIDs of cables, engines and links that no reset and no restart mends."""

_BY_CLASS: Mapping[XidClass, tuple[str, Action]] = {
    "needs-reset": (_HEAL, "reset"),
    "needs-reboot": (_REBOOT, "reboot"),
}


def xid_remedy(xid: int | None, xid_class: XidClass | None = None) -> Remedy:
    """The remedy of an XID, by its class in this case, else by the table of XIDs; None is no XID."""
    if xid is None:
        meaning, known = "a fault without an XID", None
    else:
        meaning, known = f"XID {xid} ({meaning_of(xid).meaning})", meaning_of(xid).xid_class
    todo, action = _BY_CLASS.get(xid_class or known or "contained", (_WHEN_FREE, "reset"))
    if xid in _CHECKED_BY_PEOPLE and action == "reset":
        return Remedy(
            meaning, "running pods continue; have the hardware checked, a reset does not help", "repair"
        )
    return Remedy(meaning, todo, action)


def remedy_of(taint: HasKeyAndValue) -> Remedy | None:
    """The remedy of a taint; None for one that this driver does not set."""
    if taint.key == taints.TAINT_XID and taint.value.isascii() and taint.value.isdigit():
        return xid_remedy(int(taint.value[:9]))
    return BY_VALUE.get((taint.key, taint.value)) or BY_KEY.get(taint.key)


def leading(found: Iterable[HasKeyAndValue]) -> Remedy | None:
    """The remedy that comes first for a GPU with these taints; None without a taint of this driver."""
    # An XID says more than the taint that follows from it.
    ordered = sorted(found, key=lambda one: one.key != taints.TAINT_XID)
    remedies = [remedy for one in ordered if (remedy := remedy_of(one)) is not None]
    return min(remedies, key=lambda one: _ORDER.index(one.action), default=None)
