"""Finds the claims of a pod, also those not made yet, and what is wrong with them.

Extended resources are devices of a claim, too, on nodes where no device plugin gives them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gpuctl.explain.findings import Finding
from gpuctl.explain.snapshot import Object, Snapshot
from kubernetes_rules.extended_resources import class_of, extended_requests, pod_amounts, provides
from kubernetes_rules.pod_claims import ClaimEntry, claim_entries, extended_claim, is_made_for
from kubernetes_rules.quantity import Quantity, parse_quantity
from kubernetes_rules.quota import CLAIM_COUNT, device_charges, limits_claims, requests_name

_MAX_USERS = 256
"""How many pods may share a claim (resource.k8s.io/v1, reservedFor)."""

_MAKES_CLAIMS = "FailedResourceClaimCreation"
_RAISE_QUOTA = "end other pods of this namespace, or have the quota raised"


@dataclass(frozen=True, slots=True)
class PodClaims:
    """The claims that the pod has or will get, and what is wrong with them."""

    claims: tuple[Object, ...]
    findings: tuple[Finding, ...]
    extended: ExtendedResources | None = None
    """The pod's extended resources, as long as it has no claim for them."""


def claims_of_pod(
    pod: Object, snapshot: Snapshot, templates: Mapping[str, Object | None], events: Sequence[Object]
) -> PodClaims:
    """The claims of ``spec.resourceClaims`` and for extended resources; the pod names ``templates``."""
    namespace = pod["metadata"]["namespace"]
    claims: list[Object] = []
    findings: list[Finding] = []
    for entry in claim_entries(pod):
        claim = snapshot.claim(namespace, entry.claim) if entry.claim else None
        if claim is not None:
            claims.append(claim)
            findings += _state_findings(pod, claim, entry.template is not None)
        elif entry.claim:
            findings.append(_missing(entry.claim, entry))
        else:
            template = templates.get(entry.template or "")
            findings.append(_not_made(entry, template, events, snapshot))
            if template is not None:
                name = f"{pod['metadata']['name']}-{entry.name}"
                claims.append(unmade_claim(name, namespace, template["spec"]["spec"]))
    extended = _extended(pod, snapshot)
    return PodClaims((*claims, *extended.claims), (*findings, *extended.findings), extended.extended)


def _missing(name: str, entry: ClaimEntry) -> Finding:
    return Finding(
        "claim-missing",
        f"the claim {name} that the pod names as {entry.name} does not exist",
        "create it, or end the pod",
    )


def _not_made(
    entry: ClaimEntry, template: Object | None, events: Sequence[Object], snapshot: Snapshot
) -> Finding:
    """Why no claim was made from a template yet."""
    name = entry.template
    if template is None:
        return Finding("template-missing", f"the claim template {name} does not exist", "create it")
    messages = [str(event.get("message", "")) for event in events if event.get("reason") == _MAKES_CLAIMS]
    # The API server keeps an event for an hour, and this user may not be allowed to read it.
    if not messages and (over := _exceeded_quota(template["spec"]["spec"], snapshot)):
        messages = [over]
    if messages:
        message = messages[-1]
        quota = "exceeded quota" in message
        return Finding(
            "quota" if quota else "claim-not-made",
            f"no claim can be made from the template {name}: {message}",
            _RAISE_QUOTA if quota else "correct the template",
        )
    return Finding("claim-not-made", f"no claim was made from the template {name} yet", "wait a moment")


def _state_findings(pod: Object, claim: Object, generated: bool) -> list[Finding]:
    """What is wrong with a claim that exists."""
    metadata, status = claim["metadata"], claim.get("status") or {}
    name = metadata["name"]
    users = status.get("reservedFor") or ()
    found = []
    if metadata.get("deletionTimestamp"):
        users_left = ", ".join(str(user.get("name")) for user in users) or "nobody"
        found.append(
            Finding(
                "claim-deleting",
                f"the claim {name} is being deleted and still used by {users_left}",
                "end its users, then create it again",
            )
        )
    mine = any(user.get("uid") == pod["metadata"]["uid"] for user in users)
    if len(users) >= _MAX_USERS and not mine:
        found.append(
            Finding("claim-full", f"the claim {name} already has {_MAX_USERS} pods", "use another claim")
        )
    # Somebody may have made a claim under the very name that Kubernetes chose for the pod's.
    if generated and not is_made_for(claim, pod):
        found.append(Finding("claim-foreign", f"the claim {name} belongs to another pod", "delete the claim"))
    return found


def _extended(pod: Object, snapshot: Snapshot) -> PodClaims:
    """The claim that the scheduler makes for extended resources that DeviceClasses name (KEP-5004)."""
    name = extended_claim(pod)
    if name is not None:
        made = snapshot.claim(pod["metadata"]["namespace"], name)
        return PodClaims((made,) if made else (), ())
    extended = ExtendedResources(pod, snapshot)
    findings = [
        Finding(
            "extended-resource",
            f"no node has {resource} and no DeviceClass has it as extendedResourceName",
            "create such a DeviceClass, or ask for the devices with a claim",
        )
        for resource in extended.nowhere
    ]
    over = _over_quota(pod, extended, snapshot)
    return PodClaims((), (*findings, *([over] if over else [])), extended)


def _over_quota(pod: Object, extended: ExtendedResources, snapshot: Snapshot) -> Finding | None:
    """The quota that keeps the scheduler from making the claim for extended resources on any node."""
    # The claim is not charged for what the pod is charged for already: the resource by the name that the pod
    # uses, but not the class, nor the resource by the other name of the class.
    paid = {requests_name(name): amount for name, amount in pod_amounts(pod).items()}
    # Nodes with the same device plugins get one and the same claim object.
    claims = {id(claim): claim for claim in map(extended.claim_on, snapshot.nodes or ({},))}
    exceeded = [
        _exceeded_quota(claim["spec"], snapshot, paid) if claim else None for claim in claims.values()
    ]
    if None in exceeded:
        return None
    message = f"the claim for its extended resources cannot be made: {exceeded[0]}"
    return Finding("quota", message, _RAISE_QUOTA)


def _exceeded_quota(spec: Object, snapshot: Snapshot, paid: Mapping[str, int] | None = None) -> str | None:
    """Which quota a claim with this spec would exceed; None if it exceeds none.

    ``paid`` is what the pod is charged for already, for a claim that is made for its extended resources.
    """
    asked = device_charges(spec, snapshot.device_class, paid) | {CLAIM_COUNT: 1}
    for quota in filter(limits_claims, snapshot.quotas):
        status = quota.get("status") or {}
        for resource, limit in sorted((status.get("hard") or {}).items()):
            used = parse_quantity(str((status.get("used") or {}).get(resource, "0")))
            if resource in asked and used + asked[resource] > parse_quantity(str(limit)):
                name = quota["metadata"]["name"]
                return (
                    f"exceeded quota: {name}, asked for {asked[resource]} of {resource}, "
                    f"used {used.normalize():f}, limited to {limit}"
                )
    return None


def unused_claims(pod: Object) -> tuple[Finding, ...]:
    """A finding for each entry of the pod's ``resourceClaims`` that no container names."""
    spec = pod["spec"]
    used = {
        one["name"]
        for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
        for one in (container.get("resources") or {}).get("claims") or ()
    }
    return tuple(
        Finding(
            "unused-claim",
            f"no container of the pod uses its claim {entry['name']}, so none sees its devices",
            f"give a container resources: {{claims: [{{name: {entry['name']}}}]}}, and create the pod again",
        )
        for entry in spec.get("resourceClaims") or ()
        if entry["name"] not in used
    )


class ExtendedResources:
    """The extended resources of one pod that has no claim for them yet (KEP-5004).

    A node with a device plugin for a resource gives it from there; for other nodes the scheduler makes a
    claim for the DeviceClass that names it. Go: filterExtendedResources in plugins/dynamicresources.
    """

    def __init__(self, pod: Object, snapshot: Snapshot) -> None:
        self._pod = pod
        self._pods = snapshot.pods or ()
        self._asked = {name: amount for name, amount in pod_amounts(pod).items() if amount}
        self._class_of = {name: class_of(name, snapshot.classes) for name in sorted(self._asked)}
        self._claims: dict[tuple[str, ...], Object] = {}
        self.nowhere = tuple(
            name
            for name, device_class in self._class_of.items()
            if device_class is None and not any(provides(node, name) for node in snapshot.nodes)
        )
        """The resources that no DeviceClass names and no node has."""

    @property
    def asks_devices(self) -> bool:
        """Whether the pod asks for any extended resource."""
        return bool(self._asked)

    def claim_on(self, node: Object) -> Object | None:
        """The claim that the pod would get on this node; None if it needs none there."""
        backed = {
            name: device_class
            for name, device_class in self._class_of.items()
            if device_class is not None and not provides(node, name)
        }
        key = tuple(backed)
        if key not in self._claims:
            requests = list(extended_requests(self._pod, backed).requests)
            name = f"{self._pod['metadata']['name']}-extended-resources"
            spec = {"devices": {"requests": requests}}
            claim = unmade_claim(name, self._pod["metadata"]["namespace"], spec)
            self._claims[key] = claim if requests else {}
        return self._claims[key] or None

    def missing_on(self, node: Object) -> str | None:
        """Which resource the node has neither from a device plugin nor by a claim; None if there is none."""
        for name, device_class in self._class_of.items():
            if device_class is None and name not in self.nowhere and not provides(node, name):
                return f"it has no {name}"
        return None

    def shortage_on(self, node: Object) -> str | None:
        """Which resource the node's device plugins have too little of now; None if they have enough."""
        for name, asked in self._asked.items():
            if not provides(node, name):
                continue
            there = Quantity.parse(str(node["status"]["allocatable"][name])).scaled(0)
            used = self._used[node["metadata"]["name"], name]
            if there - used < asked:
                pods = f", {used} of them for other pods" if used else ""
                return f"its device plugin has {there} {name}{pods}; the pod needs {asked}"
        return None

    @cached_property
    def _used(self) -> Counter[tuple[str, str]]:
        """How much device plugins have given to pods, by node and resource, without amounts by claims."""
        used: Counter[tuple[str, str]] = Counter()
        for pod in self._pods:
            by_claim = _by_claim(pod)
            for resource, amount in pod_amounts(pod).items():
                if resource in self._asked and resource not in by_claim:
                    used[str(pod["spec"].get("nodeName")), resource] += amount
        return used


def unmade_claim(name: str, namespace: str, spec: Object) -> Object:
    """A claim that does not exist yet, as it will be made."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": namespace, "uid": f"{namespace}/{name}"},
        "spec": spec,
    }


def _by_claim(pod: Mapping[str, Any]) -> set[str]:
    """The extended resources that a pod has by a claim."""
    status = (pod.get("status") or {}).get("extendedResourceClaimStatus") or {}
    return {str(one.get("resourceName")) for one in status.get("requestMappings") or ()}
