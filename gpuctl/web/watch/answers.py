"""Computes explain's answers about waiting pods, one after the other, in a thread of its own.

An answer about a large cluster takes seconds. So there is one worker for all browsers, pods that people look
at come first, and the worker rests after each answer. Everybody who may create a claim can write selectors
that use up all the time that an answer may take. So an answer that was too costly stays until its causes
change, and then the pod waits behind all others.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from driver.errors import ApiError
from driver.kube.client import KubeClient
from gpuctl.cli.cluster import ClusterView
from gpuctl.cli.failures import error_text
from gpuctl.explain.answer import explain_pod
from gpuctl.explain.findings import COSTLY, Explanation
from gpuctl.explain.snapshot import Snapshot
from gpuctl.web.seen.view import Objects, View
from kubernetes_rules.errors import RuleError
from kubernetes_rules.pod_claims import claim_entries, extended_claim

Object = dict[str, Any]

MOST_UNASKED = 20
"""The number of pods that are explained before anybody asks: those on nodes, and those that wait longest."""

MOST_DEVICES_UNASKED = 5000
"""With more devices an answer takes long, so it is computed only when somebody asks."""

LEAST_AGE_SECONDS = 5.0
"""An answer is not computed again before it is so old."""

REST = 19.0
"""The worker rests so many times as long as an answer took: it uses at most a twentieth of a core."""

_LONGEST_REST_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What explain says about a pod, or why it says nothing.

    It is valid for the versions ``pod`` and ``cluster``. From ``due`` on, by a monotonic clock, it may be
    computed again. An answer that was too costly stays valid as long as its ``causes`` are the same.
    """

    pod: str
    cluster: int
    due: float
    explanation: Explanation | None
    failure: str = ""
    causes: tuple[Any, ...] | None = None


class Answers:
    """The answers about the pods of the latest view, from ``start`` to ``stop``. Thread-safe."""

    def __init__(
        self, client: KubeClient, changed: Callable[[], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """``changed`` is called after each answer, in the worker's thread."""
        self._reader = ClusterView(client)
        self._changed = changed
        self._clock = clock
        self._lock = threading.Lock()
        self._wake, self._stop = threading.Event(), threading.Event()
        self._view = View()
        self._asked: set[str] = set()
        self._known: dict[str, Answer] = {}
        self.version = 0
        self._thread = threading.Thread(target=self._run, name="answers", daemon=True)

    def start(self) -> None:
        """Start the worker."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the worker, after the answer that is being computed."""
        self._stop.set()
        self._wake.set()
        self._thread.join()

    def update(self, view: View) -> None:
        """Take a new view; answers about pods that no longer wait are dropped."""
        with self._lock:
            self._view = view
            keys = {pod.key for pod in view.waiting}
            self._known = {key: answer for key, answer in self._known.items() if key in keys}
        self._wake.set()

    def known(self, key: str) -> Answer | None:
        """The last answer about a pod, ``namespace/name``."""
        with self._lock:
            return self._known.get(key)

    def ask(self, key: str) -> Answer | None:
        """The last answer about a pod; if that is out of date, a newer one is computed next."""
        with self._lock:
            self._asked.add(key)
            answer = self._known.get(key)
        self._wake.set()
        return answer

    def _due(self, key: str) -> float | None:
        """From when on a pod may be explained again; None if it no longer waits, or the answer is valid."""
        pod, answer = self._view.objects.pods.get(key), self._known.get(key)
        if pod is None:
            return None
        if answer is None:
            return 0.0
        version, cluster = _version(pod), self._view.cluster
        if (answer.pod, answer.cluster) == (version, cluster):
            return None
        if answer.causes is None or answer.causes != _causes(pod, self._view.objects):
            return answer.due
        # Too costly, and nothing that could make it cheaper has changed: it stays valid.
        self._known[key] = replace(answer, pod=version, cluster=cluster)
        return None

    def _run(self) -> None:
        while not self._stop.is_set():
            took = self.answer_next()
            if took is None:
                self._wake.wait(self._idle_seconds())
                self._wake.clear()
                continue
            # The rest ends early for a pod that has no answer yet and that somebody looks at.
            rest_seconds = min(_LONGEST_REST_SECONDS, REST * took)
            while rest_seconds > 0 and not self._asked_now() and not self._stop.is_set():
                self._stop.wait(min(0.1, rest_seconds))
                rest_seconds -= 0.1

    def _asked_now(self) -> bool:
        with self._lock:
            return any(self._due(key) == 0.0 for key in self._asked)

    def _dues(self) -> dict[str, float]:
        """From when on each pod may be explained again; pods that people look at come first."""
        # A pod that has a node may have failed there, which is a problem and not just a wait.
        waiting = sorted(self._view.waiting, key=lambda pod: pod.node is None)
        unasked = [pod.key for pod in waiting[:MOST_UNASKED]]
        forms = sum(gpu.devices for node in self._view.nodes.values() for gpu in node.gpus)
        keys = [*sorted(self._asked), *(unasked if forms <= MOST_DEVICES_UNASKED else ())]
        dues = {key: due for key in keys if (due := self._due(key)) is not None}
        self._asked.intersection_update(dues)
        return dues

    def _idle_seconds(self) -> float | None:
        """The time until a pod may be explained again, None if there is no such pod without a new view."""
        with self._lock:
            soonest = min(self._dues().values(), default=None)
            return None if soonest is None else soonest - self._clock()

    def answer_next(self) -> float | None:
        """Compute the first answer that is due; returns the seconds that it took, None if none is due."""
        with self._lock:  # a request may ask for another pod at any time
            view, started = self._view, self._clock()
            ready = [key for key, due in self._dues().items() if due <= started]
            if not ready:
                return None
            key = min(ready, key=self._was_costly)  # the first that was not too costly, if there is one
            self._asked.discard(key)
        # Without the lock: this takes seconds, and handlers of requests ask for answers meanwhile.
        pod = view.objects.pods[key]
        explanation, failure, causes = None, "", None
        try:
            explanation = explained(self._reader, dict(pod), view)
        except (ApiError, RuleError) as error:
            failure = error_text(error)
        if explanation is not None and any(one.kind == COSTLY for one in explanation.findings):
            causes = _causes(pod, view.objects)
        took = self._clock() - started
        due = self._clock() + max(LEAST_AGE_SECONDS, REST * took)
        with self._lock:
            self._known[key] = Answer(_version(pod), view.cluster, due, explanation, failure, causes)
            self.version += 1
        self._changed()
        return took

    def _was_costly(self, key: str) -> bool:
        answer = self._known.get(key)
        return answer is not None and answer.causes is not None


def _version(pod: Mapping[str, Any]) -> str:
    return str(pod["metadata"].get("resourceVersion") or "")


def _causes(pod: Mapping[str, Any], objects: Objects) -> tuple[Any, ...]:
    """What people can change to make a pod's selectors cheaper: the pod, its claims, and the classes."""
    # The spec of a claim template never changes. Fewer devices would help too, but devices come and go all
    # the time, and each change would cost a computation.
    metadata, status = pod["metadata"], pod.get("status") or {}
    names = {extended_claim(pod), *(entry.claim for entry in claim_entries(pod))}
    claims = {
        one["metadata"]["name"]: (one["spec"], bool((one.get("status") or {}).get("allocation")))
        for one in objects.claims
        if one["metadata"]["name"] in names and one["metadata"].get("namespace") == metadata["namespace"]
    }
    classes = {one["metadata"]["name"]: one["spec"] for one in objects.classes}
    made = (status.get("resourceClaimStatuses"), status.get("extendedResourceClaimStatus"))
    return metadata.get("uid"), pod["spec"], *made, claims, classes


def explained(reader: ClusterView, pod: Object, view: View) -> Explanation:
    """Explain's answer, from the view and from what is read for this pod. Raises ApiError and RuleError."""
    objects = view.objects
    snapshot = Snapshot(
        nodes=tuple(map(dict, objects.nodes)),
        slices=tuple(map(dict, objects.slices)),
        classes=tuple(map(dict, objects.classes)),
        claims=tuple(map(dict, objects.claims)),
        view=reader,
    )
    return explain_pod(pod, snapshot)
