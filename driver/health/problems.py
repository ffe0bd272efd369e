"""Turns the problems that a check finds into verdicts, then into taints and the health for the kubelet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from driver.devices.device import Taint
from driver.devices.region import Region
from driver.devices.taints import TAINT_DRIVER, TAINT_FAILING
from driver.errors import NvmlError
from driver.hardware.gpu import Problem, Reason
from driver.hardware.gpu_walk import problem_of
from driver.health.health_rules import HealthRules
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


def verdicts(
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


def health(problems: Sequence[Problem]) -> Health:
    """The health for the kubelet: Unhealthy if CUDA cannot work, Unknown if something cannot be read."""
    return health_of(verdicts(_ANY_GPU, problems))


def taints_of_doubt(problems: Sequence[Problem], rules: HealthRules = _NO_RULES) -> tuple[Taint, ...]:
    """The taints of a device that was published before and whose present state is not known."""
    known = taints_of(verdicts(_ANY_GPU, problems, rules))
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
