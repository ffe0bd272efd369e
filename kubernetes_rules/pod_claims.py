"""Finds the ResourceClaims that a pod uses, and the pod that a claim was made for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Json = Mapping[str, Any]
Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ClaimEntry:
    """An entry of ``spec.resourceClaims`` and the name of its claim, None until the claim is created.

    ``template`` names the ResourceClaimTemplate, None if the pod names a claim itself. The pod may use a
    claim from a template only if ``is_made_for`` says so.
    """

    name: str
    claim: str | None
    template: str | None


def claim_entries(pod: Json) -> list[ClaimEntry]:
    """The entries of a pod (core/v1) in their order, without those that need no claim.

    Go: Name in dynamic-resource-allocation/resourceclaim/resourceclaim.go.
    """
    statuses = (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    made = {one["name"]: one.get("resourceClaimName") for one in statuses}
    found = []
    for entry in pod["spec"].get("resourceClaims") or ():
        name = entry["name"]
        if entry.get("resourceClaimName"):
            found.append(ClaimEntry(name, str(entry["resourceClaimName"]), None))
        # An entry in resourceClaimStatuses without a name says that no claim is needed.
        elif name not in made or made[name]:
            found.append(ClaimEntry(name, made.get(name), entry.get("resourceClaimTemplateName")))
    return found


def extended_claim(pod: Json) -> str | None:
    """The name of the claim that the scheduler made for a pod's extended resources, None without one."""
    status = (pod.get("status") or {}).get("extendedResourceClaimStatus")
    return str(status["resourceClaimName"]) if status else None


def controlling_pod(claim: Json) -> tuple[str, str] | None:
    """Name and UID of the pod that controls a claim, None if no pod does."""
    # An object has at most one owner with ``controller``.
    for owner in claim["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            is_pod = (owner.get("apiVersion"), owner.get("kind")) == ("v1", "Pod")
            return (str(owner.get("name")), str(owner.get("uid"))) if is_pod else None
    return None


def is_made_for(claim: Json, pod: Json) -> bool:
    """Whether a claim was made for this pod: the pod is its controller, with the same UID.

    Go: IsForPod in dynamic-resource-allocation/resourceclaim/resourceclaim.go.
    """
    return controlling_pod(claim) == (pod["metadata"]["name"], pod["metadata"].get("uid") or "")


def unmade_claim(name: str, namespace: str, spec: Json) -> Object:
    """A claim that does not exist yet, as it will be made."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": namespace, "uid": f"{namespace}/{name}"},
        "spec": spec,
    }
