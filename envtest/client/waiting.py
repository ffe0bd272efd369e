"""Waits for objects to reach a state, by watches, and for components to be ready, by polling."""

from __future__ import annotations

import http.client
import json
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeVar

from envtest.client import paths
from envtest.client.api import ApiClient, Object
from envtest.client.errors import ApiUnreachable, NotReady, WaitTimeout

_READY_SECONDS = 90.0
_POLL_SECONDS = 0.05

T = TypeVar("T")


def wait_for(
    api: ApiClient,
    path: str,
    predicate: Callable[[Object], bool],
    timeout_seconds: float = 60.0,
) -> Object:
    """Wait until the object at a path exists and fulfils a predicate, and return it.

    Raises:
        WaitTimeout: it took longer; the message has the last state of the object.
    """
    collection, _, name = path.rpartition("/")
    # A watch is of a collection; this selector, which all resources have, narrows it to one object.
    query = {"fieldSelector": f"metadata.name={name}"}
    found: Object | None = None
    for objects in _snapshots(api, collection, query, time.monotonic() + timeout_seconds):
        found = objects.get(name)
        if found is not None and predicate(found):
            return found
    state = "it does not exist" if found is None else json.dumps(_without_noise(found), indent=1)
    raise WaitTimeout(f"{path} is not as expected after {timeout_seconds:g} s: {state}")


def wait_for_list(
    api: ApiClient,
    path: str,
    predicate: Callable[[list[Object]], bool],
    timeout_seconds: float = 60.0,
    **query: str,
) -> list[Object]:
    """Wait until the objects of a collection, sorted by name, fulfil a predicate, and return them.

    ``query`` such as fieldSelector="spec.nodeName=node-0" narrows the collection.

    Raises:
        WaitTimeout: it took longer; the message has the last states of the objects.
    """
    found: list[Object] = []
    for objects in _snapshots(api, path, query, time.monotonic() + timeout_seconds):
        found = [objects[name] for name in sorted(objects)]
        if predicate(found):
            return found
    states = json.dumps([_without_noise(obj) for obj in found], indent=1)
    raise WaitTimeout(f"{path} is not as expected after {timeout_seconds:g} s: {states}")


def wait_gone(api: ApiClient, path: str, timeout_seconds: float = 60.0) -> None:
    """Wait until the object at a path is gone.

    Raises:
        WaitTimeout: it is still there after that time.
    """
    collection, _, name = path.rpartition("/")
    query = {"fieldSelector": f"metadata.name={name}"}
    wait_for_list(api, collection, lambda objects: not objects, timeout_seconds, **query)


def _snapshots(
    api: ApiClient, collection: str, query: dict[str, str], deadline: float
) -> Iterator[dict[str, Object]]:
    """The objects of a collection by name: first as listed, then after every change, until the deadline."""
    while time.monotonic() < deadline:
        listed = api.request("GET", collection, query=query)
        # The items of a list have neither kind nor apiVersion; the objects of a watch have both.
        kind, version = listed["kind"].removesuffix("List"), listed["apiVersion"]
        objects = {
            obj["metadata"]["name"]: {"kind": kind, "apiVersion": version, **obj} for obj in listed["items"]
        }
        yield dict(objects)
        # A watch from the version of the list misses no change in between.
        since = {**query, "resourceVersion": listed["metadata"]["resourceVersion"]}
        for event in _events(api, collection, since, deadline):
            if event["type"] == "ERROR":
                # 410: the server has dropped the history since that version (etcd is compacted); list again.
                if event["object"].get("code") == http.client.GONE:
                    break
                raise WaitTimeout(f"the watch of {collection} failed: {event['object']}")
            name = event["object"]["metadata"]["name"]
            if event["type"] == "DELETED":
                objects.pop(name, None)
            else:
                objects[name] = event["object"]
            yield dict(objects)


def _events(api: ApiClient, collection: str, query: dict[str, str], deadline: float) -> Iterator[Object]:
    """The events of one watch; it ends when the server ends it, or at the deadline."""
    remaining = deadline - time.monotonic()
    if remaining <= 0:
        return
    # The server ends the watch a moment after the deadline; the timeout of the socket is for one that says
    # nothing.
    watch = {**query, "watch": "true", "timeoutSeconds": str(int(remaining) + 1)}
    with api.stream("GET", collection, query=watch, timeout_seconds=remaining) as answer:
        while time.monotonic() < deadline:
            try:
                line = answer.readline()
            except TimeoutError:
                return
            except (OSError, http.client.HTTPException) as error:
                what = f"watch of {collection}"
                raise ApiUnreachable(what, 0, type(error).__name__, str(error)) from error
            if not line:
                return
            yield json.loads(line)


def _without_noise(obj: Object) -> Object:
    """An object without the fields that never explain why a wait failed."""
    metadata = {key: value for key, value in obj["metadata"].items() if key != "managedFields"}
    return {**obj, "metadata": metadata}


@contextmanager
def fresh_namespace(api: ApiClient) -> Iterator[str]:
    """The name of a new namespace; its workloads, pods and claims are gone when the block ends."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    # Pods are refused until the namespace has its service account (admission plugin ServiceAccount).
    wait_for(api, paths.service_account("default", name), lambda _: True)
    yield name
    # First what would make its pods again.
    for workloads in paths.workloads(name):
        api.delete(workloads)
    for pod in api.list_objects(paths.pod(namespace=name)):
        api.delete(paths.pod(pod["metadata"]["name"], name), grace_seconds=1)
    wait_for_list(api, paths.pod(namespace=name), lambda pods: not pods)
    # With the namespace they would be deleted too, but seconds later.
    api.delete(paths.resource_claim(namespace=name))
    wait_for_list(api, paths.resource_claim(namespace=name), lambda claims: not claims)
    api.delete(paths.namespace(name))


class Watched(Protocol):
    """The processes that a wait needs."""

    def check_running(self, name: str) -> None:
        """Return if a process runs; raises NotReady."""

    def log_tail(self, name: str) -> str:
        """The last lines that a process wrote."""


def wait_until(needed: Sequence[str], processes: Watched, attempt: Callable[[], T | None]) -> T:
    """Repeat an attempt until it returns something, and return that.

    ``needed`` are the names of the processes without which no attempt can succeed, the most important first.

    Raises:
        NotReady: one of them ended, or no attempt succeeded in time.
    """
    deadline = time.monotonic() + _READY_SECONDS
    while time.monotonic() < deadline:
        result = attempt()
        if result is not None:
            return result
        for name in needed:
            processes.check_running(name)
        time.sleep(_POLL_SECONDS)
    if not needed:
        raise NotReady(f"nothing came of it within {_READY_SECONDS:g} s")
    tail = processes.log_tail(needed[0])
    raise NotReady(f"{needed[0]} is not ready after {_READY_SECONDS:g} s:\n{tail}")
