"""Carries a decision out: reads once more whether it still holds, then evicts the victims one by one.

Nothing is evicted for a pod that no longer waits, and no pod that is another one by now. The number of
evictions per minute is limited.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from driver.errors import ApiError
from driver.kube.client import KubeClient
from driver.kube.errors import Conflict, NotFound, TooManyRequests
from driver.kube.evictions import evict_pod
from driver.kube.paths import claim_path, pod_path

Object = dict[str, Any]


class Allowance:
    """How many evictions are left now. It fills up within a minute, to ``per_minute`` at most."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_minute = per_minute
        self._clock = clock
        self._left, self._at = float(per_minute), clock()

    def wait_seconds(self, evictions: int) -> float:
        """How long to wait until so many evictions may begin; 0 if they may now.

        A set with more pods than the limit may begin when nothing else was evicted for a minute.
        """
        now = self._clock()
        self._left = min(self._per_minute, self._left + (now - self._at) * self._per_minute / 60)
        self._at = now
        missing = min(evictions, self._per_minute) - self._left
        return max(0.0, missing * 60 / self._per_minute)

    def take(self) -> None:
        """Count an eviction."""
        # Below zero after a set with more pods than the limit: the next one waits for so much longer.
        self._left -= 1


@dataclass(slots=True)
class Carried:
    """How far a decision was carried out: who was evicted, and why it stopped before the end, if it did.

    ``refused`` is set if the API server refuses an eviction, as a budget makes it.
    """

    evicted: list[Object] = field(default_factory=list)
    stopped: str = ""
    refused: bool = False
    error: ApiError | None = None


class Evictor:
    """Evicts the victims of decisions while ``may_act`` says so."""

    def __init__(self, client: KubeClient, may_act: Callable[[], bool], allowance: Allowance) -> None:
        self._client = client
        self._may_act = may_act
        self.allowance = allowance

    def carry_out(self, pod: Object, claims: Sequence[Object], victims: Sequence[Object]) -> Carried:
        """Evict the victims for a pod that waits with these claims without devices. Raises nothing."""
        done = Carried()
        for victim in victims:
            if not self._may_act():
                done.stopped = "this replica does not have the lease any more"
                break
            try:
                # Before each eviction: others may have made room, or the pod may be gone meanwhile.
                done.stopped = self._changed(pod, claims) or self._victim_changed(victim)
                if done.stopped:
                    break
                metadata = victim["metadata"]
                evict_pod(self._client, metadata["namespace"], metadata["name"], metadata["uid"])
            except (NotFound, Conflict) as error:
                done.stopped = f"the cluster has changed meanwhile: {error.what}"
                break
            except TooManyRequests as error:
                done.stopped, done.refused, done.error = error.what, True, error
                break
            except ApiError as error:
                done.stopped, done.error = str(error), error
                break
            self.allowance.take()
            done.evicted.append(victim)
        return done

    def _changed(self, pod: Object, claims: Sequence[Object]) -> str:
        """What has changed about the pod that waits; empty if it still waits for these claims."""
        metadata = pod["metadata"]
        stored = self._client.get(pod_path(metadata["namespace"], metadata["name"]))
        if stored["metadata"]["uid"] != metadata["uid"] or "deletionTimestamp" in stored["metadata"]:
            return "the pod that waited is gone"
        if stored["spec"].get("nodeName"):
            return "the pod has a node now"
        for claim in claims:
            about = claim["metadata"]
            # A claim for extended resources is made by the scheduler together with its devices.
            if "resourceVersion" not in about:
                continue
            found = self._client.get(claim_path(about["namespace"], about["name"]))
            if found["metadata"]["uid"] != about["uid"]:
                return f"the claim {about['name']} was made again"
            if (found.get("status") or {}).get("allocation"):
                return f"the claim {about['name']} has devices now"
        return ""

    def _victim_changed(self, victim: Object) -> str:
        metadata = victim["metadata"]
        found = self._client.get(pod_path(metadata["namespace"], metadata["name"]))
        if found["metadata"]["uid"] != metadata["uid"]:
            return f"the pod {metadata['namespace']}/{metadata['name']} is another one now"
        if "deletionTimestamp" in found["metadata"]:
            return f"the pod {metadata['namespace']}/{metadata['name']} is ending already"
        return ""
