"""The claims of a pod, those not made yet included: what keeps them from being made, and which are unused."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuctl.explain.findings import Finding
from gpuctl.explain.pod.extended import ExtendedResources, unmade_claim
from gpuctl.explain.snapshot import Snapshot
from kubernetes_rules.extended_resources import pod_amounts
from kubernetes_rules.pod_claims import ClaimEntry, claim_entries, extended_claim, is_made_for
from kubernetes_rules.quantity import parse_quantity
from kubernetes_rules.quota import CLAIM_COUNT, device_charges, limits_claims, requests_name

Object = dict[str, Any]

_MAX_USERS = 256
"""So many pods may share a claim (resource.k8s.io/v1, reservedFor)."""

_MAKES_CLAIMS = "FailedResourceClaimCreation"
_RAISE_QUOTA = "end other pods of this namespace, or have the quota raised"


@dataclass(frozen=True, slots=True)
class PodClaims:
    """The claims that the pod has or would get, and what is wrong with them."""

    claims: tuple[Object, ...]
    findings: tuple[Finding, ...]
    extended: ExtendedResources | None = None
    """What it asks for by extended resources, while it has no claim for them."""


def claims_of_pod(
    pod: Object, snapshot: Snapshot, templates: Mapping[str, Object | None], events: Sequence[Object]
) -> PodClaims:
    """Resolve ``spec.resourceClaims`` and extended resources; ``templates`` are those that the pod names."""
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
    """Why there is no claim of a template yet."""
    name = entry.template
    if template is None:
        return Finding("template-missing", f"the claim template {name} does not exist", "create it")
    told = [str(event.get("message", "")) for event in events if event.get("reason") == _MAKES_CLAIMS]
    over = _exceeded_quota(template["spec"]["spec"], snapshot.quotas, snapshot.device_class)
    if over is not None and not told:  # the event may have been forgotten, or hidden from this user
        told = [over]
    if told:
        message = told[-1]
        quota = "exceeded quota" in message
        return Finding(
            "quota" if quota else "claim-not-made",
            f"no claim can be made from the template {name}: {message}",
            _RAISE_QUOTA if quota else "correct the template",
        )
    return Finding("claim-not-made", f"no claim was made from the template {name} yet", "wait a moment")


def _state_findings(pod: Object, claim: Object, generated: bool) -> list[Finding]:
    """What is odd about a claim that is there."""
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
                "end its users; then create it anew",
            )
        )
    mine = any(user.get("uid") == pod["metadata"]["uid"] for user in users)
    if len(users) >= _MAX_USERS and not mine:
        found.append(
            Finding("claim-full", f"the claim {name} has {_MAX_USERS} pods already", "use another claim")
        )
    if generated and not is_made_for(claim, pod):
        found.append(Finding("claim-foreign", f"the claim {name} belongs to another pod", "delete the claim"))
    return found


def _extended(pod: Object, snapshot: Snapshot) -> PodClaims:
    """The special claim for extended resources that DeviceClasses name (KEP-5004)."""
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
    """The quota that keeps the scheduler from making the special claim, wherever one is needed.

    The claim is not charged for what the pod is charged for already: the resource by the name that the pod
    uses, but not by the class, nor by the other name of the class.
    """
    paid = {requests_name(name): amount for name, amount in pod_amounts(pod).items()}
    claims = {id(claim): claim for claim in map(extended.claim_on, snapshot.nodes or ({},))}  # few are unlike
    told = [
        _exceeded_quota(claim["spec"], snapshot.quotas, snapshot.device_class, paid) if claim else None
        for claim in claims.values()
    ]
    if None in told:
        return None
    message = f"the claim for its extended resources cannot be made: {told[0]}"
    return Finding("quota", message, _RAISE_QUOTA)


def _exceeded_quota(
    spec: Object,
    quotas: Sequence[Object],
    device_class: Callable[[str], Object | None],
    paid: Mapping[str, int] | None = None,
) -> str | None:
    """Which quota a claim with this spec would exceed, in words; None if none.

    ``quotas`` are those of its namespace, with their status; ``device_class`` finds a DeviceClass by name.
    ``paid`` is what the pod is charged already for which a claim of extended resources is made.
    """
    asked = device_charges(spec, device_class, paid) | {CLAIM_COUNT: 1}
    for quota in filter(limits_claims, quotas):
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
            f"no container of the pod uses its claim {entry['name']}, so none sees a device of it",
            f"give a container resources: {{claims: [{{name: {entry['name']}}}]}}, and create the pod anew",
        )
        for entry in spec.get("resourceClaims") or ()
        if entry["name"] not in used
    )
