"""What an event of the NVIDIA driver means for a GPU: how bad it is, and which taints follow by the rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from driver.devices.device import Taint
from driver.devices.region import Region
from driver.devices.taints import TAINT_XID
from driver.health.health_rules import HealthRules
from driver.health.remedies import xid_remedy
from driver.health.verdict import KEYS, Effect, Kind, Verdict, Word
from driver.health.xids import MOST_XID, XIDS, XidClass
from driver.nvml.health.calls import GpuEvent

_OPERATIONAL = "event"
"""The value of a taint for an event without an XID."""

_XID_VALUE = "xid-"
"""The prefix of the value of a taint that says what an XID requires, such as a reset."""

_REQUIRED: Mapping[XidClass, Kind | None] = {
    "contained": None,
    "needs-reset": "needs-reset",
    "needs-reboot": "needs-reboot",
}
"""The classes that taint devices, each with the kind of its second taint."""

_CLASSES: Mapping[str, XidClass] = {KEYS[kind]: each for each, kind in _REQUIRED.items() if kind}


@dataclass(frozen=True, slots=True)
class Incident:
    """A fault that the NVIDIA driver reported once and that no NVML call returns later.

    It counts until something ends it. ``xid`` is None for an event without an XID. ``reported_class`` follows
    from what the NVIDIA driver reported beside the XID; None if it reported nothing.
    """

    scope: Region
    xid: int | None
    reported_class: XidClass | None = None

    def xid_class(self, rules: HealthRules) -> XidClass:
        """How bad it is by these rules."""
        return rules.class_of(self.xid, self.reported_class)


def reported_class(event: GpuEvent) -> XidClass | None:
    """How bad the event is by the report of the NVIDIA driver (R615 and newer); None if it reports nothing.

    A fault that a program caused stays the program's own, as long as it is contained and the GPU goes on.
    """
    # Only structured events have a severity; the older ones carry nothing but the XID.
    if event.severity is None:
        return None
    known = None if event.xid is None else XIDS.get(event.xid)
    usual = None if known is None else known.xid_class
    # The NVIDIA driver has dealt with it already.
    if event.recovered:
        return "application"
    if event.severity in ("informational", "corrected"):
        return "application" if usual == "application" else "informational"
    # contained is False if the fault spread beyond the work that caused it, and None if that is not known.
    # Both a reset and a restart of the machine are "fatal"; only the XID tells them apart.
    if event.severity == "fatal" or event.contained is False:
        return "needs-reboot" if usual == "needs-reboot" else "needs-reset"
    if event.xid is None:
        return "informational"
    return usual if usual in ("application", "informational") else "contained"


def described(xid: int | None) -> str:
    """The fault in words: ``XID 95 (a memory error was not contained…)``."""
    return xid_remedy(xid).meaning


def verdicts_of(incident: Incident, rules: HealthRules) -> tuple[Verdict, ...]:
    """The verdicts that follow from the incident by these rules; none if it does not concern the GPU's
    health.

    A fault that keeps pods away gives a taint with the XID, as with NVIDIA's own driver, and if a reset or a
    restart is required, a second taint that says so.
    """
    found = incident.xid_class(rules)
    if found not in _REQUIRED:
        return ()
    # After a contained fault the pods that still run go on, so the kubelet gets no bad word about the device.
    word: Word = "Healthy" if found == "contained" else "Unhealthy"
    remedy = xid_remedy(incident.xid, found)
    message = f"{remedy.meaning} on {_where(incident.scope)}"

    def verdict(kind: Kind, value: str) -> Verdict:
        effect: Effect = rules.effect(kind, "NoSchedule")
        return Verdict(incident.scope, kind, value, effect, word, message, remedy.todo)

    value = _OPERATIONAL if incident.xid is None else f"{_XID_VALUE}{incident.xid}"
    first = () if incident.xid is None else (verdict("xid", str(incident.xid)),)
    required = _REQUIRED[found]
    return first if required is None else (*first, verdict(required, value))


def incidents_of(scope: Region, taints: Iterable[Taint]) -> tuple[Incident, ...]:
    """The incidents of which these taints of a device tell: what ``verdicts_of`` has made, read back.

    Of several that have the same taint, one hides the others. That one is at least as bad.
    """
    classes: dict[int | None, XidClass] = {}
    for taint in taints:
        required = _CLASSES.get(taint.key)
        if taint.key == TAINT_XID and (xid := _code(taint.value)):
            classes.setdefault(xid, "contained")
        elif required is not None and taint.value == _OPERATIONAL:
            classes[None] = required
        elif required is not None and (xid := _code(taint.value.removeprefix(_XID_VALUE))):
            classes[xid] = required
    return tuple(Incident(scope, xid, xid_class) for xid, xid_class in classes.items())


def _code(text: str) -> int:
    """The XID in the value of a taint, 0 if it is none."""
    # int() accepts other digits than ASCII and spaces, and another driver may have written the taint.
    return int(text) if text.isascii() and text.isdigit() and int(text) <= MOST_XID else 0


def _where(scope: Region) -> str:
    if scope.span is None:
        return f"GPU {scope.pci}"
    return f"the partition of GPU {scope.pci} at memory slice {scope.span.start}"
