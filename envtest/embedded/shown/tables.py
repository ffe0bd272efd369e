"""The tables that ``kubectl get`` prints. Go: kubernetes/pkg/printers/internalversion.

Kinds that nobody prints in scenarios and tests have a name and an age.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from envtest.embedded.shown import workload_cells
from envtest.embedded.shown.ages import age_of
from envtest.embedded.shown.pod_cells import pod_cells

Object = dict[str, Any]
Cells = list[Any]

MakeTable = Callable[[Iterable[Object], Object], Object]
"""Makes the metav1.Table of objects and its metadata; its rows have no objects."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The names of a kind's columns, separated by commas, and the cells of an object.

    kubectl shows columns with a plus with -o wide only.
    """

    names: str
    cells: Callable[[Object], Cells]

    @property
    def definitions(self) -> list[Object]:
        """As they are in a table."""
        # kubectl writes the kind before a name where the format says so.
        return [
            {
                "name": name.lstrip("+"),
                "type": "string",
                "format": "name" if name == "Name" else "",
                "description": "",
                "priority": int(name.startswith("+")),
            }
            for name in self.names.split(",")
        ]


def table_of(plural: str, items: Iterable[Object], metadata: Object) -> Object:
    """A metav1.Table, whose rows have no objects."""
    columns = COLUMNS.get(plural, _NAME_AND_AGE)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": columns.definitions,
        "rows": [{"cells": columns.cells(item)} for item in items],
    }


def _node(item: Object) -> Cells:
    status, labels = item.get("status") or {}, item["metadata"].get("labels") or {}
    conditions = {one["type"]: one.get("status") for one in status.get("conditions") or []}
    words = [
        "Unknown" if "Ready" not in conditions else "Ready" if conditions["Ready"] == "True" else "NotReady"
    ]
    if (item.get("spec") or {}).get("unschedulable"):
        words.append("SchedulingDisabled")
    prefix = "node-role.kubernetes.io/"
    roles = sorted(key.removeprefix(prefix) for key in labels if key.startswith(prefix))
    info = status.get("nodeInfo") or {}
    addresses = {one.get("type"): one.get("address") for one in status.get("addresses") or []}
    kernel = info.get("kernelVersion") or "<unknown>"
    if info.get("architecture"):
        kernel += f" ({info['architecture']})"
    return [
        _name(item),
        ",".join(words),
        ",".join(roles) or "<none>",
        _age(item),
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP") or "<none>",
        addresses.get("ExternalIP") or "<none>",
        info.get("osImage") or "<unknown>",
        kernel,
        info.get("containerRuntimeVersion") or "<unknown>",
    ]


def _event(item: Object) -> Cells:
    about, source = item.get("involvedObject") or {}, item.get("source") or {}
    first = age_of(item.get("firstTimestamp") or item.get("eventTime"))
    last = age_of(item["lastTimestamp"]) if item.get("lastTimestamp") else first
    # Events of the newer API count in a series.
    count, series = item.get("count") or 1, item.get("series")
    if series:
        last, count = age_of(series.get("lastObservedTime")), series.get("count")
    kind, name = str(about.get("kind") or "").lower(), about.get("name")
    component = source.get("component") or item.get("reportingComponent") or ""
    host = source.get("host") or item.get("reportingInstance") or ""
    return [
        last,
        item.get("type", ""),
        item.get("reason", ""),
        f"{kind}/{name}" if name else kind,
        about.get("fieldPath", ""),
        ", ".join(filter(None, (component, host))),
        (item.get("message") or "").strip(),
        first,
        count,
        _name(item),
    ]


def _claim(item: Object) -> Cells:
    status, deleted = item.get("status") or {}, "deletionTimestamp" in item["metadata"]
    states = ["deleted"] if deleted else []
    if status.get("allocation"):
        states += ["allocated", *(["reserved"] if status.get("reservedFor") else [])]
    elif not deleted:
        states.append("pending")
    return [_name(item), ",".join(states), _age(item)]


def _resource_slice(item: Object) -> Cells:
    spec = item.get("spec") or {}
    pool = (spec.get("pool") or {}).get("name", "")
    return [_name(item), spec.get("nodeName") or "", spec.get("driver", ""), pool, _age(item)]


def _taint_rule(item: Object) -> Cells:
    taint = (item.get("spec") or {}).get("taint") or {}
    words = [taint.get("key", ""), taint.get("value", ""), taint.get("effect", "")]
    return [_name(item), *words, age_of(taint.get("timeAdded")), _age(item)]


def _quota(item: Object) -> Cells:
    status = item.get("status") or {}
    used, hard = status.get("used") or {}, status.get("hard") or {}
    texts = {name: f"{name}: {used.get(name, '0')}/{hard[name]}" for name in sorted(hard)}
    requests = ", ".join(text for name, text in texts.items() if not name.startswith("limits."))
    limits = ", ".join(text for name, text in texts.items() if name.startswith("limits."))
    return [_name(item), requests, limits, _age(item)]


def _config_map(item: Object) -> Cells:
    return [_name(item), len(item.get("data") or {}) + len(item.get("binaryData") or {}), _age(item)]


def _namespace(item: Object) -> Cells:
    return [_name(item), (item.get("status") or {}).get("phase", ""), _age(item)]


def _name(item: Object) -> str:
    return str(item["metadata"]["name"])


def _age(item: Object) -> str:
    return age_of(item["metadata"].get("creationTimestamp"))


def _aged(item: Object) -> Cells:
    return [_name(item), _age(item)]


_NAME_AND_AGE = Columns("Name,Age", _aged)
_OF_PODS = "+Containers,+Images,+Selector"

COLUMNS: Mapping[str, Columns] = {
    "configmaps": Columns("Name,Data,Age", _config_map),
    "deployments": Columns(
        f"Name,Ready,Up-to-date,Available,Age,{_OF_PODS}", workload_cells.deployment_cells
    ),
    "devicetaintrules": Columns("Name,Key,Value,Effect,TimeAdded,Age", _taint_rule),
    "events": Columns(
        "Last Seen,Type,Reason,Object,+Subobject,+Source,Message,+First Seen,+Count,+Name", _event
    ),
    "jobs": Columns(f"Name,Status,Completions,Duration,Age,{_OF_PODS}", workload_cells.job_cells),
    "namespaces": Columns("Name,Status,Age", _namespace),
    "nodes": Columns(
        "Name,Status,Roles,Age,Version,+Internal-IP,+External-IP,+OS-Image,+Kernel-Version,+Container-Runtime",
        _node,
    ),
    "pods": Columns("Name,Ready,Status,Restarts,Age,+IP,+Node,+Nominated Node,+Readiness Gates", pod_cells),
    "replicasets": Columns(f"Name,Desired,Current,Ready,Age,{_OF_PODS}", workload_cells.replica_set_cells),
    "resourceclaims": Columns("Name,State,Age", _claim),
    "resourcequotas": Columns("Name,Request,Limit,Age", _quota),
    "resourceslices": Columns("Name,Node,Driver,Pool,Age", _resource_slice),
    "scales": Columns("Name,Desired,Available,Age", workload_cells.scale_cells),
}
"""For the names of the kinds that have columns of their own."""
