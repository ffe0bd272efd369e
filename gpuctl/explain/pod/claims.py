"""Finds the claims of a pod, also those not made yet, and what is wrong with them.

Extended resources are devices of a claim, too, on nodes where no device plugin gives them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuctl.explain.findings import Finding
from gpuctl.explain.snapshot import Object, Snapshot
from kubernetes_rules.extended_resources import ExtendedResources, pod_amounts
from kubernetes_rules.pod_claims import (
    ClaimEntry,
    claim_entries,
    extended_claim,
    is_made_for,
    unmade_claim,
)
from kubernetes_rules.quantity import parse_quantity
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


def made_claims(pod: Object, snapshot: Snapshot) -> list[Object]:
    """The claims of a pod that exist."""
    names = [entry.claim for entry in claim_entries(pod)] + [extended_claim(pod)]
    found = (snapshot.claim(pod["metadata"]["namespace"], name) for name in names if name)
    return [claim for claim in found if claim is not None]


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
    extended = ExtendedResources(pod, snapshot.classes, snapshot.nodes, snapshot.pods or ())
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
