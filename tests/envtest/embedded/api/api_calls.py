"""Asks the embedded API server over plain HTTP, so that a test sees status, headers and body."""

import http.client
import json
from dataclasses import dataclass
from typing import Any

from tests.clusters import EmbeddedApiServer, Object

PODS = "/api/v1/namespaces/default/pods"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
QUOTAS = "/api/v1/namespaces/default/resourcequotas"


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer: ``body`` is None where it is no JSON."""

    code: int
    headers: dict[str, str]
    body: Any


def shown(server: EmbeddedApiServer) -> dict[str, str]:
    """The header that shows the administrator's token."""
    return {"Authorization": f"Bearer {server.gate.admin_bearer}"}


def ask(
    server: EmbeddedApiServer,
    method: str,
    path: str,
    body: Any = None,
    *,
    accept: str = "application/json",
    content_type: str = "application/json",
) -> Answer:
    """Send one request; ``body`` is sent as it is when it is bytes, else as JSON."""
    connection = http.client.HTTPConnection(server.address, timeout=10)
    try:
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Accept": accept, "Content-Type": content_type, **shown(server)}
        connection.request(method, path, data, headers)
        response = connection.getresponse()
        content = response.read()
        headers = {name.lower(): value for name, value in response.getheaders()}
    finally:
        connection.close()
    is_json = headers.get("content-type", "").startswith("application/json")
    return Answer(response.status, headers, json.loads(content) if is_json else None)


def pod(name: str, **spec: Any) -> Object:
    """A pod with one container."""
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "busybox"}], **spec}}


def claim(name: str, **exactly: Any) -> Object:
    """A claim with one request."""
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com", **exactly}}
    return {"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}}


def resource_slice(name: str, **spec: Any) -> Object:
    """A slice of a node's pool."""
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    return {
        "metadata": {"name": name},
        "spec": {"driver": "a.example.com", "nodeName": "n", "pool": pool, **spec},
    }


def names(answer: Object) -> list[str]:
    """The names of the objects of a list."""
    return [item["metadata"]["name"] for item in answer["items"]]
