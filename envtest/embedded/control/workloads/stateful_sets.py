"""Starts, updates and ends the pods of StatefulSets, by their numbers. Go: pkg/controller/statefulset.

A claim for a volume is created for each pod and template of a claim, and stays: the retention policy of these
claims is left out, and so is the repair of pods whose labels or volumes somebody changed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from envtest.embedded.api.statuses import Refused
from envtest.embedded.control import kinds
from envtest.embedded.control.objects import CONFLICT, Objects, is_deleted, is_terminal
from envtest.embedded.control.workloads.owned_pods import pod_of, ready_since, seconds_to_available
from envtest.embedded.control.workloads.revisions import POD_LABEL, History, Revisions, with_template
from kubernetes_rules.defaults import NO_LIMIT

Object = dict[str, Any]
Json = Mapping[str, Any]

_COMPONENT = "statefulset-controller"
_HASH_LABEL = "controller.kubernetes.io/hash"
_NAME_LABEL, _INDEX_LABEL = "statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index"
_ORDINAL = re.compile(r"(.*)-([0-9]+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class View:
    """One StatefulSet with its revisions and its pods, which are those of its numbers, and others.

    ``replicas`` are by number from the first on, None where a pod is still to be created. ``condemned`` are
    above or below these numbers, the highest first.
    """

    stateful_set: Json
    current: Object
    history: History
    replicas: Sequence[Object | None]
    condemned: Sequence[Object]

    @property
    def update(self) -> str:
        """The name of the revision of the present template."""
        return str(self.history.newest["metadata"]["name"])

    @property
    def in_order(self) -> bool:
        """Whether pods are started and ended one after the other."""
        return bool(self.stateful_set["spec"].get("podManagementPolicy") != "Parallel")

    def is_available(self, pod: Json) -> bool:
        """Whether a pod has been ready for long enough."""
        return seconds_to_available(pod, self.stateful_set["spec"].get("minReadySeconds", 0)) == 0

    def is_missed(self, pod: Json | None) -> bool:
        """Whether a pod is not there, not available, or is being deleted."""
        return pod is None or is_deleted(pod) or not self.is_available(pod)


class StatefulSets:
    """Reconciles single StatefulSets. For one thread."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._revisions = Revisions(objects, _HASH_LABEL)

    def sync(self, stateful_set: Object, pods: Sequence[Object]) -> float | None:
        """Create or delete the next pods, and write the status; returns in how many seconds it is due again.

        ``pods`` are those of the StatefulSet.
        """
        history = self._revisions.history(stateful_set)
        view = view_of(stateful_set, history, pods)
        removed = 0 if is_deleted(stateful_set) else self._step(view)
        status = counted(view, removed)
        if status != (stateful_set.get("status") or {}):
            self._objects.replace_status(kinds.STATEFUL_SETS, stateful_set, status)
        self._clean_up(view, pods)
        least = stateful_set["spec"].get("minReadySeconds", 0)
        return min((wait for pod in pods if (wait := seconds_to_available(pod, least))), default=None)

    def _step(self, view: View) -> int:
        """Create and delete pods as far as the order allows; returns how many went for an update."""
        steps: list[Callable[[], bool]] = [
            *(lambda index=index: self._kept(view, index) for index in range(len(view.replicas))),
            *(lambda pod=pod: self._condemned(view, pod) for pod in view.condemned),
        ]
        for step in steps:
            if step() and view.in_order:
                return 0
        if view.stateful_set["spec"]["updateStrategy"]["type"] != "RollingUpdate":
            return 0
        outdated = to_update(view)
        for pod in outdated:
            self._delete(view, pod)
        return len(outdated)

    def _kept(self, view: View, index: int) -> bool:
        """Look after the pod of a number that is wanted; returns whether the next ones have to wait."""
        pod = view.replicas[index]
        if pod is None:
            self._create(view, index)
            return True
        if is_terminal(pod):
            if not is_deleted(pod):
                self._delete(view, pod)
            return True
        return view.is_missed(pod)

    def _condemned(self, view: View, pod: Object) -> bool:
        """Delete a pod whose number is not wanted; returns whether the next ones have to wait."""
        if is_deleted(pod):
            return True
        # In order, no pod goes while another one is not available, unless that is the pod itself.
        if view.in_order and not view.is_available(pod) and pod is not _first_missed(view):
            return True
        self._delete(view, pod)
        return True

    def _create(self, view: View, index: int) -> None:
        stateful_set = view.stateful_set
        pod = new_pod(view, index)
        name = pod["metadata"]["name"]
        try:
            for claim in claims_of(stateful_set, index + _start(stateful_set)):
                self._create_claim(view, claim, name)
            self._objects.create(kinds.PODS, stateful_set["metadata"]["namespace"], pod)
        except Refused as refused:
            if refused.code != CONFLICT:
                self._post(view, "Warning", "FailedCreate", f"Create Pod {name}", f"failed error: {refused}")
            raise
        self._post(view, "Normal", "SuccessfulCreate", f"Create Pod {name}", "successful")

    def _create_claim(self, view: View, claim: Object, pod: str) -> None:
        namespace, name = view.stateful_set["metadata"]["namespace"], claim["metadata"]["name"]
        if self._objects.find(kinds.VOLUME_CLAIMS, namespace, name) is None:
            self._objects.create(kinds.VOLUME_CLAIMS, namespace, claim)
            self._post(view, "Normal", "SuccessfulCreate", f"Create Claim {name} Pod {pod}", "success")

    def _delete(self, view: View, pod: Object) -> None:
        self._objects.delete(kinds.PODS, pod)
        self._post(view, "Normal", "SuccessfulDelete", f"Delete Pod {pod['metadata']['name']}", "successful")

    def _post(self, view: View, kind: str, reason: str, what: str, outcome: str) -> None:
        stateful_set = dict(view.stateful_set)
        text = f"{what} in StatefulSet {stateful_set['metadata']['name']} {outcome}"
        self._objects.post_event(stateful_set, kind, reason, text, _COMPONENT)

    def _clean_up(self, view: View, pods: Sequence[Object]) -> None:
        """Delete the oldest revisions beyond the limit that neither a pod nor the status has."""
        live = {*map(_revision_of, pods), view.current["metadata"]["name"], view.update}
        unused = [one for one in view.history.others if one["metadata"]["name"] not in live]
        limit = view.stateful_set["spec"].get("revisionHistoryLimit", NO_LIMIT)
        self._revisions.delete_oldest(unused, len(unused) - limit)


def view_of(stateful_set: Json, history: History, pods: Sequence[Object]) -> View:
    """The pods of a StatefulSet, sorted by their numbers."""
    start, count = _start(stateful_set), _wanted(stateful_set)
    numbered = {
        number: pod
        for pod in pods
        if (number := _ordinal(stateful_set, pod)) is not None and number not in range(start, start + count)
    }
    kept = {_ordinal(stateful_set, pod): pod for pod in pods}
    current = history.find((stateful_set.get("status") or {}).get("currentRevision", ""))
    return View(
        stateful_set,
        current or history.newest,
        history,
        [kept.get(number) for number in range(start, start + count)],
        [numbered[number] for number in sorted(numbered, reverse=True)],
    )


def to_update(view: View) -> list[Object]:
    """The pods of an older revision that are deleted now, the highest number first.

    Go: updateStatefulSetAfterInvariantEstablished, since MaxUnavailableStatefulSet is on in 1.37.
    """
    rolling = view.stateful_set["spec"]["updateStrategy"].get("rollingUpdate") or {}
    most = _most_missed(rolling.get("maxUnavailable", 1), len(view.replicas))
    missed = sum(map(view.is_missed, view.replicas))
    old = [
        pod
        for pod in reversed(view.replicas[rolling.get("partition", 0) :])
        if pod is not None and _revision_of(pod) != view.update and not is_deleted(pod)
    ]
    if view.in_order:
        return old[: max(0, most - missed)]
    # Without an order, pods that are not available are replaced at once.
    broken = [pod for pod in old if not view.is_available(pod)]
    return broken + [pod for pod in old if view.is_available(pod)][: max(0, most - missed)]


def counted(view: View, removed: int = 0) -> Object:
    """The status; ``removed`` pods of the current revision were deleted just now."""
    stateful_set, current = view.stateful_set, view.current["metadata"]["name"]
    pods = [*(pod for pod in view.replicas if pod is not None), *view.condemned]
    staying = [_revision_of(pod) for pod in pods if not is_deleted(pod)]
    ready = [pod for pod in pods if _phase(pod) == "Running" and ready_since(pod) is not None]
    before = stateful_set.get("status") or {}
    counts = {
        "readyReplicas": len(ready),
        "currentReplicas": staying.count(current) - removed,
        "updatedReplicas": staying.count(view.update),
    }
    wanted = _wanted(stateful_set)
    # All pods have the new revision: it becomes the current one (Go: completeUpdate).
    if counts["updatedReplicas"] == len(ready) == len(pods) == wanted:
        current, counts["currentReplicas"] = view.update, counts["updatedReplicas"]
    return {
        **({"conditions": before["conditions"]} if before.get("conditions") else {}),
        "observedGeneration": stateful_set["metadata"]["generation"],
        "replicas": len(pods),
        "availableReplicas": sum(map(view.is_available, ready)),
        **{name: count for name, count in counts.items() if count},
        "currentRevision": current,
        "updateRevision": view.update,
        "collisionCount": view.history.collisions,
    }


def new_pod(view: View, index: int) -> Object:
    """The pod of a number, of the current revision below the partition, else of the new one."""
    stateful_set, number = view.stateful_set, index + _start(view.stateful_set)
    strategy = stateful_set["spec"]["updateStrategy"]
    if strategy.get("rollingUpdate") is not None:
        below = strategy["rollingUpdate"].get("partition", 0)
    else:
        rolls = strategy["type"] == "RollingUpdate"
        below = (stateful_set.get("status") or {}).get("currentReplicas", 0) if rolls else 0
    revision = view.current if index < below else view.history.newest
    owner = dict(with_template(stateful_set, revision))
    pod = pod_of(owner, owner["spec"]["template"])
    name = f"{stateful_set['metadata']['name']}-{number}"
    metadata = {key: value for key, value in pod["metadata"].items() if key != "generateName"}
    labels = {_NAME_LABEL: name, _INDEX_LABEL: str(number), POD_LABEL: revision["metadata"]["name"]}
    metadata |= {"name": name, "labels": {**(metadata.get("labels") or {}), **labels}}
    claims = claims_of(stateful_set, number)
    templates = stateful_set["spec"].get("volumeClaimTemplates") or ()
    given = {
        template["metadata"]["name"]: {"persistentVolumeClaim": {"claimName": claim["metadata"]["name"]}}
        for template, claim in zip(templates, claims, strict=True)
    }
    own = [one for one in pod["spec"].get("volumes") or () if one["name"] not in given]
    volumes = [*({"name": key, **source} for key, source in given.items()), *own]
    spec = {**pod["spec"], "hostname": name, "subdomain": stateful_set["spec"].get("serviceName") or ""}
    return {**pod, "metadata": metadata, "spec": {**spec, **({"volumes": volumes} if volumes else {})}}


def claims_of(stateful_set: Json, number: int) -> list[Object]:
    """The claims for volumes of the pod of a number."""
    spec, name = stateful_set["spec"], stateful_set["metadata"]["name"]
    selected = spec["selector"].get("matchLabels") or {}
    found = []
    for template in spec.get("volumeClaimTemplates") or ():
        metadata = template["metadata"]
        labels = {**(metadata.get("labels") or {}), **selected}
        named = {**metadata, "name": f"{metadata['name']}-{name}-{number}", "labels": labels}
        head = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": named}
        found.append({**head, "spec": template["spec"]})
    return found


def _first_missed(view: View) -> Object | None:
    """The pod with the lowest number that is not available; pods that are still to be created count."""
    ordered = [*view.replicas, *reversed(view.condemned)]
    return next((pod for pod in ordered if view.is_missed(pod)), None)


def _most_missed(value: int | str, count: int) -> int:
    """maxUnavailable in pods, rounded down, at least 1."""
    if isinstance(value, int):
        return max(1, value)
    return max(1, math.floor(int(value.removesuffix("%")) * count / 100))


def _ordinal(stateful_set: Json, pod: Json) -> int | None:
    """The number of a pod, None where its name is not one of the StatefulSet."""
    matched = _ORDINAL.fullmatch(pod["metadata"]["name"])
    if matched is None or matched[1] != stateful_set["metadata"]["name"]:
        return None
    return int(matched[2])


def _start(stateful_set: Json) -> int:
    return int((stateful_set["spec"].get("ordinals") or {}).get("start") or 0)


def _wanted(stateful_set: Json) -> int:
    return int(stateful_set["spec"].get("replicas", 1))


def _revision_of(pod: Json) -> str:
    return str((pod["metadata"].get("labels") or {}).get(POD_LABEL, ""))


def _phase(pod: Json) -> str:
    return str((pod.get("status") or {}).get("phase", ""))
