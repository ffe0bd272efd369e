"""The addresses of the objects that tests of a DRA driver handle; without a name, of the collection."""

from __future__ import annotations

RESOURCE_API = "/apis/resource.k8s.io/v1"


def node(name: str = "") -> str:
    """A Node."""
    return _joined("/api/v1/nodes", name)


def namespace(name: str = "") -> str:
    """A Namespace."""
    return _joined("/api/v1/namespaces", name)


def pod(name: str = "", namespace: str = "default") -> str:
    """A Pod."""
    return _joined(f"/api/v1/namespaces/{namespace}/pods", name)


def service_account(name: str = "", namespace: str = "default") -> str:
    """A ServiceAccount."""
    return _joined(f"/api/v1/namespaces/{namespace}/serviceaccounts", name)


def event(name: str = "", namespace: str = "default") -> str:
    """An Event."""
    return _joined(f"/api/v1/namespaces/{namespace}/events", name)


def workloads(namespace: str = "default") -> list[str]:
    """The collections of workloads, which make pods."""
    apps, batch = (f"/apis/{group}/v1/namespaces/{namespace}" for group in ("apps", "batch"))
    return [
        *(f"{apps}/{name}" for name in ("deployments", "replicasets", "daemonsets", "statefulsets")),
        f"{batch}/jobs",
    ]


def resource_slice(name: str = "") -> str:
    """A ResourceSlice."""
    return _joined(f"{RESOURCE_API}/resourceslices", name)


def device_class(name: str = "") -> str:
    """A DeviceClass."""
    return _joined(f"{RESOURCE_API}/deviceclasses", name)


def resource_claim(name: str = "", namespace: str = "default") -> str:
    """A ResourceClaim."""
    return _joined(f"{RESOURCE_API}/namespaces/{namespace}/resourceclaims", name)


def _joined(collection: str, name: str) -> str:
    return f"{collection}/{name}" if name else collection
