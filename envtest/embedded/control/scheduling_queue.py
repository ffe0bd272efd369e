"""Says which waiting pods are tried now and in which order, as kube-scheduler's queue does.

A pod that found no place backs off for one second, then for two, four, eight and ten. After an event it is
tried during the back-off as well, once no other pod is ahead of it: the scheduler takes pods out of the
back-off queue when it has no others (SchedulerPopFromBackoffQ, on since 1.33). So the back-off only decides
the order. A pod whose attempt ended with an error is left alone until its back-off is over, and needs no
event then. Go: pkg/scheduler/backend/queue.

The real queue asks plugins which events can help a pod (queueing hints). Here every change counts as such an
event. An attempt during the back-off that ends as before does not make the back-off longer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

Object = dict[str, Any]

FIRST_BACK_OFF_SECONDS, LAST_BACK_OFF_SECONDS = 1.0, 10.0
"""podInitialBackoffSeconds and podMaxBackoffSeconds of KubeSchedulerConfiguration, as they are by default."""


@dataclass(frozen=True, slots=True)
class _Tries:
    """The attempts for a pod: refusals, errors in a row, and when it came or was last tried."""

    since: float
    refusals: int = 0
    errors: int = 0

    @property
    def until(self) -> float:
        """When its back-off is over."""
        count = self.errors or self.refusals
        if not count:
            return 0.0
        return self.since + min(FIRST_BACK_OFF_SECONDS * 2.0 ** min(count - 1, 30), LAST_BACK_OFF_SECONDS)


class SchedulingQueue:
    """The waiting pods, by UID. Moments are seconds of one clock. For one thread."""

    def __init__(self) -> None:
        """Know no pod yet."""
        self._tries: dict[str, _Tries] = {}
        self._ordered_at = 0.0

    def order(self, pods: Iterable[Object], moment: float) -> list[Object]:
        """The pods to try, in their order; ``pods`` are all that wait, in the order in which they came.

        First come those that are not backing off, higher priority first, then who waits longest; then the
        others by the end of their back-off. Those in the back-off of an error are left out.
        """
        waiting = list(pods)
        known = {_uid(pod): self._tries.get(_uid(pod)) or _Tries(moment) for pod in waiting}
        self._tries, self._ordered_at = known, moment

        def place(pod: Object) -> tuple[int, int, int, float]:
            tries = known[_uid(pod)]
            # The back-off queue orders by whole seconds, then as the active queue does.
            window = int(tries.until) if tries.until > moment else 0
            return (1 if window else 0, window, -int(pod["spec"].get("priority") or 0), tries.since)

        ready = [pod for pod in waiting if not self._is_erring(known[_uid(pod)], moment)]
        return sorted(ready, key=place)

    def refuse(self, pod: Object, moment: float) -> None:
        """There was no place for the pod."""
        tries = self._tries.get(_uid(pod)) or _Tries(moment)
        if not tries.errors and tries.until > moment:
            return
        self._tries[_uid(pod)] = replace(tries, since=moment, refusals=tries.refusals + 1, errors=0)

    def fail(self, pod: Object, moment: float) -> None:
        """The attempt ended with an error."""
        tries = self._tries.get(_uid(pod)) or _Tries(moment)
        self._tries[_uid(pod)] = replace(tries, since=moment, errors=tries.errors + 1)

    def seconds_to_next(self, moment: float) -> float | None:
        """When the first pod that was left out may be tried; None where none was since ``order``."""
        ends = [one.until for one in self._tries.values() if self._is_erring(one, self._ordered_at)]
        return max(0.0, min(ends) - moment) if ends else None

    def _is_erring(self, tries: _Tries, moment: float) -> bool:
        return bool(tries.errors) and tries.until > moment


def _uid(pod: Object) -> str:
    return str(pod["metadata"]["uid"])
