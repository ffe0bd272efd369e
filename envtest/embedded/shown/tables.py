"""Turns objects into the table rows that ``kubectl get`` prints."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from envtest.embedded.shown.ages import age_of
from envtest.embedded.shown.pod_rows import pod_cells
from envtest.embedded.shown.workload_rows import deployment_cells, job_cells, replica_set_cells, scale_cells

Object = dict[str, Any]
Cells = list[Any]

TABLE = "as=Table"
"""What the Accept header has where a client wants a table."""
METADATA = "as=PartialObjectMetadata"
"""What the Accept header has where a client wants metadata alone; of a list with List at its end."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a kind and what fills them. Those with a ``+`` are shown with ``-o wide`` alone."""

    names: tuple[str, ...]
    cells: Callable[[Object], Cells]


def table_of(items: Iterable[Object], plural: str, metadata: Object, include: str) -> Object:
    """A metav1.Table; ``include`` is None, Metadata or Object: what each row carries of its object."""
    columns = _COLUMNS.get(plural, _PLAIN)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": [
            {
                "name": name.lstrip("+"),
                "type": "string",
                "format": "name" if name.lstrip("+") == "Name" else "",
                "description": "",
                "priority": 1 if name.startswith("+") else 0,
            }
            for name in columns.names
        ],
        "rows": [{"cells": columns.cells(item), "object": _carried(item, include)} for item in items],
    }


def metadata_of(answer: Object) -> Object:
    """An object, or a list of them, without all but the metadata."""
    if "items" not in answer:
        return _metadata(answer)
    items = [_metadata(item) for item in answer["items"]]
    about = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1"}
    return {**about, "metadata": answer["metadata"], "items": items}


def _metadata(item: Object) -> Object:
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": item["metadata"]}


def _carried(item: Object, include: str) -> Any:
    if include == "None":
        return None
    if include == "Object":
        return item
    return _metadata(item)


def _name(item: Object) -> str:
    return str(item["metadata"]["name"])


def _age(item: Object) -> str:
    return age_of(item["metadata"].get("creationTimestamp"))


def _plain(item: Object) -> Cells:
    return [_name(item), item["metadata"].get("creationTimestamp") or "<unknown>"]


def _aged(item: Object) -> Cells:
    return [_name(item), _age(item)]


def _pod(item: Object) -> Cells:
    spec, status = item.get("spec") or {}, item.get("status") or {}
    gates = spec.get("readinessGates") or []
    held = {condition["type"]: condition.get("status") for condition in status.get("conditions") or []}
    ready = sum(held.get(gate.get("conditionType")) == "True" for gate in gates)
    wide = [status.get("podIP"), spec.get("nodeName"), status.get("nominatedNodeName")]
    shown = [value or "<none>" for value in wide]
    return [*pod_cells(item), _age(item), *shown, f"{ready}/{len(gates)}" if gates else "<none>"]


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


def _budget(item: Object) -> Cells:
    spec, allowed = item.get("spec") or {}, (item.get("status") or {}).get("disruptionsAllowed", 0)
    limits = [spec.get(name) for name in ("minAvailable", "maxUnavailable")]
    return [_name(item), *("N/A" if one is None else str(one) for one in limits), allowed, _age(item)]


def _priority_class(item: Object) -> Cells:
    policy = item.get("preemptionPolicy") or "PreemptLowerPriority"
    return [_name(item), item.get("value", 0), bool(item.get("globalDefault")), _age(item), policy]


def _lease(item: Object) -> Cells:
    return [_name(item), (item.get("spec") or {}).get("holderIdentity") or "", _age(item)]


_OF_PODS = ("+Containers", "+Images", "+Selector")
_PLAIN = Columns(("Name", "Created At"), _plain)
_AGED = Columns(("Name", "Age"), _aged)
_COLUMNS = {
    "pods": Columns(
        ("Name", "Ready", "Status", "Restarts", "Age", "+IP", "+Node", "+Nominated Node", "+Readiness Gates"),
        _pod,
    ),
    "nodes": Columns(
        (
            *("Name", "Status", "Roles", "Age", "Version"),
            *("+Internal-IP", "+External-IP", "+OS-Image", "+Kernel-Version", "+Container-Runtime"),
        ),
        _node,
    ),
    "events": Columns(
        (
            *("Last Seen", "Type", "Reason", "Object", "+Subobject", "+Source", "Message"),
            *("+First Seen", "+Count", "+Name"),
        ),
        _event,
    ),
    "resourceclaims": Columns(("Name", "State", "Age"), _claim),
    "resourceclaimtemplates": _AGED,
    "deviceclasses": _AGED,
    "serviceaccounts": _AGED,
    "resourceslices": Columns(("Name", "Node", "Driver", "Pool", "Age"), _resource_slice),
    "devicetaintrules": Columns(("Name", "Key", "Value", "Effect", "TimeAdded", "Age"), _taint_rule),
    "resourcequotas": Columns(("Name", "Request", "Limit", "Age"), _quota),
    "configmaps": Columns(("Name", "Data", "Age"), _config_map),
    "namespaces": Columns(("Name", "Status", "Age"), _namespace),
    "poddisruptionbudgets": Columns(
        ("Name", "Min Available", "Max Unavailable", "Allowed Disruptions", "Age"), _budget
    ),
    "priorityclasses": Columns(
        ("Name", "Value", "Global-Default", "Age", "+PreemptionPolicy"), _priority_class
    ),
    "deployments": Columns(("Name", "Ready", "Up-to-date", "Available", "Age", *_OF_PODS), deployment_cells),
    "replicasets": Columns(("Name", "Desired", "Current", "Ready", "Age", *_OF_PODS), replica_set_cells),
    "jobs": Columns(("Name", "Status", "Completions", "Duration", "Age", *_OF_PODS), job_cells),
    "scales": Columns(("Name", "Desired", "Available", "Age"), scale_cells),
    "leases": Columns(("Name", "Holder", "Age"), _lease),
}
