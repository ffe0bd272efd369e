"""What an explanation needs of a cluster: devices are read at once, everything else when it first matters."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from urllib.parse import quote

from driver.kube.errors import Forbidden, NotFound
from driver.kube.paths import events_path
from gpuctl.cli.cluster import DRA, ClusterView, Object, event_time
from gpuctl.fleet.seen import SELECTIONS
from kubernetes_rules.allocator.allocate import Allocator
from kubernetes_rules.preemption.cluster import Cluster, is_allocated
from kubernetes_rules.preemption.units import is_there
from kubernetes_rules.taints import tainted_slices

_NOT_ENDED = "status.phase!=Succeeded,status.phase!=Failed"

_COLLECTIONS = {
    "Pod": ("/api/v1", "pods"),
    "ResourceClaim": (DRA, "resourceclaims"),
    "ResourceClaimTemplate": (DRA, "resourceclaimtemplates"),
    "ResourceQuota": ("/api/v1", "resourcequotas"),
}


@dataclass(frozen=True)
class Snapshot:
    """A cluster as far as devices are concerned, and a ``view`` by which more of it is read, once.

    Without a view the cluster has nothing else. Raises ApiError where something is read for the first time,
    but not for rights that are missing: ``unread`` has the kinds that this user may not read.
    """

    nodes: tuple[Object, ...]
    slices: tuple[Object, ...]
    classes: tuple[Object, ...]
    claims: tuple[Object, ...]
    view: ClusterView | None = None
    unread: dict[str, None] = field(default_factory=dict)
    templates: dict[tuple[str, str], Object | None] = field(default_factory=dict)
    """The claim templates that were read, by namespace and name."""
    _lists: dict[tuple[str, ...], tuple[Object, ...] | None] = field(default_factory=dict)

    def listed(self, path: str, **params: str) -> tuple[Object, ...] | None:
        """A list; None if this user may not read it, or the server does not have it."""
        key = (path, *params.values())
        if key not in self._lists:
            self._lists[key] = self._read(path, params)
        return self._lists[key]

    def _read(self, path: str, params: dict[str, str]) -> tuple[Object, ...] | None:
        try:
            return tuple(self.view.listed(path, **params)) if self.view else None
        except Forbidden:
            self.unread[path.rpartition("/")[2]] = None
        except NotFound:  # a server that is older, or has the feature off
            pass
        return None

    def known_nodes(self) -> tuple[Object, ...]:
        """The nodes; if they may not be read, the nodes that slices name."""
        if self.nodes:
            return self.nodes
        names = {one["spec"].get("nodeName") for one in self.slices} - {None}
        return tuple({"metadata": {"name": name}, "spec": {}} for name in sorted(names))

    @cached_property
    def _claims_by_name(self) -> dict[tuple[str, str], Object]:
        return {(one["metadata"]["namespace"], one["metadata"]["name"]): one for one in self.claims}

    def claim(self, namespace: str, name: str) -> Object | None:
        """The claim of that name."""
        return self._claims_by_name.get((namespace, name))

    def device_class(self, name: str) -> Object | None:
        """The DeviceClass of that name."""
        return next((one for one in self.classes if one["metadata"]["name"] == name), None)

    def template(self, namespace: str, name: str) -> Object | None:
        """The claim template of that name."""
        key = namespace, name
        if key not in self.templates:
            path = object_path("ResourceClaimTemplate", namespace, name)
            self.templates[key] = self.view.found(path) if self.view else None
        return self.templates[key]

    def events(self, about: Object, reason: str) -> list[Object]:
        """The events about an object for this reason, the newest last; none if they may not be read."""
        # One list serves all objects of a namespace: asking for each would be as many requests.
        path = events_path(about["metadata"]["namespace"])
        found = self.listed(path, fieldSelector=f"reason={reason}") or ()
        uid = about["metadata"].get("uid")
        mine = (one for one in found if (one.get("involvedObject") or {}).get("uid") == uid)
        return sorted(mine, key=event_time)

    def quotas(self, namespace: str) -> tuple[Object, ...]:
        """The quotas of a namespace; none if they may not be read."""
        return self.listed(collection_path("ResourceQuota", namespace)) or ()

    @property
    def said(self) -> tuple[Object, ...]:
        """The warnings of the driver's controllers about their nodes; none if they may not be read."""
        said = SELECTIONS["said"]
        fields = ",".join(f"{path}={value}" for path, value in said.fields.items())
        return self.listed(said.path, fieldSelector=fields) or ()

    @property
    def pods(self) -> tuple[Object, ...]:
        """The pods that have not ended; none if they may not be read."""
        return self.listed("/api/v1/pods", fieldSelector=_NOT_ENDED) or ()

    @property
    def pods_on_nodes(self) -> list[Object]:
        """The pods that use something of a node."""
        return list(filter(is_there, self.pods))

    @property
    def budgets(self) -> tuple[Object, ...]:
        """The PodDisruptionBudgets; none if they may not be read."""
        return self.listed("/apis/policy/v1/poddisruptionbudgets") or ()

    @property
    def taint_rules(self) -> tuple[Object, ...]:
        """The DeviceTaintRules; none if they may not be read."""
        return self.listed(f"{DRA}/devicetaintrules") or ()

    @cached_property
    def allocator(self) -> Allocator:
        """Allocates beside all claims that have devices. Raises AllocationFailed for a malformed object."""
        held = filter(is_allocated, self.claims)
        return Allocator(tainted_slices(self.slices, self.taint_rules), self.classes, held)

    @cached_property
    def cluster(self) -> Cluster:
        """The cluster in which victims are looked for. Raises AllocationFailed for a malformed object."""
        return Cluster(
            nodes=self.known_nodes(),
            slices=self.slices,
            classes=self.classes,
            claims=self.claims,
            pods=self.pods,
            budgets=self.budgets,
            taint_rules=self.taint_rules,
        )


def take_snapshot(view: ClusterView) -> Snapshot:
    """Read nodes and devices; raises ApiError, also if slices, classes or claims may not be read."""
    devices = Snapshot((), tuple(view.slices()), tuple(view.classes()), tuple(view.claims()), view)
    return replace(devices, nodes=devices.listed("/api/v1/nodes") or ())


def collection_path(kind: str, namespace: str | None) -> str:
    """The path of the objects of a kind in a namespace, or in all with None."""
    group, resource = _COLLECTIONS[kind]
    place = f"/namespaces/{quote(namespace, safe='')}" if namespace is not None else ""
    return f"{group}{place}/{resource}"


def object_path(kind: str, namespace: str, name: str) -> str:
    """The path of an object."""
    return f"{collection_path(kind, namespace)}/{quote(name, safe='')}"
