"""Moves pods one at a time: evicts one, waits until it was made again, and looks whether that helped."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from driver.errors import ConfigError
from driver.kube.client import KubeClient
from driver.kube.errors import Conflict, NotFound, TooManyRequests
from driver.kube.evictions import evict_pod
from driver.kube.paths import pod_path
from gpuctl.cli.cluster import DRA, ClusterView
from gpuctl.explain.room import cluster_of, read_occupants
from gpuctl.explain.snapshot import Object, take_snapshot
from gpuctl.repartition import waiting
from gpuctl.room.defragment import Landing, Move, Plan, Step, Target, free_on, plan, target_of
from gpuctl.room.rooms import controller_of, devices_of, selectors_in_time
from kubernetes_rules.pod_claims import controlling_pod
from kubernetes_rules.preemption.cluster import Cluster
from kubernetes_rules.preemption.units import is_ending

_EVICTION_TRIES = 65
"""How often an eviction is tried that a budget refuses, ``waiting.LOOK_SECONDS`` apart.

Kubernetes notes an evicted pod by its name. If a StatefulSet makes the next pod of that name at once, it may
count as evicted for two minutes, and no other pod of the budget may go (stalePodDisruptionTimeout).
"""


@dataclass(frozen=True, slots=True)
class Now:
    """The cluster at one moment."""

    cluster: Cluster
    target: Target
    budgets: tuple[Object, ...]
    unread: tuple[str, ...]

    def free(self, node: str) -> int:
        """How many of the wanted devices are free on a node. Call it before ``plan``."""
        with selectors_in_time():
            return free_on(self.cluster, self.target, node) if node in self.cluster.nodes else 0

    def plan(self, only: str | None, most: int | None = None) -> Plan:
        """The moves from the node ``only``, or from all; this moment cannot be used any more then."""
        with selectors_in_time():
            return plan(self.cluster, self.target, self.budgets, only, most)


class Look:
    """Looks at a cluster for moves that free what ``name`` means, from one ``node`` or from all."""

    def __init__(self, view: ClusterView, name: str | None, node: str | None) -> None:
        self.view = view
        self.node = node
        self._name = name

    def now(self) -> Now:
        """The cluster as it is. Raises ApiError, AllocationFailed, and ConfigError for an unknown name."""
        snapshot = take_snapshot(self.view)
        occupants = read_occupants(self.view)
        target = target_of(self._name, snapshot.classes, snapshot.slices)
        known = target.device_class in snapshot.classes
        cluster = cluster_of(snapshot, occupants, *([] if known else [target.device_class]))
        if self.node is not None and self.node not in cluster.nodes:
            raise ConfigError(f"there is no node {self.node}", "name one of `kubectl get nodes`")
        unread = tuple(dict.fromkeys((*snapshot.unread, *occupants.unread)))
        return Now(cluster, target, occupants.budgets, unread)

    def plan(self) -> tuple[Plan, tuple[str, ...]]:
        """All moves that would help now, and the kinds that this user may not read."""
        now = self.now()
        return now.plan(self.node), now.unread


@dataclass(frozen=True, slots=True)
class Moved:
    """A pod that was evicted, with its devices then, and the pod that was made for it."""

    pod: str
    devices: tuple[str, ...]
    replacement: str
    landing: Landing


@dataclass(frozen=True, slots=True)
class Done:
    """What was done, and why it ended. ``complete``: nothing is left to gain."""

    what: str
    moved: tuple[Moved, ...]
    freed: int
    complete: bool
    why: str

    @property
    def summary(self) -> str:
        """The numbers as a sentence."""
        return f"{len(self.moved)} moved, {self.freed} more free ({self.what})"


def carry_out(
    client: KubeClient,
    look: Look,
    timeout_seconds: float,
    say: Callable[[str], None],
    pause: Callable[[float], None] = waiting.sleep,
) -> Done:
    """Move pods until nothing is left to gain, or a move is refused, takes too long or does not help.

    ``timeout_seconds`` is for each new pod. ``say`` is called with each step. Raises ApiError for a failure
    that does not pass; what was moved stays moved.
    """
    moved: list[Moved] = []
    freed = 0
    unfinished: Step | None = None
    while True:
        now = look.now()
        what = now.target.what
        if unfinished is not None:
            gained = now.free(unfinished.node) - unfinished.free
            if gained > 0:
                freed += gained
                say(f"{unfinished.node} has {unfinished.free + gained} free ({what})")
                unfinished = None
        node = unfinished.node if unfinished else look.node
        step = next(iter(now.plan(node, most=1).steps), None)
        if unfinished is not None and (step is None or len(step.moves) >= len(unfinished.moves)):
            why = f"the last move has brought {unfinished.node} no nearer to another {what}"
            break
        if step is None:
            return Done(what, tuple(moved), freed, complete=True, why="nothing is left to gain")
        found = _moved(client, look.view, step.moves[0], timeout_seconds, say, pause)
        unfinished = step
        if isinstance(found, str):
            why = found
            break
        if found is None:
            unfinished = None
            continue
        moved.append(found)
        if same := sorted(set(found.landing.devices) & set(found.devices)):
            why = f"the new pod {found.replacement} has landed where the old one was: {', '.join(same)}"
            break
    return Done(what, tuple(moved), freed, complete=False, why=why)


def _moved(
    client: KubeClient,
    view: ClusterView,
    move: Move,
    timeout_seconds: float,
    say: Callable[[str], None],
    pause: Callable[[float], None],
) -> Moved | str | None:
    """Move one pod; a text says why that failed, None that the pod was gone already. Raises ApiError."""
    pod, to = move.pod, move.fits[0]
    known = {str(one["metadata"]["uid"]) for one in _of_controller(view, move)}
    say(f"evicting {pod} from {pod.node}: its replacement would fit on {to.node} ({', '.join(to.devices)})")
    try:
        refused = _evict(client, move, say, pause)
    except (NotFound, Conflict):
        return None
    if refused:
        return f"the eviction of {pod} was refused: {refused}"
    said = waiting.SayOnce(say)
    deadline = time.monotonic() + timeout_seconds
    left = waiting.wait_for_none(lambda: _missing(view, move, known), deadline, pause, said)
    if left:
        return f"{pod} is not replaced in time: {'; '.join(left)}"
    new = next(_new(view, move, known))
    metadata = new["metadata"]
    name, uid = f"{metadata['namespace']}/{metadata['name']}", str(metadata["uid"])
    devices = tuple(one for claim in _claims_of(view, pod.namespace, uid) for one in _devices(claim))
    landing = Landing(str(new["spec"].get("nodeName")), devices)
    say(f"{name} runs on {landing.node} ({', '.join(devices)}) in place of {pod}")
    return Moved(str(pod), move.devices, name, landing)


def _evict(
    client: KubeClient, move: Move, say: Callable[[str], None], pause: Callable[[float], None]
) -> str | None:
    """Evict a pod; a text says why its budget does not allow it. Raises ApiError."""
    pod, said, tries_left = move.pod, waiting.SayOnce(say), _EVICTION_TRIES
    # A controller counts the pods of a budget: the pod that was made last counts a moment after it is ready.
    while True:
        try:
            evict_pod(client, pod.namespace, pod.name, move.uid)
            return None
        except TooManyRequests as error:
            tries_left -= 1
            if not tries_left:
                return error.what
            said(f"waiting: {pod} may not be evicted yet: {error.what}")
        pause(waiting.LOOK_SECONDS)


def _missing(view: ClusterView, move: Move, known: set[str]) -> Iterable[str]:
    """What is still to happen until the old pod has gone with its claims, and the new one runs."""
    pod = move.pod
    old = view.found(pod_path(pod.namespace, pod.name))
    if old is not None and old["metadata"]["uid"] == move.uid:
        return (f"pod {pod} is ending",)
    for claim in _claims_of(view, pod.namespace, move.uid):
        if devices := _devices(claim):
            return (f"claim {pod.namespace}/{claim['metadata']['name']} still has {', '.join(devices)}",)
    new = next(_new(view, move, known), None)
    if new is None:
        return (f"{pod.owner} has not made another pod for {pod} yet",)
    conditions = (new.get("status") or {}).get("conditions") or ()
    # Budgets count ready pods: the next eviction would be refused before.
    if any((one["type"], one["status"]) == ("Ready", "True") for one in conditions):
        return ()
    why = next((one.get("message") for one in conditions if one.get("status") == "False"), None)
    name = f"{pod.namespace}/{new['metadata']['name']}"
    return (f"the new pod {name} does not run yet{f': {why}' if why else ''}",)


def _new(view: ClusterView, move: Move, known: set[str]) -> Iterator[Object]:
    """The pods that the controller has made since, those that run first."""
    made = [
        one
        for one in _of_controller(view, move)
        if str(one["metadata"]["uid"]) not in known and not is_ending(one)
    ]
    return iter(sorted(made, key=lambda one: (one.get("status") or {}).get("phase") != "Running"))


def _of_controller(view: ClusterView, move: Move) -> list[Object]:
    path = f"/api/v1/namespaces/{quote(move.pod.namespace, safe='')}/pods"
    return [pod for pod in view.listed(path) if (controller_of(pod) or {}).get("uid") == move.controller]


def _claims_of(view: ClusterView, namespace: str, uid: str) -> list[Object]:
    """The claims that were made for a pod."""
    claims = view.listed(f"{DRA}/namespaces/{quote(namespace, safe='')}/resourceclaims")
    return [one for one in claims if (controlling_pod(one) or ("", ""))[1] == uid]


def _devices(claim: Mapping[str, Any]) -> list[str]:
    return devices_of((claim.get("status") or {}).get("allocation") or {})
