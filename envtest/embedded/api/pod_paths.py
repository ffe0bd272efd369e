"""Answers what is below a pod: ``kubectl logs``, and requests to a port of the pod (``…/proxy/…``).

Of the proxy only GET of ``NAME:PORT`` is served. The real one refuses 127.0.0.1; here all pods have that
address. ``limitBytes`` is ignored where a log is followed.
"""

from __future__ import annotations

import http.client
from collections.abc import Sequence
from dataclasses import dataclass
from io import BufferedIOBase
from typing import Any
from urllib.parse import urlencode

from envtest.embedded.api.container_log import ContainerLog, LogLine
from envtest.embedded.api.reading import not_found
from envtest.embedded.api.requests import MOST_DIGITS, Request, query_flag, query_integer
from envtest.embedded.api.resources import Resource
from envtest.embedded.api.served import ServedApi, Stream
from envtest.embedded.api.statuses import Refused, invalid
from envtest.embedded.api.wire import answer_bytes, chunk, stream_head
from kubernetes_rules.validation import field as field_errors

Object = dict[str, Any]

_PROXY_SECONDS = 30.0
_TEXT = "text/plain"


@dataclass(frozen=True, slots=True)
class LogOptions:
    """PodLogOptions of core/v1; None is no limit."""

    container: str
    follow: bool
    previous: bool
    timestamps: bool
    tail_lines: int | None
    limit_bytes: int | None


def serve_log(api: ServedApi, stream: Stream, request: Request, resource: Resource) -> bool:
    """Answer a request for a log; always returns True: the connection goes on. Raises Refused."""
    pod = api.store.get(resource.collection, (request.namespace, request.name))
    if pod is None:
        raise not_found(resource, request.name)
    options = _log_options(request)
    container = _container_of(pod, options.container)
    if not pod["spec"].get("nodeName"):
        # Without a node there is no kubelet to ask, and the answer is empty, not an error.
        stream.write(answer_bytes(204, b"", _TEXT))
        return True
    # Logs of earlier containers are not kept.
    log = None if options.previous else api.find_log(pod["metadata"]["uid"], container)
    if log is None:
        raise Refused(400, _reason_for_no_log(pod, container, previous=options.previous))
    if options.follow:
        with stream.woken(log.wake):
            _follow(stream, log, options)
    else:
        stream.write(
            answer_bytes(200, _text(_chosen(log.lines, options), options)[: options.limit_bytes], _TEXT)
        )
    return True


def _log_options(request: Request) -> LogOptions:
    """What the query asks for; raises Refused (400, 422)."""
    tail, limit = query_integer(request, "tailLines"), query_integer(request, "limitBytes")
    if tail is not None and tail < 0:
        error = field_errors.invalid("tailLines", tail, "must be greater than or equal to 0")
        raise invalid("", "PodLogOptions", request.name, [error])
    return LogOptions(
        request.query.get("container", ""),
        query_flag(request, "follow"),
        query_flag(request, "previous"),
        query_flag(request, "timestamps"),
        tail,
        limit,
    )


def _container_of(pod: Object, asked: str) -> str:
    """The name of the container whose log is meant; raises Refused (400)."""
    spec, name = pod.get("spec") or {}, pod["metadata"]["name"]
    own = [one["name"] for one in spec.get("containers") or ()]
    initial = [one["name"] for one in spec.get("initContainers") or ()]
    if not asked and len(own) == 1 and not initial:
        return str(own[0])
    if not asked:
        message = f"a container name must be specified for pod {name}, choose one of: [{' '.join(own)}]"
        if initial:
            message += f" or one of the init containers: [{' '.join(initial)}]"
        raise Refused(400, message)
    if asked not in (*own, *initial):
        raise Refused(400, f"container {asked} is not valid for pod {name}")
    return asked


def _reason_for_no_log(pod: Object, container: str, *, previous: bool) -> str:
    """Why there is nothing to read, as the kubelet says it."""
    where = f'container "{container}" in pod "{pod["metadata"]["name"]}"'
    if previous:
        return f"previous terminated {where} not found"
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    status: Object = next((one for one in statuses if one["name"] == container), {})
    waiting = (status.get("state") or {}).get("waiting") or {}
    if waiting.get("reason"):
        return f"{where} is waiting to start: {waiting['reason']}"
    return f"{where} is not available"


def _follow(stream: Stream, log: ContainerLog, options: LogOptions) -> None:
    """Send the lines so far, then each new one, until the container ends or the client leaves."""
    stream.write(stream_head(_TEXT))
    lines = log.lines
    seen, goes_on = len(lines), True
    chosen = _chosen(lines, options)
    while True:
        if chosen:
            stream.write(chunk(_text(chosen, options)))
        if not goes_on:
            break
        chosen, goes_on = log.wait(seen, lambda: stream.ended)
        seen += len(chosen)
    stream.write(chunk(b""))


def _chosen(lines: Sequence[LogLine], options: LogOptions) -> Sequence[LogLine]:
    tail = options.tail_lines
    return lines if tail is None else lines[max(0, len(lines) - tail) :]


def _text(lines: Sequence[LogLine], options: LogOptions) -> bytes:
    shown = (f"{_stamp(line)} {line.text}" if options.timestamps else line.text for line in lines)
    return "".join(f"{text}\n" for text in shown).encode()


def _stamp(line: LogLine) -> str:
    # RFC 3339 with nine digits, as the kubelet writes it; Python knows six.
    return line.time.strftime("%Y-%m-%dT%H:%M:%S.%f000Z")


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
    code, body, kind = _pod_answer(address, port, f"/{request.below}{query}")
    sink.write(answer_bytes(code, body, kind))
    sink.flush()
    return True


def pod_and_port(text: str) -> tuple[str, int]:
    """Name and port of ``NAME:PORT``. Raises Refused (400)."""
    name, _, port = text.partition(":")
    if not name or not port.isdecimal() or len(port) > MOST_DIGITS:
        raise Refused(400, f'invalid pod request "{text}"')
    return name, int(port)


def _pod_answer(address: str, port: int, path: str) -> tuple[int, bytes, str]:
    """Status, body and content type of the pod's answer; raises Refused (503) where it does not answer."""
    connection = http.client.HTTPConnection(address, port, timeout=_PROXY_SECONDS)
    try:
        connection.request("GET", path)
        with connection.getresponse() as answer:
            return answer.status, answer.read(), answer.getheader("Content-Type") or "text/plain"
    except (OSError, http.client.HTTPException) as error:
        raise Refused(503, f"error trying to reach service: {error}") from error
    finally:
        connection.close()
