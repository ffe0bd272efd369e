"""Turns what a check finds wrong with a GPU into verdicts, and these into taints and the kubelet's word."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from driver.devices.device import Taint
from driver.devices.region import Region
from driver.devices.taints import TAINT_DRIVER, TAINT_FAILING
from driver.errors import NvmlError
from driver.hardware.gpu import Problem, Reason
from driver.hardware.gpu_walk import problem_of
from driver.health.verdict import (
    KEYS,
    Effect,
    Health,
    Kind,
    Verdict,
    Word,
    health_of,
    label_value,
    taints_of,
)
from driver.nvml.api import DriverNotLoaded, NvmlCallFailed
from driver.nvml.pci_address import PciAddress


@dataclass(frozen=True, slots=True)
class _Rule:
    kind: Kind
    effect: Effect
    word: Word


_RULES: Mapping[Reason, _Rule] = {
    "lost": _Rule("lost", "NoSchedule", "Unhealthy"),
    "hung": _Rule("unresponsive", "NoSchedule", "Unhealthy"),
    "reset-required": _Rule("needs-reset", "NoSchedule", "Unhealthy"),
    "reset-when-free": _Rule("needs-reset", "NoSchedule", "Healthy"),
    "reboot-required": _Rule("needs-reboot", "NoSchedule", "Unhealthy"),
    "memory-broken": _Rule("memory", "NoSchedule", "Unhealthy"),
    "memory-suspect": _Rule("memory", "NoSchedule", "Healthy"),
    "memory-repairable": _Rule("memory", "None", "Healthy"),
    "failing": _Rule("failing", "NoSchedule", "Unknown"),
    "fabric": _Rule("fabric", "NoSchedule", "Unhealthy"),
    "fabric-degraded": _Rule("fabric", "None", "Healthy"),
    "unlicensed": _Rule("unlicensed", "NoSchedule", "Unhealthy"),
    "error": _Rule("unmonitored", "None", "Unknown"),
}

_NOWHERE = PciAddress(0, 0, 0, 0)


def verdicts(pci: PciAddress, problems: Sequence[Problem]) -> tuple[Verdict, ...]:
    """What the problems of a GPU mean, one verdict each, in their order.

    A GPU that is not well takes no new pod, but pods that run are left alone: whether they still work is
    theirs to find out. A GPU of which something harmless cannot be read, or that works with less than it
    has, is only marked, with effect None. The value is the word for what was found, else the call that
    showed it.
    """
    return tuple(
        Verdict(
            Region(pci),
            rule.kind,
            label_value(problem.value or problem.call),
            rule.effect,
            rule.word,
            problem.message,
        )
        for problem in problems
        for rule in (_RULES[problem.reason],)
    )


def taints(problems: Sequence[Problem]) -> tuple[Taint, ...]:
    """The taints of a device whose GPU has these problems: none when there are none; one for each key."""
    return taints_of(verdicts(_NOWHERE, problems))


def health(problems: Sequence[Problem]) -> Health:
    """The word for the kubelet: Unhealthy where CUDA cannot work, Unknown when something cannot be read."""
    return health_of(verdicts(_NOWHERE, problems))


def taints_of_doubt(problems: Sequence[Problem]) -> tuple[Taint, ...]:
    """The taints of a device that was published before and whose present state is not known."""
    known = taints(problems)
    if any(taint.effect == "NoSchedule" for taint in known):
        return known
    call = label_value(problems[0].call) if problems else ""
    return (Taint(TAINT_FAILING, call, "NoSchedule"), *known)


def taint_of_failure(error: NvmlError) -> Taint:
    """The taint of every device that was offered, while NVML as a whole cannot be asked."""
    if isinstance(error, DriverNotLoaded):
        return Taint(TAINT_DRIVER, label_value(error.call), "NoSchedule")
    rule = _RULES[problem_of(error, keeps_away=True).reason]
    call = label_value(error.call) if isinstance(error, NvmlCallFailed) else ""
    return Taint(KEYS[rule.kind], call, rule.effect)
