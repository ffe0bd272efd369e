"""What is wrong with a part of a GPU, and how it is reported: as a taint, and as health for the kubelet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from driver.devices.device import Device, Taint
from driver.devices.region import Region, overlap
from driver.devices.taints import (
    TAINT_FABRIC,
    TAINT_FAILING,
    TAINT_LOST,
    TAINT_MEMORY,
    TAINT_REBOOT,
    TAINT_RESET,
    TAINT_UNLICENSED,
    TAINT_UNMONITORED,
    TAINT_UNRESPONSIVE,
    TAINT_XID,
)

Kind = Literal[
    "lost",
    "unresponsive",
    "xid",
    "needs-reset",
    "needs-reboot",
    "memory",
    "failing",
    "fabric",
    "unlicensed",
    "unmonitored",
]
"""What can be wrong; each has a taint key."""

Effect = Literal["None", "NoSchedule", "NoExecute"]
"""``None`` only informs, ``NoSchedule`` keeps new pods away, ``NoExecute`` also evicts running pods."""

Word = Literal["Healthy", "Unhealthy", "Unknown"]

_WORST_FIRST: tuple[Word, ...] = ("Unhealthy", "Unknown", "Healthy")

KEYS: Mapping[Kind, str] = {
    "lost": TAINT_LOST,
    "unresponsive": TAINT_UNRESPONSIVE,
    "xid": TAINT_XID,
    "needs-reset": TAINT_RESET,
    "needs-reboot": TAINT_REBOOT,
    "memory": TAINT_MEMORY,
    "failing": TAINT_FAILING,
    "fabric": TAINT_FABRIC,
    "unlicensed": TAINT_UNLICENSED,
    "unmonitored": TAINT_UNMONITORED,
}

KIND_OF_TAINT: Mapping[str, Kind] = {key: kind for kind, key in KEYS.items()}

REASONS: Mapping[Kind, str] = {
    "lost": "GpuLost",
    "unresponsive": "Unresponsive",
    "xid": "Xid",
    "needs-reset": "NeedsReset",
    "needs-reboot": "NeedsReboot",
    "memory": "Memory",
    "failing": "Failing",
    "fabric": "Fabric",
    "unlicensed": "Unlicensed",
    "unmonitored": "Unmonitored",
}
"""The reason of a condition (metav1 Condition) for each kind."""

EFFECTS: tuple[Effect, ...] = get_args(Effect)
"""The effects, the weakest first."""

_MESSAGE_BYTES = 1024
"""The kubelet cuts a longer message (DRAResourceHealth)."""

_ELLIPSIS = "..."


@dataclass(frozen=True, slots=True)
class Verdict:
    """Something is wrong with ``scope``, a GPU or a part of it.

    ``value`` is the value of the taint, a label value, which may be empty. ``message`` and ``way_out`` are
    for people. ``word`` is for the kubelet: Unhealthy if CUDA does not work, Unknown if that is not known,
    Healthy if running pods go on.
    """

    scope: Region
    kind: Kind
    value: str
    effect: Effect
    word: Word
    message: str
    way_out: str = ""

    @property
    def taint(self) -> Taint:
        """The taint of a device that is hit."""
        return Taint(KEYS[self.kind], self.value, self.effect)

    @property
    def text(self) -> str:
        """Message and way out, for people."""
        return f"{self.message}: {self.way_out}" if self.way_out else self.message


@dataclass(frozen=True, slots=True)
class Health:
    """The health of a device in the kubelet's health stream; ``message`` is for people, at most 1024 bytes.

    ``reason`` is one word for the worst thing that is known, empty if nothing is wrong.
    """

    word: Word
    message: str = ""
    reason: str = ""


def taints_of(verdicts: Sequence[Verdict]) -> tuple[Taint, ...]:
    """The taints of a device that is hit by all of these: one for each key, with the strongest effect."""
    return merged(verdict.taint for verdict in verdicts)


def merged(taints: Iterable[Taint]) -> tuple[Taint, ...]:
    """One taint for each key, the first one with the strongest effect, in a fixed order.

    Taints that are not about the health of a GPU are kept as they are, behind the others.
    """
    # A stored slice is compared with the wanted one, so the same verdicts must give the same list of taints.
    best: dict[str, Taint] = {}
    others: list[Taint] = []
    for taint in taints:
        known = best.get(taint.key)
        if taint.key not in KIND_OF_TAINT:
            others.append(taint)
        elif known is None or EFFECTS.index(taint.effect) > EFFECTS.index(known.effect):
            best[taint.key] = taint
    return (*(best[key] for key in KIND_OF_TAINT if key in best), *others)


def with_verdicts(devices: Sequence[Device], verdicts: Sequence[Verdict]) -> tuple[Device, ...]:
    """The devices, each with the taints of the verdicts whose scope it overlaps."""
    return tuple(
        replace(device, taints=merged((*taints, *device.taints)))
        if (taints := [each.taint for each in verdicts if overlap(device.regions, (each.scope,))])
        else device
        for device in devices
    )


def health_of(verdicts: Sequence[Verdict]) -> Health:
    """The health of a device that is hit by all of these: the worst word, with all messages."""
    if not verdicts:
        return Health("Healthy")
    worst = min(verdicts, key=lambda verdict: _WORST_FIRST.index(verdict.word))
    message = "; ".join(dict.fromkeys(verdict.message for verdict in verdicts))
    return Health(worst.word, _cut(message), REASONS[worst.kind])


def worse(one: Health, other: Health) -> Health:
    """The worse of two healths of one device, with the messages of both."""
    worst = min(one, other, key=lambda health: (_WORST_FIRST.index(health.word), not health.reason))
    message = "; ".join(dict.fromkeys(text for text in (one.message, other.message) if text))
    return replace(worst, message=_cut(message))


def label_value(text: str) -> str:
    """The text as a label value: letters, digits, ``-_.`` inside, at most 63 characters."""
    # The API server would refuse the whole slice for a taint with another value.
    kept = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "-" for c in text)
    return kept.strip("-_.")[:63].rstrip("-_.")


def _cut(text: str) -> str:
    encoded = text.encode()
    if len(encoded) <= _MESSAGE_BYTES:
        return text
    # "ignore" drops a character that the cut leaves incomplete.
    return encoded[: _MESSAGE_BYTES - len(_ELLIPSIS)].decode(errors="ignore") + _ELLIPSIS
