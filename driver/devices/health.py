"""The one rule set from a GPU's problems to taints in its slice and to a word for the kubelet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from driver.devices.device import Taint
from driver.devices.taints import (
    TAINT_DRIVER,
    TAINT_FABRIC,
    TAINT_FAILING,
    TAINT_LOST,
    TAINT_RESET,
    TAINT_UNLICENSED,
    TAINT_UNMONITORED,
    TAINT_UNRESPONSIVE,
)
from driver.errors import NvmlError
from driver.hardware.gpu_walk import problem_of
from driver.nvml.api import DriverNotLoaded, NvmlCallFailed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from driver.hardware.gpu import Problem, Reason

_Effect = Literal["None", "NoSchedule"]

_TAINTS: dict[Reason, tuple[str, _Effect]] = {
    "lost": (TAINT_LOST, "NoSchedule"),
    "hung": (TAINT_UNRESPONSIVE, "NoSchedule"),
    "reset-required": (TAINT_RESET, "NoSchedule"),
    "failing": (TAINT_FAILING, "NoSchedule"),
    "fabric": (TAINT_FABRIC, "NoSchedule"),
    "unlicensed": (TAINT_UNLICENSED, "NoSchedule"),
    "error": (TAINT_UNMONITORED, "None"),
}
_UNHEALTHY: tuple[Reason, ...] = ("lost", "hung", "reset-required", "fabric", "unlicensed")

_MESSAGE_BYTES = 1024
"""The kubelet cuts what is longer (DRAResourceHealth, message)."""

_ELLIPSIS = "..."


@dataclass(frozen=True, slots=True)
class Health:
    """What the kubelet's health stream says of a device; ``message`` is for people, at most 1024 bytes."""

    word: Literal["Healthy", "Unhealthy", "Unknown"]
    message: str = ""


def taints(problems: Sequence[Problem]) -> tuple[Taint, ...]:
    """The taints of a device whose GPU has these problems: none when there are none; one for each key.

    A GPU that is not well takes no new pod, but pods that run are left alone: whether they still work is
    theirs to find out. A GPU of which something harmless cannot be read is only marked, with effect None.
    The value of a taint is the call that showed it.
    """
    found = {
        problem.reason: problem.call for problem in reversed(problems)
    }  # reversed: the first problem of a kind names the call
    return tuple(
        Taint(key, _label_value(found[reason]), effect)
        for reason, (key, effect) in _TAINTS.items()
        if reason in found
    )


def taints_of_doubt(problems: Sequence[Problem]) -> tuple[Taint, ...]:
    """The taints of a device that was published before and of which nobody knows whether it is still so."""
    known = taints(problems)
    if any(taint.effect == "NoSchedule" for taint in known):
        return known
    call = _label_value(problems[0].call) if problems else ""
    return (Taint(TAINT_FAILING, call, "NoSchedule"), *known)


def taint_of_failure(error: NvmlError) -> Taint:
    """The taint of every device that was offered, while NVML as a whole cannot be asked."""
    if isinstance(error, DriverNotLoaded):
        return Taint(TAINT_DRIVER, _label_value(error.call), "NoSchedule")
    key, effect = _TAINTS[problem_of(error, keeps_away=True).reason]
    return Taint(key, _label_value(error.call) if isinstance(error, NvmlCallFailed) else "", effect)


def health(problems: Sequence[Problem]) -> Health:
    """The word for the kubelet: Unhealthy where CUDA cannot work, Unknown when something cannot be read."""
    if not problems:
        return Health("Healthy")
    message = _cut("; ".join(problem.message for problem in problems))
    if any(problem.reason in _UNHEALTHY for problem in problems):
        return Health("Unhealthy", message)
    return Health("Unknown", message)


def _label_value(text: str) -> str:
    """The text as a label value: letters, digits, ``-_.`` inside, at most 63 characters."""
    kept = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "-" for c in text)
    return kept.strip("-_.")[:63].rstrip("-_.")


def _cut(text: str) -> str:
    encoded = text.encode()
    if len(encoded) <= _MESSAGE_BYTES:
        return text
    return encoded[: _MESSAGE_BYTES - len(_ELLIPSIS)].decode(errors="ignore") + _ELLIPSIS
