"""What a pod asks for: its claims, also those that the scheduler makes for its extended resources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kubernetes_rules.extended_resources import ExtendedResources
from kubernetes_rules.pod_claims import claim_entries, extended_claim, is_made_for

Json = Mapping[str, Any]
Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Asked:
    """What a pod asks for, or a claim alone (``pod`` is None then).

    ``claims`` may have their devices already or not. The claim for ``extended`` resources may differ from
    node to node.
    """

    pod: Object | None
    claims: tuple[Object, ...]
    extended: ExtendedResources | None = None

    def on(self, node: Object) -> tuple[Object, ...]:
        """The claims that still need devices, on one node."""
        special = self.extended.claim_on(node) if self.extended else None
        bare = tuple(one for one in self.claims if not is_allocated(one))
        return (*bare, special) if special else bare

    def missing_on(self, node: Object) -> str | None:
        """Why the node can never give one of the extended resources."""
        return self.extended.missing_on(node) if self.extended else None

    def shortage_on(self, node: Object) -> str | None:
        """Which extended resource the node's device plugin has too little of now."""
        return self.extended.shortage_on(node) if self.extended else None


def asked_of(
    pod: Object,
    claims: Mapping[tuple[str, str], Object],
    classes: Sequence[Json],
    nodes: Sequence[Json],
    pods: Sequence[Json],
) -> Asked | str:
    """What a pod asks for, or why that cannot be said, as a sentence.

    ``claims`` are by namespace and name, ``pods`` are those on nodes.
    """
    namespace = str(pod["metadata"]["namespace"])
    found = []
    for entry in claim_entries(pod):
        if entry.claim is None:
            return f"its claim {entry.name} is not made yet"
        claim = claims.get((namespace, entry.claim))
        if claim is None:
            return f"its claim {entry.claim} does not exist"
        if claim["metadata"].get("deletionTimestamp"):
            return f"its claim {entry.claim} is being deleted"
        if entry.template is not None and not is_made_for(claim, pod):
            return f"its claim {entry.claim} belongs to another pod"
        found.append(claim)
    special = extended_claim(pod)
    if special is None:
        return Asked(pod, tuple(found), ExtendedResources(pod, classes, nodes, pods))
    claim = claims.get((namespace, special))
    return Asked(pod, (*found, claim)) if claim else f"its claim {special} does not exist"


def is_allocated(claim: Object) -> bool:
    """Whether a claim has its devices."""
    return bool((claim.get("status") or {}).get("allocation"))
