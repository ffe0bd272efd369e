"""One rule set for all that can be wrong with a GPU: problems that a check finds, and incidents, which the
NVIDIA driver reports once, become verdicts. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from driver.devices.device import Taint
from driver.devices.region import Region
from driver.devices.taints import TAINT_DRIVER, TAINT_FAILING, TAINT_XID
from driver.errors import NvmlError
from driver.hardware.gpu import Problem, Reason
from driver.hardware.gpu_walk import problem_of
from driver.health.health_rules import HealthRules
from driver.health.remedies import xid_remedy
from driver.health.verdict import KEYS, Effect, Kind, Verdict, Word, label_value, taints_of
from driver.health.xids import MOST_XID, XIDS, XidClass
from driver.nvml.api import DriverNotLoaded, NvmlCallFailed
from driver.nvml.health.calls import GpuEvent
from driver.nvml.pci_address import PciAddress


@dataclass(frozen=True, slots=True)
class _Rule:
    kind: Kind
    effect: Effect
    word: Word


# "Healthy" is for problems that keep new pods away and let running pods go on, and "Unknown" for GPUs of
# which it is not known whether CUDA works.
_RULES: Mapping[Reason, _Rule] = {
    "lost": _Rule("lost", "NoSchedule", "Unhealthy"),
    "hung": _Rule("unresponsive", "NoSchedule", "Unhealthy"),
    # The recovery actions of NVML (field 230).
    "reset-required": _Rule("needs-reset", "NoSchedule", "Unhealthy"),
    "reset-when-free": _Rule("needs-reset", "NoSchedule", "Healthy"),
    "reboot-required": _Rule("needs-reboot", "NoSchedule", "Unhealthy"),
    # No spare row is left, or nothing repairs the memory.
    "memory-broken": _Rule("memory", "NoSchedule", "Unhealthy"),
    # A bad page stays in use until the next reset. A bad row is out of use already, and a reset replaces it.
    "memory-suspect": _Rule("memory", "NoSchedule", "Healthy"),
    "memory-repairable": _Rule("memory", "None", "Healthy"),
    "failing": _Rule("failing", "NoSchedule", "Unknown"),
    # On a GPU with NVSwitches CUDA does not start before the fabric is up.
    "fabric": _Rule("fabric", "NoSchedule", "Unhealthy"),
    "fabric-degraded": _Rule("fabric", "None", "Healthy"),
    "unlicensed": _Rule("unlicensed", "NoSchedule", "Unhealthy"),
    "error": _Rule("unmonitored", "None", "Unknown"),
}

# Taints and health do not depend on the address of the GPU.
_ANY_GPU = PciAddress(0, 0, 0, 0)
_NO_RULES = HealthRules()


def verdicts_of_problems(
    pci: PciAddress, problems: Sequence[Problem], rules: HealthRules = _NO_RULES
) -> tuple[Verdict, ...]:
    """One verdict for each problem of a GPU by these rules, in their order.

    A sick GPU gets no new pod, and running pods are left alone: they find out themselves whether they still
    work. If something harmless cannot be read, or the GPU works with reduced capacity, it only gets a taint
    with effect None.
    """
    return tuple(
        Verdict(
            Region(pci),
            rule.kind,
            # The word for what was found, else the NVML call that failed.
            label_value(problem.value or problem.call),
            rules.effect(rule.kind, rule.effect),
            rule.word,
            problem.message,
        )
        for problem in problems
        for rule in (_RULES[problem.reason],)
    )


def taints_of_doubt(problems: Sequence[Problem], rules: HealthRules = _NO_RULES) -> tuple[Taint, ...]:
    """The taints of a device that was published before and whose present state is not known."""
    known = taints_of(verdicts_of_problems(_ANY_GPU, problems, rules))
    # A device in doubt must not get a new pod, even if the problem alone would not keep pods away.
    if any(taint.effect != "None" for taint in known):
        return known
    call = label_value(problems[0].call) if problems else ""
    return (Taint(TAINT_FAILING, call, "NoSchedule"), *known)


def taint_of_failure(error: NvmlError) -> Taint:
    """The taint of all offered devices while no NVML call works at all."""
    # Its own key: a driver upgrade is not a fault of the GPUs.
    if isinstance(error, DriverNotLoaded):
        return Taint(TAINT_DRIVER, label_value(error.call), "NoSchedule")
    rule = _RULES[problem_of(error, keeps_away=True).reason]
    call = label_value(error.call) if isinstance(error, NvmlCallFailed) else ""
    return Taint(KEYS[rule.kind], call, rule.effect)


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
