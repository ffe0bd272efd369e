"""Holds what was read of a cluster; the checks are functions of it alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpuctl.cli.cluster import Object
from gpuctl.cli.unread import Listed, Unread


@dataclass(frozen=True, slots=True)
class Right:
    """One thing that RBAC may allow; an empty ``name`` or ``namespace`` means all."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        kind = f"{self.resource}.{self.group}" if self.group else self.resource
        name = f" {self.name}" if self.name else ""
        return f"{self.verb} {kind}{name}" + (f" in {self.namespace}" if self.namespace else "")


@dataclass(frozen=True, slots=True)
class ClusterSeen:
    """A cluster at one moment; ``now`` is in seconds since 1970, ``node`` is the node that the user named.

    ``features`` are the feature gates of the API server by name. ``dropped_fields`` are the fields that it
    left out of slices in a dry run. ``own_rights`` are this user's rights, ``account_rights`` those of the
    driver's service accounts by ``namespace/name``; a right is True if it is granted. ``webhook_answer`` is
    what the API server answers to a claim that the webhook has to deny; empty if the webhook denies it.
    """

    gpuctl_version: str
    server_version: Mapping[str, Any] | Unread
    dra_resources: tuple[str, ...] | Unread
    features: Mapping[str, bool] | Unread
    dropped_fields: frozenset[str] | Unread
    own_rights: Mapping[Right, bool] | Unread
    account_rights: Mapping[str, Mapping[Right, bool] | Unread]
    nodes: Listed
    slices: Listed
    classes: Listed
    claims: Listed
    pods: Listed
    daemon_sets: Listed
    deployments: Listed
    webhooks: Listed
    services: Listed
    endpoint_slices: Listed
    policies: Listed
    bindings: Listed
    events: Listed
    webhook_answer: str | Unread
    now: float
    node: str | None = None
    namespaces: tuple[str, ...] = field(default=("gpu-dra",))


def containers_of(pod_spec: Object) -> Iterator[Object]:
    """All containers of a pod's spec, init containers and those of ``kubectl debug`` included."""
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        yield from pod_spec.get(kind) or ()


def name_of(item: Object) -> str:
    """The name of an object."""
    return str(item["metadata"]["name"])


def namespace_of(item: Object) -> str:
    """The namespace of an object, empty without one."""
    return str(item["metadata"].get("namespace") or "")
