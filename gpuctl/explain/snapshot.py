"""Reads all that an explanation needs at once, so that all of it is about one moment."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote

from driver.kube.errors import Forbidden, NotFound
from driver.kube.paths import claim_path, events_path
from gpuctl.cli.cluster import DRA, ClusterView, event_time
from gpuctl.fleet.seen import SELECTIONS
from kubernetes_rules.extended_resources import provides

Object = dict[str, Any]

SCHEDULING = "/apis/scheduling.k8s.io/v1beta1"

_COLLECTIONS = {
    "pod": ("/api/v1", "pods"),
    "claim": (DRA, "resourceclaims"),
    "podgroup": (SCHEDULING, "podgroups"),
}
"""The API group and the collection of each kind that can be explained."""

# A pod that has ended keeps its node and its requests, but no longer uses anything there.
LIVING = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The cluster as far as devices are concerned; ``unread`` are the kinds that this user may not read.

    ``pods`` have a node and have not ended; None if they do not matter, or may not be read. ``said`` are the
    warnings of the driver's controllers about their nodes.
    """

    nodes: tuple[Object, ...]
    slices: tuple[Object, ...]
    classes: tuple[Object, ...]
    claims: tuple[Object, ...]
    taint_rules: tuple[Object, ...]
    quotas: tuple[Object, ...]
    unread: tuple[str, ...]
    pods: tuple[Object, ...] | None = None
    said: tuple[Object, ...] = ()

    def known_nodes(self) -> tuple[Object, ...]:
        """The nodes; if they may not be read, the nodes that slices name."""
        if self.nodes:
            return self.nodes
        names = {one["spec"].get("nodeName") for one in self.slices} - {None}
        return tuple({"metadata": {"name": name}, "spec": {}} for name in sorted(names))

    def claim(self, namespace: str, name: str) -> Object | None:
        """The claim of that name."""
        for claim in self.claims:
            if (claim["metadata"]["namespace"], claim["metadata"]["name"]) == (namespace, name):
                return claim
        return None

    def device_class(self, name: str) -> Object | None:
        """The DeviceClass of that name."""
        return next((one for one in self.classes if one["metadata"]["name"] == name), None)


def take_snapshot(
    view: ClusterView, namespace: str | None = None, resources: Collection[str] = ()
) -> Snapshot:
    """Read everything; raises ApiError, also if slices, classes or claims may not be read.

    The quotas are those of ``namespace``, none without it. ``resources`` are the extended resources that a
    pod asks for: pods are only read if a node has some of them from a device plugin.
    """
    unread: list[str] = []

    def perhaps(kind: str, read: Callable[[], list[Object]]) -> tuple[Object, ...] | None:
        try:
            return tuple(read())
        except Forbidden:
            unread.append(kind)
        except NotFound:  # a server that is older, or has the feature off
            pass
        return None

    # What a device plugin has left follows from all pods on the node: nothing else in the API says it.
    nodes = perhaps("nodes", view.nodes) or ()
    by_plugin = any(provides(node, resource) for node in nodes for resource in resources)
    return Snapshot(
        nodes=nodes,
        slices=tuple(view.slices()),
        classes=tuple(view.classes()),
        claims=tuple(view.claims()),
        taint_rules=perhaps("devicetaintrules", lambda: view.listed(f"{DRA}/devicetaintrules")) or (),
        quotas=(perhaps("resourcequotas", lambda: view.listed(_quotas_path(str(namespace)))) or ())
        if namespace
        else (),
        pods=perhaps("pods", lambda: view.listed("/api/v1/pods", fieldSelector=LIVING))
        if by_plugin
        else None,
        unread=tuple(unread),
        said=said_by_controllers(view),
    )


def said_by_controllers(view: ClusterView) -> tuple[Object, ...]:
    """The warnings of the driver's controllers; none if they may not be read."""
    said = SELECTIONS["said"]
    fields = ",".join(f"{path}={value}" for path, value in said.fields.items())
    return tuple(listed_if_readable(view, said.path, fieldSelector=fields) or ())


def quotas_of(view: ClusterView, namespace: str) -> tuple[Object, ...]:
    """The quotas of another namespace than the snapshot's; none if they may not be read."""
    return tuple(listed_if_readable(view, _quotas_path(namespace)) or ())


def listed_if_readable(view: ClusterView, path: str, **params: str) -> list[Object] | None:
    """A list; None if this user may not read it, or the server does not have it. Raises ApiError."""
    try:
        return view.listed(path, **params)
    except (Forbidden, NotFound):
        return None


def _quotas_path(namespace: str) -> str:
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/resourcequotas"


def list_of(
    view: ClusterView, kind: Literal["pod", "claim", "podgroup"], namespace: str | None
) -> list[Object]:
    """All objects of a kind in a namespace, or in all with None; a server may have no PodGroups."""
    prefix, resource = _COLLECTIONS[kind]
    place = f"/namespaces/{quote(namespace, safe='')}" if namespace is not None else ""
    try:
        return view.listed(f"{prefix}{place}/{resource}")
    except NotFound:
        if kind != "podgroup":
            raise
        return []


def pod_of(view: ClusterView, namespace: str, name: str) -> Object | None:
    """The pod, None when there is none."""
    return view.found(f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}")


def claim_of(view: ClusterView, namespace: str, name: str) -> Object | None:
    """The claim, None when there is none."""
    return view.found(claim_path(namespace, name))


def group_of(view: ClusterView, namespace: str, name: str) -> Object | None:
    """The PodGroup, None when there is none, or the cluster has no PodGroups."""
    path = f"{SCHEDULING}/namespaces/{quote(namespace, safe='')}/podgroups"
    return view.found(f"{path}/{quote(name, safe='')}")


def template_of(view: ClusterView, namespace: str, name: str) -> Object | None:
    """The claim template, None when there is none."""
    path = f"{DRA}/namespaces/{quote(namespace, safe='')}/resourceclaimtemplates"
    return view.found(f"{path}/{quote(name, safe='')}")


def events_of(view: ClusterView, namespace: str, uid: str) -> list[Object]:
    """The events about an object, the newest last; none if they may not be read."""
    found = listed_if_readable(view, events_path(namespace), fieldSelector=f"involvedObject.uid={uid}")
    return sorted(found or (), key=event_time)


def events_by_object(view: ClusterView, namespace: str | None) -> dict[str, list[Object]]:
    """The events of a namespace, or of all with None, by the UID of their object, the newest last."""
    # One list for all pods: asking for the events of each pod would be as many requests.
    path = "/api/v1/events" if namespace is None else events_path(namespace)
    found: dict[str, list[Object]] = {}
    for event in sorted(listed_if_readable(view, path) or (), key=event_time):
        found.setdefault(str((event.get("involvedObject") or {}).get("uid", "")), []).append(event)
    return found
