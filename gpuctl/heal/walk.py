"""The heal itself, from outside: keep new pods away, evict those that are there, reset, see the taints go."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from driver.errors import ApiError
from gpuctl.heal.sick_gpu import is_kept_free, sick_gpu

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from gpuctl.heal.looking import Looking
    from gpuctl.heal.plan import HealPlan
    from gpuctl.heal.steps import HealStep
    from gpuctl.repartition.in_the_way import PodInTheWay

LOOK_SECONDS = 2.0
"""So often the cluster is looked at while something is awaited."""

WELL_SECONDS = 60.0
"""How long the taints of a GPU that was reset are waited for: a look of the controller, and more."""


class Walk:
    """One walk for one GPU. ``evict(pod)`` answers why a pod cannot end now, None where it ends.

    ``say`` hears each step once, ``pause`` waits so many seconds. Raises ApiError for one that stays.
    """

    def __init__(
        self,
        looking: Looking,
        evict: Callable[[PodInTheWay], str | None],
        say: Callable[[str], None],
        pause: Callable[[float], object],
    ) -> None:
        self._looking = looking
        self._evict = evict
        self._say = say
        self._pause = pause
        self._told: set[str] = set()
        self._next_look = 0.0

    def run(self, plan: HealPlan, steps: Iterator[HealStep]) -> tuple[str, ...]:
        """Follow the plugin's steps to the end; why the GPU is not healed, nothing where it is."""
        last: HealStep | None = None
        for step in steps:
            last = step
            if step.step == "waits":
                self._say_once("new pods are kept away from the GPU while this waits")
                self._help(plan, step)
            elif step.step == "resets":
                self._say("nobody uses it any more; it is being reset")
        if last is None or last.step != "healed":
            return (last.message if last else "the plugin said nothing",)
        self._say("it was reset, and answers; waiting until its taints are gone")
        left = self._wait_until_well(plan)
        if not left:
            self._say(f"GPU {plan.gpu.pci} of {plan.node} is well: its taints are gone")
        return left

    def _help(self, plan: HealPlan, step: HealStep) -> None:
        """Evict the pods that have the GPUs, once the scheduler cannot give them to others; say who is
        left."""
        if time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + LOOK_SECONDS
        try:
            slices = self._looking.slices()
            if slices is None or not is_kept_free(slices, plan.addresses):
                self._say_once("waiting: the slices do not keep new pods away yet")
                return
            self._evict_all(plan)
        except ApiError as error:
            if not error.retryable:
                raise
            self._say_once(f"waiting: {error.what}")
            return
        for process in self._looking.named(step):
            self._say_once(f"waiting: {process} uses it")

    def _evict_all(self, plan: HealPlan) -> None:
        claims = self._looking.claims(plan.addresses)
        for claim in claims:
            for pod in claim.pods:
                refused = None if pod.ends else self._evict(pod)
                why = f"cannot be evicted: {refused}" if refused else "ends"
                self._say_once(f"waiting: pod {pod} {why}")
            for user in claim.others:
                self._say_once(f"waiting: {user} uses claim {claim}, which no eviction ends")
            if not claim.pods and not claim.others:
                self._say_once(f"waiting: claim {claim} still has {', '.join(claim.devices)}")

    def _wait_until_well(self, plan: HealPlan) -> tuple[str, ...]:
        """Wait until nothing says that the GPUs are ill; what still does, when that lasts."""
        deadline = time.monotonic() + WELL_SECONDS
        while left := tuple(self._still_ill(plan)):
            rest = deadline - time.monotonic()
            if rest <= 0:
                return left
            self._pause(min(LOOK_SECONDS, rest))
        return ()

    def _still_ill(self, plan: HealPlan) -> Iterable[str]:
        try:
            slices = self._looking.slices()
        except ApiError as error:
            if not error.retryable:
                raise
            return [error.what]
        if slices is None:
            return [f"the slices of {plan.node} are not complete"]
        found = [sick_gpu(slices, pci) for pci in plan.addresses]
        return [f"GPU {gpu.pci} has {one.taint}: {one.meaning}" for gpu in found for one in gpu.illnesses]

    def _say_once(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._say(text)
