"""Answers requests to a pod's own port through the API server, as ``kubectl get --raw …/proxy/…`` sends them.

Only GET is served. The choice of the port and the texts of refusals are those of kube-apiserver 1.37
(pkg/registry/core/pod, ResourceLocation). The real one refuses 127.0.0.1; here all pods have that address.
"""

from __future__ import annotations

import http.client
from io import BufferedIOBase
from typing import Any
from urllib.parse import urlencode

from envtest.embedded.api.reading import not_found
from envtest.embedded.api.requests import MOST_DIGITS, Request
from envtest.embedded.api.resources import Resource
from envtest.embedded.api.served import ServedApi
from envtest.embedded.api.statuses import Refused
from envtest.embedded.api.wire import answer_bytes

Object = dict[str, Any]

_SCHEMES = ("", "http")
_TIMEOUT_SECONDS = 30.0


def serve_proxy(api: ServedApi, sink: BufferedIOBase, request: Request, resource: Resource) -> bool:
    """Ask the pod and pass its answer on; always returns True: the connection goes on. Raises Refused."""
    # The port is part of the name in the path: pods/NAME:PORT/proxy.
    name, port = pod_and_port(request.name)
    pod = api.store.get(resource.collection, (request.namespace, name))
    if pod is None:
        raise not_found(resource, name)
    address = str((pod.get("status") or {}).get("podIP") or "")
    if not address:
        raise Refused(400, "address not allowed")
    query = f"?{urlencode(request.query)}" if request.query else ""
    code, body, kind = _asked(address, port or first_port(pod), f"/{request.below}{query}")
    sink.write(answer_bytes(code, body, kind))
    sink.flush()
    return True


def pod_and_port(text: str) -> tuple[str, int]:
    """Name and port of ``[SCHEME:]NAME[:PORT]``; port 0 where none is said. Raises Refused (400)."""
    parts = text.split(":")
    scheme, name, port = parts if len(parts) == 3 else ("", parts[0], parts[1] if len(parts) == 2 else "")
    is_port = not port or (port.isdecimal() and len(port) <= MOST_DIGITS)
    if len(parts) > 3 or scheme not in _SCHEMES or not name or not is_port:
        raise Refused(400, f'invalid pod request "{text}"')
    return name, int(port or 0)


def first_port(pod: Object) -> int:
    """The first port of the first container that has one, and 80 of a pod without any."""
    containers = (pod.get("spec") or {}).get("containers") or ()
    return next((int(one["ports"][0]["containerPort"]) for one in containers if one.get("ports")), 80)


def _asked(address: str, port: int, path: str) -> tuple[int, bytes, str]:
    """Status, body and content type of the pod's answer; raises Refused (503) where it does not answer."""
    connection = http.client.HTTPConnection(address, port, timeout=_TIMEOUT_SECONDS)
    try:
        connection.request("GET", path)
        with connection.getresponse() as answer:
            return answer.status, answer.read(), answer.getheader("Content-Type") or "text/plain"
    except (OSError, http.client.HTTPException) as error:
        raise Refused(503, f"error trying to reach service: {error}") from error
    finally:
        connection.close()
