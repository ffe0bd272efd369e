"""What an event says about a GPU: how bad it is, and what follows from it under an admin's rules."""

from __future__ import annotations

from dataclasses import dataclass

from driver.devices.region import Region
from driver.health.health_rules import HealthRules
from driver.health.verdict import Effect, Kind, Verdict, Word
from driver.health.xids import XIDS, XidClass, meaning_of
from driver.nvml.health.calls import GpuEvent

OPERATIONAL = "event"
"""The value of a taint for an event that carries no XID."""

XID_VALUE = "xid-"
"""What the value of the taint begins with that says what an XID asks for."""

_WAYS_OUT: dict[XidClass, str] = {
    "contained": "pods that run on it go on; reset it when it is free (gpuctl heal)",
    "needs-reset": "end its pods and reset it (gpuctl heal)",
    "needs-reboot": "drain the node and restart the machine",
}


@dataclass(frozen=True, slots=True)
class Incident:
    """A fault that the NVIDIA driver reported and that cannot be asked for: it stays until something ends it.

    ``xid`` is None for an event without one. ``told`` is the class that follows from what the NVIDIA driver
    reported beside the XID, None where it reported nothing.
    """

    scope: Region
    xid: int | None
    told: XidClass | None = None

    def xid_class(self, rules: HealthRules) -> XidClass:
        """How bad it is under these rules."""
        return rules.class_of(self.xid, self.told)


def told_class(event: GpuEvent) -> XidClass | None:
    """How bad the NVIDIA driver says that it is (R615 and newer); None where it says nothing of it.

    What a program did stays its own fault, as long as it is contained and the GPU goes on. A machine that
    has to be restarted is known by the XID alone: the severity does not tell it from a reset.
    """
    if event.severity is None:
        return None
    known = None if event.xid is None else XIDS.get(event.xid)
    usual = None if known is None else known.xid_class
    if event.recovered:
        return "application"
    if event.severity in ("informational", "corrected"):
        return "application" if usual == "application" else "informational"
    if event.severity == "fatal" or event.contained is False:
        return "needs-reboot" if usual == "needs-reboot" else "needs-reset"
    if event.xid is None:
        return "informational"
    return usual if usual in ("application", "informational") else "contained"


def described(xid: int | None) -> str:
    """The fault in words: ``XID 95 (a memory error was not contained…)``."""
    return "a fault without an XID" if xid is None else f"XID {xid} ({meaning_of(xid).meaning})"


def verdicts_of(incident: Incident, rules: HealthRules) -> tuple[Verdict, ...]:
    """What the incident means under these rules; nothing where the GPU is well for all that it says.

    One that keeps pods away has the code of its XID as a taint, as with NVIDIA's own driver, and beside it
    what has to be done, where that is known.
    """
    found = incident.xid_class(rules)
    if found not in _WAYS_OUT:
        return ()
    word: Word = "Healthy" if found == "contained" else "Unhealthy"
    message = f"{described(incident.xid)} on {_where(incident.scope)}"

    def verdict(kind: Kind, value: str) -> Verdict:
        effect: Effect = rules.effect(kind, "NoSchedule")
        return Verdict(incident.scope, kind, value, effect, word, message, _WAYS_OUT[found])

    value = OPERATIONAL if incident.xid is None else f"{XID_VALUE}{incident.xid}"
    both = [] if incident.xid is None else [verdict("xid", str(incident.xid))]
    if found == "needs-reset":
        both.append(verdict("needs-reset", value))
    elif found == "needs-reboot":
        both.append(verdict("needs-reboot", value))
    return tuple(both)


def _where(scope: Region) -> str:
    if scope.span is None:
        return f"GPU {scope.pci}"
    return f"the partition of GPU {scope.pci} at memory slice {scope.span.start}"
