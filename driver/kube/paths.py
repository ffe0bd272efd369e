"""Spells the API paths of the objects that the driver reads and writes."""

from __future__ import annotations

from urllib.parse import quote, urlsplit

RESOURCE_SLICES = "/apis/resource.k8s.io/v1/resourceslices"
NODES = "/api/v1/nodes"


def object_path(collection: str, name: str) -> str:
    """The path of one object in a collection; the name is quoted."""
    return f"{collection}/{quote(name, safe='')}"


def pod_path(namespace: str, name: str) -> str:
    """The path of a Pod; namespace and name are quoted."""
    return object_path(f"/api/v1/namespaces/{quote(namespace, safe='')}/pods", name)


def claim_path(namespace: str, name: str) -> str:
    """The path of a ResourceClaim; namespace and name may come from outside, and are quoted."""
    namespaced = f"/apis/resource.k8s.io/v1/namespaces/{quote(namespace, safe='')}"
    return object_path(f"{namespaced}/resourceclaims", name)


def events_path(namespace: str) -> str:
    """The collection of core/v1 Events of a namespace."""
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/events"


def resource_of(url: str) -> str:
    """The resource of a URL, in the plural: ``resourceclaims``; empty if it has none.

    API paths are ``/api/v1/…`` or ``/apis/GROUP/VERSION/…``, with or without a namespace.
    """
    parts = urlsplit(url).path.strip("/").split("/")
    start = {"api": 2, "apis": 3}.get(parts[0])
    rest = parts[start:] if start is not None else []
    # ``/namespaces/NAME`` itself is the Namespace object, and so a resource.
    if len(rest) > 2 and rest[0] == "namespaces":
        rest = rest[2:]
    return rest[0] if rest else ""
