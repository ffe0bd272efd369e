"""Decides on which nodes pods of a DaemonSet are created and deleted, and counts them for its status.

Go: podsShouldBeOnNode and updateDaemonSetStatus in pkg/controller/daemon/daemon_controller.go, rollingUpdate
in update.go there. DaemonSets, pods and nodes are JSON as the API has them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from envtest.embedded.control.objects import is_deleted, is_terminal
from envtest.embedded.control.workloads.owned_pods import ready_since, seconds_to_available
from envtest.embedded.control.workloads.revisions import POD_LABEL
from kubernetes_rules.selectors import has_what_pod_asks, read_node
from kubernetes_rules.taints import untolerated_taint

Object = dict[str, Any]
Json = Mapping[str, Any]

_NAME_FIELD = "metadata.name"
_TOLERATED = (
    *(("node.kubernetes.io/not-ready", "NoExecute"), ("node.kubernetes.io/unreachable", "NoExecute")),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)
_OF_HOST_NETWORK = ("node.kubernetes.io/network-unavailable", "NoSchedule")
FAILED, SUCCEEDED = "FailedDaemonPod", "SucceededDaemonPod"


@dataclass(slots=True)
class Plan:
    """What is to be done: nodes that need a pod, and pods to delete; why is the reason of an event."""

    create: list[str] = field(default_factory=list)
    delete: list[Object] = field(default_factory=list)
    ended: list[tuple[str, Object]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class View:
    """One DaemonSet with its nodes, its pods by the names of their nodes, and the hash of its template."""

    daemon_set: Json
    nodes: Sequence[Json]
    pods: Mapping[str, Sequence[Object]]
    digest: str

    def is_new(self, pod: Json) -> bool:
        """Whether a pod has the present template."""
        return (pod["metadata"].get("labels") or {}).get(POD_LABEL) == self.digest

    def is_available(self, pod: Json) -> bool:
        """Whether a pod has been ready for long enough."""
        return seconds_to_available(pod, self.daemon_set["spec"].get("minReadySeconds", 0)) == 0

    def wanted(self) -> list[str]:
        """The names of the nodes that are to have a pod."""
        return [one["metadata"]["name"] for one in self.nodes if should_run(self.daemon_set, one)[0]]

    def limits(self) -> tuple[int, int]:
        """maxSurge and maxUnavailable in pods."""
        strategy, count = self.daemon_set["spec"]["updateStrategy"], len(self.wanted())
        rolling = (strategy.get("rollingUpdate") or {}) if strategy["type"] == "RollingUpdate" else {}
        surge, missing = (_scaled(rolling.get(name, 0), count) for name in ("maxSurge", "maxUnavailable"))
        return surge, missing if missing or surge or not count else 1


def should_run(daemon_set: Json, node: Json) -> tuple[bool, bool]:
    """Whether a node is to get a pod, and whether one that is there may go on."""
    spec = daemon_set["spec"]["template"]["spec"]
    taints = (node.get("spec") or {}).get("taints") or ()
    if spec.get("nodeName") and spec["nodeName"] != node["metadata"]["name"]:
        return False, False
    if not has_what_pod_asks(read_node(node), spec):
        return False, False
    tolerations = daemon_tolerations(spec)
    if untolerated_taint(taints, tolerations):
        ending = [one for one in taints if one["effect"] == "NoExecute"]
        return False, untolerated_taint(ending, tolerations) is None
    return True, True


def daemon_tolerations(spec: Json) -> list[Object]:
    """The tolerations of the pods: those of the template, and those that all DaemonSets have."""
    found: list[Object] = list(spec.get("tolerations") or ())
    for key, effect in (*_TOLERATED, *([_OF_HOST_NETWORK] if spec.get("hostNetwork") else [])):
        added = {"key": key, "operator": "Exists", "effect": effect}
        same = [index for index, one in enumerate(found) if _matches(one, added)]
        for index in same:
            found[index] = added
        if not same:
            found.append(added)
    return found


def _matches(one: Json, other: Json) -> bool:
    fields = ("key", "effect", "operator", "value")
    return all((one.get(name) or "") == (other.get(name) or "") for name in fields)


def on_node(affinity: Json | None, node: str) -> Object:
    """The affinity of a pod for this node alone."""
    terms = [{"matchFields": [{"key": _NAME_FIELD, "operator": "In", "values": [node]}]}]
    given = (affinity or {}).get("nodeAffinity") or {}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {**(affinity or {}), "nodeAffinity": {**given, **required}}


def node_of(pod: Json) -> str:
    """The node that a pod is on, or is meant for; empty where it is meant for none."""
    if pod["spec"].get("nodeName"):
        return str(pod["spec"]["nodeName"])
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    fields = (
        one for term in required.get("nodeSelectorTerms") or () for one in term.get("matchFields") or ()
    )
    return next((str(one["values"][0]) for one in fields if one["key"] == _NAME_FIELD), "")


def by_node(pods: Iterable[Object]) -> dict[str, list[Object]]:
    """The pods by the names of their nodes, without those that have ended and are deleted."""
    found: dict[str, list[Object]] = {}
    for pod in pods:
        if node_of(pod) and not (is_terminal(pod) and is_deleted(pod)):
            found.setdefault(node_of(pod), []).append(pod)
    return found


def managed(view: View) -> Plan:
    """The pods that are missing or too many, whatever their template (Go: manage)."""
    plan = Plan()
    for node in view.nodes:
        name = node["metadata"]["name"]
        here = view.pods.get(name, ())
        runs, goes_on = should_run(view.daemon_set, node)
        if runs and not here:
            plan.create.append(name)
        elif goes_on:
            _prune(view, name, here, plan, runs=runs)
        else:
            plan.delete += [pod for pod in here if not is_deleted(pod)]
    known = {node["metadata"]["name"] for node in view.nodes}
    # Pods for nodes that are gone would wait for ever.
    lost = (pod for name, pods in view.pods.items() if name not in known for pod in pods)
    plan.delete += [pod for pod in lost if not pod["spec"].get("nodeName")]
    return plan


def _prune(view: View, name: str, here: Sequence[Object], plan: Plan, *, runs: bool) -> None:
    """Plan the end of pods that have ended, and of all but the oldest; with surge, of either template."""
    ended = [pod for pod in here if is_terminal(pod) and not is_deleted(pod)]
    plan.ended += [(FAILED if one["status"]["phase"] == "Failed" else SUCCEEDED, one) for one in ended]
    running = sorted((pod for pod in here if not is_terminal(pod) and not is_deleted(pod)), key=_age)
    if not view.limits()[0]:
        plan.delete += running[1:]
        return
    if len(running) < 2:
        # With surge there is to be one pod that is not deleted.
        if not running and runs:
            plan.create.append(name)
        return
    new = [pod for pod in running if view.is_new(pod)]
    old = [pod for pod in running if not view.is_new(pod)]
    plan.delete += [*new[1:], *old[1:]]
    if new and old and (ready_since(old[0]) is None or view.is_available(new[0])):
        plan.delete.append(old[0])


def rolled(view: View) -> Plan:
    """The next step of a rolling update."""
    surge, missing = view.limits()
    wanted = dict.fromkeys(view.wanted(), ())
    pairs = {name: _new_and_old(view, view.pods.get(name, ())) for name in {**wanted, **view.pods}}
    return _surged(view, pairs, surge) if surge else _replaced(view, pairs, missing)


Pair = tuple["Object | None", "Object | None"]


def _replaced(view: View, pairs: Mapping[str, Pair | None], most_missing: int) -> Plan:
    missing, allowed, candidates = 0, [], []
    for pair in pairs.values():
        # Excess pods, none, or both: the other step looks after the node.
        if pair is None or (pair[0] is None) == (pair[1] is None):
            missing += 1
        elif pair[0] is not None:
            missing += not view.is_available(pair[0])
        elif pair[1] is not None and not view.is_available(pair[1]):
            allowed.append(pair[1])
            missing += 1
        elif pair[1] is not None:
            candidates.append(pair[1])
    return Plan(delete=[*allowed, *candidates[: max(0, most_missing - missing)]])


def _surged(view: View, pairs: Mapping[str, Pair | None], most: int) -> Plan:
    plan, candidates, sunset, surging, available = Plan(), [], [], 0, 0
    wanted = set(view.wanted())
    for name, pair in pairs.items():
        if pair is None:
            surging += 1
            continue
        new, old = pair
        counted = old or new
        available += counted is not None and view.is_available(counted)
        if old is None:
            continue
        if new is not None:
            if view.is_available(new):
                plan.delete.append(old)
            else:
                surging += 1
        elif not view.is_available(old):
            # A pod that is not available is replaced at once.
            (plan.create.append(name) if name in wanted else plan.delete.append(old))
        elif name not in wanted:
            sunset.append(old)
        else:
            candidates.append(name)
    plan.delete += sunset[: max(0, available - len(wanted))]
    plan.create += candidates[: max(0, most - surging)]
    return plan


def _new_and_old(view: View, pods: Sequence[Object]) -> Pair | None:
    """The pod of the present template and that of another one; None where there are several of either."""
    here = [pod for pod in pods if not is_deleted(pod)]
    new, old = [one for one in here if view.is_new(one)], [one for one in here if not view.is_new(one)]
    if len(new) > 1 or len(old) > 1:
        return None
    return (new[0] if new else None), (old[0] if old else None)


def counted(view: View) -> Object:
    """The numbers of the status."""
    wanted = set(view.wanted())
    oldest = [min(pods, key=_age) for name, pods in view.pods.items() if name in wanted and pods]
    available = _count(oldest, view.is_available)
    counts = {
        "updatedNumberScheduled": _count(oldest, view.is_new),
        "numberAvailable": available,
        "numberUnavailable": len(wanted) - available,
    }
    known = {node["metadata"]["name"] for node in view.nodes}
    return {
        "currentNumberScheduled": len(oldest),
        "numberMisscheduled": sum(name in known - wanted and bool(pods) for name, pods in view.pods.items()),
        "desiredNumberScheduled": len(wanted),
        "numberReady": _count(oldest, lambda pod: ready_since(pod) is not None),
        **{name: count for name, count in counts.items() if count},
    }


def _count(pods: Iterable[Object], condition: Callable[[Object], bool]) -> int:
    return sum(map(condition, pods))


def _age(pod: Json) -> tuple[bool, str, str]:
    """Pods that have a node first, then the older ones."""
    metadata = pod["metadata"]
    return not pod["spec"].get("nodeName"), metadata["creationTimestamp"], metadata["name"]


def _scaled(value: int | str, count: int) -> int:
    return value if isinstance(value, int) else math.ceil(int(value.removesuffix("%")) * count / 100)
