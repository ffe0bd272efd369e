"""Gives claims their devices and pods their node, as kube-scheduler and its DynamicResources plugin do.

Left out are:

- CPU, memory and counts of device plugins' resources, preferred node affinity, topology, and device binding
  conditions.
- Preemption. kube-scheduler preempts nobody for the devices of claims either, whatever the priorities: where
  devices are lacking, the DynamicResources plugin answers UnschedulableAndUnresolvable.
- The plugin's PostFilter, which deallocates an unused claim for a pod that cannot run on the claim's node.
  The claim controller deallocates such a claim soon.

Of several nodes that fit, the one with the fewest pods is taken, the first of equals. The real scheduler
scores by more than that and picks among equals by chance, so tests must not depend on the choice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from envtest.embedded.api.defaults import now
from envtest.embedded.api.statuses import Refused
from envtest.embedded.control import kinds, pod_claims
from envtest.embedded.control.change_loop import Controller, ObjectBackOff
from envtest.embedded.control.objects import CONFLICT, Objects, is_deleted, is_terminal, uid_of
from envtest.embedded.server import EmbeddedApiServer
from kubernetes_rules.allocator.allocate import AllocationFailed, Allocator, PoolInvalid
from kubernetes_rules.pod_claims import (
    CLAIM_ANNOTATION,
    ExtendedRequests,
    asked_resources,
    class_of,
    controlling_pod,
    extended_requests,
    provides,
)
from kubernetes_rules.selectors import (
    NodeSelectorInvalid,
    has_what_pod_asks,
    node_selector_matches,
    read_node,
)
from kubernetes_rules.taints import CORDONED, tainted_slices, untolerated_taint

Object = dict[str, Any]

_WATCHED = (kinds.PODS, kinds.NODES, kinds.CLAIMS, kinds.CLASSES, kinds.SLICES, kinds.TAINT_RULES)

_NO_NODES = "no nodes available to schedule pods"

_SCHEDULER_NAME = "default-scheduler"
_AFTER_ERROR_SECONDS = 1.0
"""After an error a pod is tried again without any change."""


class Unschedulable(Exception):
    """There is no place for a pod now; the message is in kube-scheduler's words."""


class SchedulingFailed(Exception):
    """What a pod asks for is wrong; the message is in kube-scheduler's words."""


@dataclass(frozen=True, slots=True)
class Placement:
    """A node, and allocations for the claims that have none; that for extended resources is the last."""

    node: Object
    allocations: Sequence[Object]
    extended: ExtendedRequests | None


class EmbeddedScheduler(Controller):
    """Tries all waiting pods after every change of pods, nodes, claims, classes, slices or taint rules."""

    def __init__(self, server: EmbeddedApiServer) -> None:
        super().__init__("scheduler", server, _WATCHED)
        self._back_off = ObjectBackOff("scheduler")

    def sync(self) -> float | None:
        """Try the waiting pods, higher priority first; returns in how many seconds one is due again."""
        view = ClusterView(self._objects)
        return self._back_off.for_each(view.waiting, lambda pod: self._schedule(pod, view))

    def _schedule(self, pod: Object, view: ClusterView) -> float | None:
        try:
            # Without its claims the real scheduler does not queue a pod (PreEnqueue), and posts no event.
            claims = [claim for _, claim in pod_claims.claims_of_pod(self._objects, pod)]
        except pod_claims.ClaimNotUsable:
            return None
        if any(map(is_deleted, claims)):
            return None
        try:
            placement = self._place(pod, claims, view)
            self._bind(pod, claims, placement, view)
        except Unschedulable as error:
            # Tried again after any change. kube-scheduler waits for one that may help, and backs off.
            self._refuse(pod, "Unschedulable", str(error))
        except (SchedulingFailed, NotReserved) as error:
            self._refuse(pod, "SchedulerError", str(error))
            return _AFTER_ERROR_SECONDS
        return None

    def _place(self, pod: Object, claims: Sequence[Object], view: ClusterView) -> Placement:
        """Find a node. Raises Unschedulable, SchedulingFailed."""
        if not view.nodes:
            raise Unschedulable(_NO_NODES)
        may_preempt = pod["spec"].get("preemptionPolicy") != "Never"
        unallocated = [claim for claim in claims if not claim.get("status", {}).get("allocation")]
        # PreFilter checks classes: the pod is unschedulable whatever the node.
        missing = _missing_class(unallocated, view)
        if missing:
            raise Unschedulable(fit_error(len(view.nodes), missing, (), may_preempt=may_preempt))
        asked = asked_resources(pod)
        by_class = {name: class_of(name, view.classes) for name in asked}
        if any(by_class.values()):
            self._drop_stale_claim(pod)
        reasons = []
        for node in sorted(view.nodes, key=view.load):
            found = _on_node(pod, node, claims, by_class, view)
            if isinstance(found, Placement):
                return found
            reasons.append(found)
        raise Unschedulable(fit_error(len(view.nodes), "", reasons, may_preempt=may_preempt))

    def _bind(self, pod: Object, claims: Sequence[Object], placement: Placement, view: ClusterView) -> None:
        """Write allocations and reservations, then the pod's node. Raises NotReserved."""
        rest = list(placement.allocations)
        for claim in claims:
            allocation = None if claim.get("status", {}).get("allocation") else rest.pop(0)
            # As PreBind does: allocation and reservation are one write of the status.
            stored = _reserve(self._objects, claim, pod, allocation)
            if allocation is not None:
                view.allocator.assume(stored)
        if placement.extended is not None:
            made = self._create_extended_claim(pod, placement.extended)
            stored = _reserve(self._objects, made, pod, rest.pop(0))
            view.allocator.assume(stored)
            pod = self._note_extended_claim(pod, stored, placement.extended)
        name = placement.node["metadata"]["name"]
        # Last of all: the kubelet refuses claims that are not reserved for the pod.
        self._objects.bind(pod, name)
        view.count_pod(name)
        where = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        text = f"Successfully assigned {where} to {name}"
        self._objects.post_event(pod, "Normal", "Scheduled", text, _SCHEDULER_NAME)

    def _refuse(self, pod: Object, reason: str, message: str) -> None:
        """Write into the pod's condition why it waits; post an event when the reason is new."""
        condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
        status = _with_condition(pod, condition)
        if status != pod.get("status"):
            self._objects.replace_status(kinds.PODS, pod, status)
            self._objects.post_event(pod, "Warning", "FailedScheduling", message, _SCHEDULER_NAME)

    def _create_extended_claim(self, pod: Object, extended: ExtendedRequests) -> Object:
        """Create the claim for the pod's extended resources. Raises NotReserved, over quota for example."""
        metadata = pod["metadata"]
        body = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {
                "generateName": f"{metadata['name']}-extended-resources-",
                "annotations": {CLAIM_ANNOTATION: "true"},
                "ownerReferences": [pod_claims.owner_reference(pod)],
            },
            "spec": {"devices": {"requests": extended.requests}},
        }
        try:
            return self._objects.create(kinds.CLAIMS, metadata["namespace"], body)
        except Refused as refused:
            doing = f"create claim for extended resources {metadata['namespace']}/"
            raise NotReserved(f'running PreBind plugin "DynamicResources": {doing}: {refused}') from refused

    def _note_extended_claim(self, pod: Object, claim: Object, extended: ExtendedRequests) -> Object:
        made = {"resourceClaimName": claim["metadata"]["name"], "requestMappings": extended.mappings}
        status = {**pod.get("status", {}), "extendedResourceClaimStatus": made}
        return self._objects.replace_status(kinds.PODS, pod, status)

    def _drop_stale_claim(self, pod: Object) -> None:
        """Delete the claim for extended resources of an interrupted attempt: it may be for another node."""
        mine = (pod["metadata"]["name"], pod["metadata"]["uid"])
        for claim in self._objects.list(kinds.CLAIMS):
            annotations = claim["metadata"].get("annotations", {})
            is_extended = annotations.get(CLAIM_ANNOTATION) == "true"
            if is_extended and controlling_pod(claim) == mine and not is_deleted(claim):
                # With its finalizer a deleted claim would stay.
                bare = {**claim, "metadata": {**claim["metadata"], "finalizers": []}}
                self._objects.delete(kinds.CLAIMS, self._objects.replace(kinds.CLAIMS, bare))


def _missing_class(claims: Sequence[Object], view: ClusterView) -> str:
    """The message about the first request whose class does not exist; empty when all exist."""
    for claim in claims:
        for request in claim["spec"].get("devices", {}).get("requests", ()):
            named = [(request["name"], request["exactly"])] if "exactly" in request else []
            named += [(f"{request['name']}/{one['name']}", one) for one in request.get("firstAvailable", ())]
            for name, asked in named:
                if not view.has_class(asked["deviceClassName"]):
                    return f"request {name}: device class {asked['deviceClassName']} does not exist"
    return ""


def _on_node(
    pod: Object,
    node: Object,
    claims: Sequence[Object],
    by_class: Mapping[str, str | None],
    view: ClusterView,
) -> Placement | str:
    """A placement on this node, or the reason against it. Raises SchedulingFailed."""
    reason = reason_against(pod, node)
    if reason:
        return reason
    over_dra = _over_dra(node, by_class)
    if isinstance(over_dra, str):
        return over_dra
    if any(_is_elsewhere(claim, node) for claim in claims):
        return "resourceclaim not available on the node"
    # All claims of the pod that have no devices yet are allocated together.
    asked = [claim for claim in claims if not claim.get("status", {}).get("allocation")]
    extended = extended_requests(pod, over_dra) if over_dra else None
    if extended is not None:
        asked.append(_unstored_extended_claim(pod, extended))
    if not asked:
        return Placement(node, (), None)
    try:
        allocations = view.allocator.allocate(node, asked)
    except PoolInvalid:
        return "invalid resource pools were encountered"
    except AllocationFailed as error:
        raise SchedulingFailed(f'running "DynamicResources" filter plugin: {error.what}') from error
    if allocations is None:
        return "cannot allocate all claims"
    return Placement(node, allocations, extended)


def _is_elsewhere(claim: Object, node: Object) -> bool:
    """Whether the devices of a claim cannot be used from the node. Raises SchedulingFailed."""
    selector = (claim.get("status", {}).get("allocation") or {}).get("nodeSelector")
    try:
        return selector is not None and not node_selector_matches(selector, read_node(node))
    except NodeSelectorInvalid as error:
        raise SchedulingFailed(f'running PreFilter plugin "DynamicResources": {error.what}') from error


def _over_dra(node: Object, by_class: Mapping[str, str | None]) -> dict[str, str] | str:
    """The extended resources that the node gives through claims, with their classes, or why not the node."""
    found = {}
    for resource, device_class in by_class.items():
        # What a device plugin offers on the node goes before claims, even if its amount is used up.
        by_plugin = provides(node, resource)
        if device_class is not None and not by_plugin:
            found[resource] = device_class
        elif not by_plugin:
            return f"Insufficient {resource}"
    return found


def _unstored_extended_claim(pod: Object, extended: ExtendedRequests) -> Object:
    """The claim for extended resources as the allocator needs it, before it is created."""
    metadata = {"name": "<extended-resources>", "namespace": pod["metadata"]["namespace"], "uid": ""}
    return {"metadata": metadata, "spec": {"devices": {"requests": extended.requests}}}


def _with_condition(pod: Object, condition: Object) -> Object:
    """The pod's status with this condition in the place of the one of its type."""
    status = pod.get("status", {})
    conditions = status.get("conditions", ())
    before: Object = next((one for one in conditions if one["type"] == condition["type"]), {})
    if all(before.get(key) == condition.get(key) for key in ("status", "reason", "message")):
        return dict(status)
    since = before.get("lastTransitionTime") if before.get("status") == condition["status"] else None
    # The time of a condition is that of the last change of its status, not of its message.
    others = [one for one in conditions if one is not before]
    stamped = {**condition, "lastTransitionTime": since or now()}
    return {"phase": "Pending", **status, "conditions": [*others, stamped]}


def reason_against(pod: Mapping[str, Any], node: Mapping[str, Any]) -> str:
    """Why the pod may not be on the node, empty when it may.

    Looked at are, in the order of the real scheduler: spec.unschedulable, taints, the node selector and the
    required node affinity.
    """
    spec = node.get("spec", {})
    tolerations = pod["spec"].get("tolerations") or ()
    if spec.get("unschedulable") and untolerated_taint([CORDONED], tolerations):
        return "node(s) were unschedulable"
    if untolerated_taint(spec.get("taints") or (), tolerations):
        return "node(s) had untolerated taint(s)"
    if not has_what_pod_asks(read_node(node), pod["spec"]):
        return "node(s) didn't match Pod's node affinity/selector"
    return ""


def fit_error(node_count: int, before_nodes: str, reasons: Sequence[str], *, may_preempt: bool = True) -> str:
    """Why there is no place for a pod, in kube-scheduler's words (FitError).

    ``before_nodes`` is a reason that does not depend on the node; otherwise ``reasons`` has one for each
    node. The end of the message says that preemption does not help.
    """
    text = before_nodes
    if not before_nodes:
        counted = Counter(reasons)
        text = ", ".join(sorted(f"{count} {reason}" for reason, count in counted.items()))
    helpless = f"0/{node_count} nodes are available: {node_count} Preemption is not helpful for scheduling."
    ending = helpless if may_preempt else "not eligible due to preemptionPolicy=Never."
    return f"0/{node_count} nodes are available: {text}. preemption: {ending}"


class ClusterView:
    """The cluster at one moment, with the scheduler's own decisions since then added."""

    def __init__(self, objects: Objects) -> None:
        pods = objects.list(kinds.PODS)
        self.nodes = objects.list(kinds.NODES)
        self.classes = objects.list(kinds.CLASSES)
        self.waiting = sorted((pod for pod in pods if _waits(pod)), key=_turn)
        slices = tainted_slices(objects.list(kinds.SLICES), objects.list(kinds.TAINT_RULES))
        allocated = [
            claim for claim in objects.list(kinds.CLAIMS) if claim.get("status", {}).get("allocation")
        ]
        self.allocator = Allocator(slices, self.classes, allocated, objects.kubernetes)
        self._class_names = {one["metadata"]["name"] for one in self.classes}
        # One reading for all pods of a pass; its own decisions are added as they are made.
        self._load = {node["metadata"]["name"]: 0 for node in self.nodes}
        for pod in pods:
            node = (pod.get("spec") or {}).get("nodeName")
            if node and not is_terminal(pod):
                self.count_pod(node)

    def has_class(self, name: str) -> bool:
        """Whether there is such a DeviceClass."""
        return name in self._class_names

    def count_pod(self, node: str) -> None:
        """One more pod is bound to the node."""
        self._load[node] = self._load.get(node, 0) + 1

    def load(self, node: Object) -> int:
        """How many pods that have not ended are bound to the node."""
        return self._load[node["metadata"]["name"]]


def _waits(pod: Object) -> bool:
    """Whether this scheduler has to place the pod."""
    spec = pod.get("spec") or {}
    return bool(spec) and not (
        spec.get("nodeName")
        or is_deleted(pod)
        or is_terminal(pod)
        or spec.get("schedulingGates")
        or spec.get("schedulerName", _SCHEDULER_NAME) != _SCHEDULER_NAME
    )


def _turn(pod: Object) -> tuple[int, str, int, str]:
    """Higher priority first, then the older pod; within a second the one that was stored first."""
    metadata, priority = pod["metadata"], int(pod["spec"].get("priority") or 0)
    stored = int(metadata.get("resourceVersion", 0))
    return -priority, metadata.get("creationTimestamp", ""), stored, uid_of(pod)


class NotReserved(Exception):
    """A claim could not be written; the message is in kube-scheduler's words."""


def _reserve(objects: Objects, claim: Object, pod: Object, allocation: Object | None) -> Object:
    """Reserve the claim for the pod, and write its allocation if it has none yet; returns the stored claim.

    After a conflict with another writer it is tried again with the new state. Raises NotReserved.
    """
    metadata = claim["metadata"]
    for left in reversed(range(5)):
        try:
            return _written(objects, claim, pod, allocation)
        except Refused as refused:
            if refused.code != CONFLICT or not left:
                raise _not_reserved(claim, allocation, str(refused)) from refused
        found = objects.find(kinds.CLAIMS, metadata["namespace"], metadata["name"])
        if found is None or is_deleted(found):
            raise _not_reserved(claim, None, f"claim {metadata['name']} got deleted in the meantime")
        claim = found
    raise AssertionError("the last try returns or raises")


def _written(objects: Objects, claim: Object, pod: Object, allocation: Object | None) -> Object:
    status = claim.get("status", {})
    if allocation is not None:
        if status.get("allocation"):
            text = f"claim {claim['metadata']['name']} got allocated elsewhere in the meantime"
            raise _not_reserved(claim, None, text)
        finalizers = claim["metadata"].get("finalizers", [])
        if pod_claims.FINALIZER not in finalizers:
            metadata = {**claim["metadata"], "finalizers": [*finalizers, pod_claims.FINALIZER]}
            # A write of its own, and the first: the status subresource does not write metadata. The claim
            # cannot be deleted between the two.
            claim = objects.replace(kinds.CLAIMS, {**claim, "metadata": metadata})
        status = {**status, "allocation": {**allocation, "allocationTimestamp": now()}}
    if not pod_claims.is_reserved(claim, pod):
        status = {**status, "reservedFor": [*pod_claims.users_of(claim), pod_claims.user_of(pod)]}
    return objects.replace_status(kinds.CLAIMS, claim, status)


def _not_reserved(claim: Object, allocation: Object | None, text: str) -> NotReserved:
    metadata = claim["metadata"]
    doing = "add allocation and reservation" if allocation is not None else "add reservation"
    where = f"{metadata['namespace']}/{metadata['name']}"
    return NotReserved(f'running PreBind plugin "DynamicResources": {doing} to claim {where}: {text}')
