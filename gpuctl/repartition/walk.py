"""The walk itself: cordon, evict, tell the commands, wait until the slices show the partitions, uncordon."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from driver.errors import ApiError
from gpuctl.repartition.in_the_way import claims_in_the_way, pods_of
from gpuctl.repartition.node_gpus import newest, node_gpus
from gpuctl.repartition.wanted import still_missing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuctl.cli.cluster_view import ClusterView
    from gpuctl.repartition.node_changes import NodeChanges
    from gpuctl.repartition.wanted import Wanted

LOOK_SECONDS = 2.0
"""So often the cluster is looked at while something is awaited."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a walk ended: ``missing`` is empty when all is as wanted; ``cordoned`` is how the node was left."""

    missing: tuple[str, ...]
    cordoned: bool


class Walk:
    """One walk over one node. ``say`` hears each step; ``pause`` waits so many seconds."""

    def __init__(
        self,
        view: ClusterView,
        changes: NodeChanges,
        node: str,
        wanted: Sequence[Wanted],
        say: Callable[[str], None],
        pause: Callable[[float], object],
    ) -> None:
        self._view = view
        self._changes = changes
        self._node = node
        self._wanted = wanted
        self._say = say
        self._pause = pause
        self._told: set[str] = set()

    def run(self, commands: str, cordoned: bool, timeout_seconds: float) -> Outcome:
        """Walk until all is as wanted, or the time is over; raises ApiError for one that stays.

        ``cordoned`` says that the node was closed before: then it is left so. After a failure, too.
        """
        deadline = time.monotonic() + timeout_seconds
        if not cordoned:
            self._changes.cordon()
            self._say(f"{self._node} is cordoned: no new pods come to it")
        left = self._wait(self._drained, deadline)
        if left:
            return Outcome(left, cordoned=True)
        self._say(f"nobody uses the GPUs any more; now run on {self._node}, as root:\n\n{commands}\n")
        left = self._wait(self._published, deadline)
        if left:
            return Outcome(left, cordoned=True)
        self._say("the slices show the wanted partitions")
        if not cordoned:
            self._changes.uncordon()
            self._say(f"{self._node} is uncordoned")
        return Outcome((), cordoned)

    def _wait(self, look: Callable[[], tuple[str, ...]], deadline: float) -> tuple[str, ...]:
        """Look until there is nothing left to wait for; what is left when the time is over."""
        while True:
            try:
                left = look()
            except ApiError as error:
                if not error.retryable:
                    raise
                left = (error.what,)
            if not left:
                return ()
            for one in left:
                if one not in self._told:
                    self._told.add(one)
                    self._say(f"waiting: {one}")
            rest = deadline - time.monotonic()
            if rest <= 0:
                return left
            self._pause(min(LOOK_SECONDS, rest))

    def _drained(self) -> tuple[str, ...]:
        """Evict the pods that use the GPUs; what still keeps their claims."""
        claims = claims_in_the_way(self._view, self._node, {one.gpu.pci for one in self._wanted})
        left = []
        for pod in pods_of(claims):
            if not pod.ends:
                refused = self._changes.evict(pod)
                left.append(f"pod {pod} cannot be evicted: {refused}" if refused else f"pod {pod} ends")
        return tuple(left) or tuple(f"claim {claim} still has {', '.join(claim.devices)}" for claim in claims)

    def _published(self) -> tuple[str, ...]:
        """What the slices do not show yet."""
        slices = newest(self._view.slices(), self._node)
        if slices is None:
            return (f"the slices of {self._node} are not complete",)
        return still_missing(self._wanted, node_gpus(slices))
