"""The tables that ``kubectl get`` prints. Go: kubernetes/pkg/printers/internalversion.

Kinds that nobody prints in scenarios and tests have a name and an age.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from envtest.embedded.shown.ages import age_of, time_taken
from envtest.embedded.shown.pod_cells import pod_cells
from kubernetes_rules.selectors import label_selector_text

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
    status = item.get("status") or {}
    conditions = {one["type"]: one.get("status") for one in status.get("conditions") or []}
    words = [
        "Unknown" if "Ready" not in conditions else "Ready" if conditions["Ready"] == "True" else "NotReady"
    ]
    if (item.get("spec") or {}).get("unschedulable"):
        words.append("SchedulingDisabled")
    info = status.get("nodeInfo") or {}
    addresses = {one.get("type"): one.get("address") for one in status.get("addresses") or []}
    kernel = info.get("kernelVersion") or "<unknown>"
    if info.get("architecture"):
        kernel += f" ({info['architecture']})"
    return [
        _name(item),
        ",".join(words),
        "<none>",  # roles: no node has one
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
        item.get("count") or 1,
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


_STATES = ("Complete", "Failed", "", "Suspended", "FailureTarget", "SuccessCriteriaMet")
"""Conditions of a Job, the most important first; the empty name is a deletion."""


def _deployment(item: Object) -> Cells:
    """Name, ready and wanted pods, updated pods, available pods, age, and what the pods run."""
    status, wanted = item.get("status") or {}, _wanted(item)
    counts = [status.get("updatedReplicas", 0), status.get("availableReplicas", 0)]
    ready = f"{status.get('readyReplicas', 0)}/{wanted}"
    return [item["metadata"]["name"], ready, *counts, _age(item), *_of_pods(item)]


def _replica_set(item: Object) -> Cells:
    """Name, wanted pods, pods, ready pods, age, and what the pods run."""
    status = item.get("status") or {}
    counts = [_wanted(item), status.get("replicas", 0), status.get("readyReplicas", 0)]
    return [item["metadata"]["name"], *counts, _age(item), *_of_pods(item)]


def _job(item: Object) -> Cells:
    """Name, state, succeeded and wanted pods, duration, age, and what the pods run."""
    spec, status = item.get("spec") or {}, item.get("status") or {}
    completions = f"{status.get('succeeded', 0)}/{spec.get('completions', 1)}"
    cells = [
        item["metadata"]["name"],
        _job_state(item),
        completions,
        time_taken(status.get("startTime"), status.get("completionTime")),
    ]
    return [*cells, _age(item), *_of_pods(item)]


def _job_state(job: Object) -> str:
    conditions = (job.get("status") or {}).get("conditions") or []
    held = {one["type"] for one in conditions if one.get("status") == "True"}
    if "deletionTimestamp" in job["metadata"]:
        held.add("")
    return next((kind or "Terminating" for kind in _STATES if kind in held), "Running")


def _of_pods(item: Object) -> list[str]:
    """Containers, images and selector."""
    spec = item.get("spec") or {}
    containers = ((spec.get("template") or {}).get("spec") or {}).get("containers") or []
    listed = [",".join(one.get(name, "") for one in containers) for name in ("name", "image")]
    return [*listed, label_selector_text(spec.get("selector")) or "<none>"]


def _wanted(item: Object) -> int:
    return int((item.get("spec") or {}).get("replicas", 1))


_NAME_AND_AGE = Columns("Name,Age", _aged)
_OF_PODS = "+Containers,+Images,+Selector"

COLUMNS: Mapping[str, Columns] = {
    "configmaps": Columns("Name,Data,Age", _config_map),
    "deployments": Columns(f"Name,Ready,Up-to-date,Available,Age,{_OF_PODS}", _deployment),
    "devicetaintrules": Columns("Name,Key,Value,Effect,TimeAdded,Age", _taint_rule),
    "events": Columns(
        "Last Seen,Type,Reason,Object,+Subobject,+Source,Message,+First Seen,+Count,+Name", _event
    ),
    "jobs": Columns(f"Name,Status,Completions,Duration,Age,{_OF_PODS}", _job),
    "namespaces": Columns("Name,Status,Age", _namespace),
    "nodes": Columns(
        "Name,Status,Roles,Age,Version,+Internal-IP,+External-IP,+OS-Image,+Kernel-Version,+Container-Runtime",
        _node,
    ),
    "pods": Columns("Name,Ready,Status,Restarts,Age,+IP,+Node,+Nominated Node,+Readiness Gates", pod_cells),
    "replicasets": Columns(f"Name,Desired,Current,Ready,Age,{_OF_PODS}", _replica_set),
    "resourceclaims": Columns("Name,State,Age", _claim),
    "resourcequotas": Columns("Name,Request,Limit,Age", _quota),
    "resourceslices": Columns("Name,Node,Driver,Pool,Age", _resource_slice),
}
"""For the names of the kinds that have columns of their own."""
