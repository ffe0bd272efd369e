"""What makes a GPU with a taint well again, as far as anything does that can be done from here: a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from driver.devices import taints

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpuctl.fleet.devices import Taint

Remedy = Literal["reset", "reboot", "other"]
"""``reset`` can be done from here. ``reboot``: the machine has to be restarted, which is only said.
``other``: what the taint means says what to do."""

REMEDIES: Mapping[str, Remedy] = {
    taints.TAINT_XID: "reset",
    taints.TAINT_RESET: "reset",
    taints.TAINT_MEMORY: "reset",
    taints.TAINT_UNRESPONSIVE: "reset",
    taints.TAINT_FAILING: "reset",
    taints.TAINT_REBOOT: "reboot",
    taints.TAINT_LOST: "reboot",
    taints.TAINT_FABRIC: "other",
    taints.TAINT_UNLICENSED: "other",
    taints.TAINT_DRIVER: "other",
}
"""The taints of GPUs that are ill. Any other says nothing of the GPU itself: who holds it, who may see it."""


def remedy_of(found: Iterable[Taint]) -> Remedy | None:
    """What the GPU needs that has these taints; None where it is not ill.

    No reset takes the place of a restart, so that leads.
    """
    remedies = {REMEDIES[taint.key] for taint in found if taint.key in REMEDIES}
    order: tuple[Remedy, ...] = ("reboot", "reset", "other")
    return next((one for one in order if one in remedies), None)
