"""What was measured, and what is wrong with it: values and pure functions."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

Snapshot = Mapping[str, Counter[str]]
"""What there is on the node, by sort: how often each thing is there."""

COMPARED_AFTER_CLAIMS = 1000
MOST_GROWTH = 1.05
_SAMPLES = 5
"""As many samples are taken together, since one may be taken in the middle of a call."""

OFF_THE_BUS = ("lost", "xid-79")
ONLY_GROWTH = ("threads of", "descriptors of")
"""Of these, fewer than at the start are no fault: pools have threads as they need them."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process of the driver at a time; another ``pid`` is another instance."""

    pid: int
    memory_mib: float


@dataclass(frozen=True, slots=True)
class Sample:
    """The driver's processes by name, and how many claims were prepared so far."""

    processes: Mapping[str, Process]
    claims: int


@dataclass(frozen=True, slots=True)
class Mark:
    """A disturbance: a fault of a GPU (its PCI address), or of the node. ``ended`` is None while it lasts."""

    what: str
    gpu: str | None
    began: float
    ended: float | None = None

    def overlaps(self, began: float, ended: float) -> bool:
        """Whether it was there at some moment between two times."""
        return self.began <= ended and (self.ended is None or self.ended >= began)


def left_over(before: Snapshot, after: Snapshot) -> Iterator[str]:
    """What is there at the end and was not at the start, and the other way round."""
    for sort in sorted(before.keys() | after.keys()):
        then, now = before.get(sort, Counter()), after.get(sort, Counter())
        if more := now - then:
            yield f"{sort}: left over: {_counted(more)}"
        if (fewer := then - now) and not sort.startswith(ONLY_GROWTH):
            yield f"{sort}: missing: {_counted(fewer)}"


def _counted(things: Counter[str]) -> str:
    return ", ".join(f"{one} ({count} times)" if count > 1 else one for one, count in sorted(things.items()))


def compared_memory(samples: Sequence[Sample], name: str) -> tuple[float, float] | None:
    """The memory of a process's last instance in MiB: after its first 1,000 claims, and at the end.

    None if the instance did not prepare that many.
    """
    last = samples[-1].processes[name].pid
    ours = [one for one in samples if name in one.processes and one.processes[name].pid == last]
    late = [one for one in ours if one.claims - ours[0].claims >= COMPARED_AFTER_CLAIMS]
    if len(late) < 2 * _SAMPLES:
        return None
    first, end = (
        statistics.median(one.processes[name].memory_mib for one in part)
        for part in (late[:_SAMPLES], late[-_SAMPLES:])
    )
    return first, end


def grown(samples: Sequence[Sample], names: Sequence[str]) -> Iterator[str]:
    """The processes whose memory grew by more than 5 % after their first 1,000 claims."""
    for name in names:
        compared = compared_memory(samples, name)
        if compared is not None and compared[1] > compared[0] * MOST_GROWTH:
            yield f"memory of the {name} grew from {compared[0]:.1f} to {compared[1]:.1f} MiB"


def may_fail(marks: Sequence[Mark], gpus: frozenset[str], began: float, ended: float) -> bool:
    """Whether a pod with these GPUs may fail in this time: one of them had a fault."""
    return any(one.gpu in gpus and one.overlaps(began, ended) for one in marks)


def may_be_refused(marks: Sequence[Mark], gpu: str, at: float, grace_seconds: float) -> bool:
    """Whether a call for a GPU may be refused at a time: something of the node or of it was disturbed.

    ``grace_seconds`` is how long the driver may take to see that it is over.
    """
    # While a GPU is off the bus, nvidia-smi sets the time-slice of no other either.
    return any(
        (one.gpu in (None, gpu) or one.what in OFF_THE_BUS) and one.overlaps(at - grace_seconds, at)
        for one in marks
    )
