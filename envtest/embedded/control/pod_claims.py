"""Finds the ResourceClaims of pods, as the scheduler, the claim controller and the kubelet all do it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from envtest.embedded.control import kinds
from envtest.embedded.control.objects import Objects, uid_of
from kubernetes_rules.pod_claims import claim_entries, is_made_for

Object = dict[str, Any]

# Keeps a claim from being deleted while it is allocated.
FINALIZER = "resource.kubernetes.io/delete-protection"
POD_CLAIM_ANNOTATION = "resource.kubernetes.io/pod-claim-name"


class ClaimNotUsable(Exception):
    """A pod cannot use one of its claims (yet); the message is in the words of Kubernetes."""


@dataclass(frozen=True, slots=True)
class PodClaim:
    """An entry of spec.resourceClaims and the name of its claim, ``generated`` if it is from a template."""

    entry: str
    claim: str
    generated: bool


def pod_claims(pod: Mapping[str, Any]) -> list[PodClaim]:
    """The claims of a pod in their order. Raises ClaimNotUsable when one is still to be made."""
    found = []
    for entry in claim_entries(pod):
        if entry.claim is None:
            metadata = pod["metadata"]
            raise ClaimNotUsable(
                f'pod "{metadata["namespace"]}/{metadata["name"]}": ResourceClaim not created yet'
            )
        found.append(PodClaim(entry.name, entry.claim, generated=entry.template is not None))
    return found


def claims_of_pod(objects: Objects, pod: Mapping[str, Any]) -> list[tuple[PodClaim, Object]]:
    """The claims of a pod, each of which exists and may be used by it. Raises ClaimNotUsable."""
    found = []
    for one in pod_claims(pod):
        claim = objects.find(kinds.CLAIMS, pod["metadata"]["namespace"], one.claim)
        if claim is None:
            raise claim_not_found(one.claim)
        # Somebody else may have made a claim of that name.
        if one.generated:
            check_owner(pod, claim)
        found.append((one, claim))
    return found


def claim_not_found(name: str) -> ClaimNotUsable:
    """The error for a claim that is not there."""
    return ClaimNotUsable(f'fetch ResourceClaim {name}: resourceclaims.resource.k8s.io "{name}" not found')


def check_owner(pod: Mapping[str, Any], claim: Mapping[str, Any]) -> None:
    """Raises ClaimNotUsable when a claim was not made for the pod."""
    if not is_made_for(claim, pod):
        theirs, mine = claim["metadata"], pod["metadata"]
        raise ClaimNotUsable(
            f"ResourceClaim {theirs['namespace']}/{theirs['name']} was not created for Pod "
            f"{mine['namespace']}/{mine['name']} (Pod is not owner)"
        )


def owner_reference(pod: Mapping[str, Any]) -> Object:
    """The owner reference by which a pod owns a claim."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": pod["metadata"]["name"],
        "uid": uid_of(pod),
        "controller": True,
    }


def results_of(claim: Mapping[str, Any]) -> Sequence[Object]:
    """The devices that a claim was given."""
    allocation = claim.get("status", {}).get("allocation") or {}
    found: Sequence[Object] = allocation.get("devices", {}).get("results", ())
    return found


def users_of(claim: Mapping[str, Any]) -> list[Object]:
    """The consumers that a claim is reserved for."""
    return list(claim.get("status", {}).get("reservedFor", ()))


def is_reserved(claim: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    """Whether a claim is reserved for a pod."""
    return uid_of(pod) in (user["uid"] for user in users_of(claim))


def user_of(pod: Mapping[str, Any]) -> Object:
    """The entry in ``status.reservedFor`` of a claim for a pod."""
    return {"resource": "pods", "name": pod["metadata"]["name"], "uid": uid_of(pod)}
