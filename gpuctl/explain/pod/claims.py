"""Finds the claims of a pod, also those not made yet, and what is wrong with them.

Extended resources are devices of a claim, too, on nodes where no device plugin gives them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gpuctl.cli.cluster import Object
from gpuctl.explain.findings import Finding
from gpuctl.explain.snapshot import Snapshot
from kubernetes_rules.pod_claims import (
    ExtendedResources,
    asked_resources,
    claim_entries,
    extended_claim,
    is_made_for,
    pod_amounts,
    provides,
    unmade_claim,
)
from kubernetes_rules.preemption.cluster import Asked
from kubernetes_rules.quantity import parse_quantity
from kubernetes_rules.quota import CLAIM_COUNT, device_charges, limits_claims, requests_name

_MAX_USERS = 256
"""How many pods may share a claim (resource.k8s.io/v1, reservedFor)."""

_MAKES_CLAIMS = "FailedResourceClaimCreation"
_RAISE_QUOTA = "end other pods of this namespace, or have the quota raised"

CLAIM_NOT_MADE = "claim-not-made"
"""The kind of the one finding about a claim that does not keep room from helping."""


def claims_of_pod(pod: Object, snapshot: Snapshot) -> tuple[Asked, tuple[Finding, ...]]:
    """What a pod asks for by ``spec.resourceClaims`` and extended resources, and what is wrong with it."""
    namespace = pod["metadata"]["namespace"]
    claims: list[Object] = []
    findings: list[Finding] = []
    for entry in claim_entries(pod):
        claim = snapshot.claim(namespace, entry.claim) if entry.claim else None
        if claim is not None:
            claims.append(claim)
            findings += _state_findings(pod, claim, entry.template is not None)
        elif entry.claim:
            message = f"the claim {entry.claim} that the pod names as {entry.name} does not exist"
            findings.append(Finding("claim-missing", message, "create it, or end the pod"))
        else:
            template = snapshot.template(namespace, entry.template or "")
            findings += _not_made(pod, entry.template, template, snapshot)
            if template is not None:
                name = f"{pod['metadata']['name']}-{entry.name}"
                claims.append(unmade_claim(name, namespace, template["spec"]["spec"]))
    special = extended_claim(pod)
    if special is not None:
        made = snapshot.claim(namespace, special)
        return Asked(pod, (*claims, *([made] if made else ()))), tuple(findings)
    # What a device plugin has left follows from all pods on the node: nothing else in the API says it.
    by_plugin = any(provides(node, one) for one in asked_resources(pod) for node in snapshot.nodes)
    others = snapshot.pods_on_nodes if by_plugin else ()
    extended = ExtendedResources(pod, snapshot.classes, snapshot.nodes, others)
    findings += _extended_findings(pod, extended, snapshot)
    return Asked(pod, tuple(claims), extended), tuple(findings)


def _not_made(
    pod: Object, name: str | None, template: Object | None, snapshot: Snapshot
) -> Iterator[Finding]:
    """Why no claim was made from a template yet; nothing of a pod that is not made itself."""
    if template is None:
        yield Finding("template-missing", f"the claim template {name} does not exist", "create it")
        return
    said = [str(one.get("message", "")) for one in snapshot.events(pod, _MAKES_CLAIMS)]
    # The API server keeps an event for an hour, and this user may not be allowed to read it.
    message = said[-1] if said else _exceeded_quota(pod, template["spec"]["spec"], snapshot)
    if message:
        quota = "exceeded quota" in message
        kind, remedy = ("quota", _RAISE_QUOTA) if quota else (CLAIM_NOT_MADE, "correct the template")
        yield Finding(kind, f"no claim can be made from the template {name}: {message}", remedy)
    elif pod["metadata"].get("uid"):
        yield Finding(CLAIM_NOT_MADE, f"no claim was made from the template {name} yet", "wait a moment")


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
    mine = any(user.get("uid") == pod["metadata"].get("uid") for user in users)
    if len(users) >= _MAX_USERS and not mine:
        found.append(
            Finding("claim-full", f"the claim {name} already has {_MAX_USERS} pods", "use another claim")
        )
    # Somebody may have made a claim under the very name that Kubernetes chose for the pod's.
    if generated and not is_made_for(claim, pod):
        found.append(Finding("claim-foreign", f"the claim {name} belongs to another pod", "delete the claim"))
    return found


def _extended_findings(pod: Object, extended: ExtendedResources, snapshot: Snapshot) -> Iterator[Finding]:
    """What keeps extended resources from becoming a claim of the scheduler (KEP-5004)."""
    for resource in extended.nowhere:
        yield Finding(
            "extended-resource",
            f"no node has {resource} and no DeviceClass has it as extendedResourceName",
            "create such a DeviceClass, or ask for the devices with a claim",
        )
    over = _over_quota(pod, extended, snapshot)
    if over is not None:
        yield over


def _over_quota(pod: Object, extended: ExtendedResources, snapshot: Snapshot) -> Finding | None:
    """The quota that keeps the scheduler from making the claim for extended resources on any node."""
    # The claim is not charged for what the pod is charged for already: the resource by the name that the pod
    # uses, but not the class, nor the resource by the other name of the class.
    paid = {requests_name(name): amount for name, amount in pod_amounts(pod).items()}
    # Nodes with the same device plugins get one and the same claim object.
    claims = {id(claim): claim for claim in map(extended.claim_on, snapshot.nodes or ({},))}
    exceeded = [
        _exceeded_quota(pod, claim["spec"], snapshot, paid) if claim else None for claim in claims.values()
    ]
    if None in exceeded:
        return None
    message = f"the claim for its extended resources cannot be made: {exceeded[0]}"
    return Finding("quota", message, _RAISE_QUOTA)


def _exceeded_quota(
    pod: Object, spec: Object, snapshot: Snapshot, paid: Mapping[str, int] | None = None
) -> str | None:
    """Which quota a claim of the pod with this spec would exceed; None if it exceeds none.

    ``paid`` is what the pod is charged for already, for a claim that is made for its extended resources.
    """
    asked = device_charges(spec, snapshot.device_class, paid) | {CLAIM_COUNT: 1}
    for quota in filter(limits_claims, snapshot.quotas(pod["metadata"]["namespace"])):
        status = quota.get("status") or {}
        for resource, limit in sorted((status.get("hard") or {}).items()):
            if resource not in asked:
                continue
            used = parse_quantity(str((status.get("used") or {}).get(resource, "0")))
            if used + asked[resource] > parse_quantity(str(limit)):
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
