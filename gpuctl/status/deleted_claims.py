"""Finds the pods that still have devices from claims which somebody deleted.

Kubernetes deletes no claim that a pod has, unless somebody takes the finalizer away. A scheduler takes the
devices for free then, and a quota counts them no more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Object = Mapping[str, Any]

_ENDED = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True)
class Orphan:
    """A pod on a node whose claim is gone, or is another one of that name."""

    namespace: str
    pod: str
    node: str
    claim: str

    def __str__(self) -> str:
        return (
            f"pod {self.namespace}/{self.pod} on {self.node} has devices from claim {self.claim}, "
            "which is deleted"
        )


def orphans(pods: Iterable[Object], claims: Iterable[Object]) -> tuple[Orphan, ...]:
    """The pods that run without one of their claims, by namespace and name.

    A pod runs only while its claim is reserved for it (``status.reservedFor``).
    """
    users = {
        (claim["metadata"].get("namespace"), claim["metadata"].get("name"), user.get("uid"))
        for claim in claims
        for user in (claim.get("status") or {}).get("reservedFor") or ()
    }
    found = [
        Orphan(pod["metadata"]["namespace"], pod["metadata"]["name"], pod["spec"]["nodeName"], name)
        for pod in pods
        if (pod.get("status") or {}).get("phase") not in _ENDED and (pod.get("spec") or {}).get("nodeName")
        for name in _claims_of(pod)
        if (pod["metadata"]["namespace"], name, pod["metadata"].get("uid")) not in users
    ]
    return tuple(sorted(found, key=lambda one: (one.namespace, one.pod, one.claim)))


def _claims_of(pod: Object) -> Iterator[str]:
    """The names of a pod's claims: those that it names itself, and those that were made for it."""
    made = (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    yield from (str(one["resourceClaimName"]) for one in made if one.get("resourceClaimName"))
    named = (pod.get("spec") or {}).get("resourceClaims") or ()
    yield from (str(one["resourceClaimName"]) for one in named if one.get("resourceClaimName"))
