"""Spells the API paths of the objects that the driver reads and writes."""

from __future__ import annotations

from urllib.parse import quote

RESOURCE_SLICES = "/apis/resource.k8s.io/v1/resourceslices"
NODES = "/api/v1/nodes"


def object_path(collection: str, name: str) -> str:
    """The path of one object in a collection; the name is quoted, whatever it holds."""
    return f"{collection}/{quote(name, safe='')}"


def claim_path(namespace: str, name: str) -> str:
    """The path of a ResourceClaim; both parts may come from outside and are quoted."""
    namespaced = f"/apis/resource.k8s.io/v1/namespaces/{quote(namespace, safe='')}"
    return object_path(f"{namespaced}/resourceclaims", name)


def events_path(namespace: str) -> str:
    """The collection of core/v1 Events of a namespace."""
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/events"
