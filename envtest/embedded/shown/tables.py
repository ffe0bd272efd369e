"""Turns objects into the table rows that ``kubectl get`` prints."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from kubernetes_rules.selectors import label_selector_text

_STATES = (
    *(("Complete", "Complete"), ("Failed", "Failed"), ("", "Terminating")),
    *(("Suspended", "Suspended"), ("FailureTarget", "FailureTarget")),
    ("SuccessCriteriaMet", "SuccessCriteriaMet"),
)
"""Conditions of a Job, the most important first, with the word for each; the empty name is a deletion."""

Object = dict[str, Any]
Cells = list[Any]


def _deployment_cells(item: Object) -> list[Any]:
    """Name, ready and wanted pods, updated pods, available pods, age, and what the pods run."""
    status, wanted = item.get("status") or {}, _wanted(item)
    counts = [status.get("updatedReplicas", 0), status.get("availableReplicas", 0)]
    ready = f"{status.get('readyReplicas', 0)}/{wanted}"
    return [item["metadata"]["name"], ready, *counts, _age(item), *_of_pods(item)]


def _replica_set_cells(item: Object) -> list[Any]:
    """Name, wanted pods, pods, ready pods, age, and what the pods run."""
    status = item.get("status") or {}
    counts = [_wanted(item), status.get("replicas", 0), status.get("readyReplicas", 0)]
    return [item["metadata"]["name"], *counts, _age(item), *_of_pods(item)]


def _scale_cells(item: Object) -> list[Any]:
    """Name, wanted pods, pods and age of a Scale."""
    counts = [(item.get(part) or {}).get("replicas", 0) for part in ("spec", "status")]
    return [item["metadata"]["name"], *counts, _age(item)]


def _job_cells(item: Object) -> list[Any]:
    """Name, state, succeeded and wanted pods, duration, age, and what the pods run."""
    spec, status = item.get("spec") or {}, item.get("status") or {}
    done, parallelism = status.get("succeeded", 0), spec.get("parallelism") or 0
    completions = f"{done}/{spec.get('completions', 1)}"
    if "completions" not in spec and parallelism > 1:
        # Without completions, one pod that succeeds ends the work of all.
        completions = f"{done}/1 of {parallelism}"
    cells = [item["metadata"]["name"], _job_state(item), completions, _taken(status)]
    return [*cells, _age(item), *_of_pods(item)]


def _job_state(job: Object) -> str:
    conditions = (job.get("status") or {}).get("conditions") or []
    held = {one["type"] for one in conditions if one.get("status") == "True"}
    if "deletionTimestamp" in job["metadata"]:
        held.add("")
    return next((text for kind, text in _STATES if kind in held), "Running")


def _taken(status: Object) -> str:
    if not status.get("startTime"):
        return ""
    end = status.get("completionTime")
    moment = datetime.fromisoformat(end) if end else datetime.now(UTC)
    return _duration_text(moment - datetime.fromisoformat(status["startTime"]))


def _of_pods(item: Object) -> list[str]:
    """Containers, images and selector."""
    spec = item.get("spec") or {}
    containers = ((spec.get("template") or {}).get("spec") or {}).get("containers") or []
    listed = [",".join(one.get(name, "") for one in containers) for name in ("name", "image")]
    return [*listed, label_selector_text(spec.get("selector"))]


def _wanted(item: Object) -> int:
    return int((item.get("spec") or {}).get("replicas", 1))


def age_of(timestamp: str | None) -> str:
    """The time since then as kubectl shows it; ``<unknown>`` without a time."""
    if not timestamp:
        return "<unknown>"
    return _duration_text(datetime.now(UTC) - datetime.fromisoformat(timestamp))


def _duration_text(span: timedelta) -> str:
    """A span of time as kubectl shows it (duration.HumanDuration)."""
    seconds = int(span.total_seconds())
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 0:
        # The clock of the server may be a second ahead.
        return "<invalid>" if seconds < -1 else "0s"
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if hours < 192:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    if days < 730:
        return f"{days}d"
    years, rest = divmod(days, 365)
    return f"{years}y{rest}d" if rest and years < 8 else f"{years}y"


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a kind and a function for their cells; ``+`` marks those that only ``-o wide`` shows."""

    names: tuple[str, ...]
    cells: Callable[[Object], Cells]


MakeTable = Callable[[Iterable[Object], Object], Object]
"""Makes the metav1.Table of objects and its metadata; its rows have no objects."""


def table_of(plural: str, items: Iterable[Object], metadata: Object) -> Object:
    """A metav1.Table, whose rows have no objects."""
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
                # kubectl shows columns of a priority above 0 with -o wide only.
                "priority": 1 if name.startswith("+") else 0,
            }
            for name in columns.names
        ],
        "rows": [{"cells": columns.cells(item)} for item in items],
    }


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
    return [*_pod_cells(item), _age(item), *shown, f"{ready}/{len(gates)}" if gates else "<none>"]


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
    "deployments": Columns(("Name", "Ready", "Up-to-date", "Available", "Age", *_OF_PODS), _deployment_cells),
    "replicasets": Columns(("Name", "Desired", "Current", "Ready", "Age", *_OF_PODS), _replica_set_cells),
    "jobs": Columns(("Name", "Status", "Completions", "Duration", "Age", *_OF_PODS), _job_cells),
    "scales": Columns(("Name", "Desired", "Available", "Age"), _scale_cells),
    "leases": Columns(("Name", "Holder", "Age"), _lease),
}


def _pod_cells(pod: Object) -> list[Any]:
    """Name, ready containers, status and restarts."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    sidecars = {
        one["name"] for one in spec.get("initContainers") or [] if one.get("restartPolicy") == "Always"
    }
    # Sidecars count as containers, other init containers do not.
    total = len(spec.get("containers") or []) + len(sidecars)
    reason = status.get("reason") or status.get("phase") or ""
    conditions = status.get("conditions") or []
    if any(
        one.get("type") == "PodScheduled" and one.get("reason") == "SchedulingGated" for one in conditions
    ):
        # Shown although the phase is Pending.
        reason = "SchedulingGated"
    inits = status.get("initContainerStatuses") or []
    ready = sum(one["name"] in sidecars and bool(one.get("ready")) for one in inits)
    count = len(spec.get("initContainers") or [])
    starting = next(
        (text for index, one in enumerate(inits) if (text := _init_reason(one, index, count, sidecars))), ""
    )
    if starting:
        restarts = sum(one.get("restartCount") or 0 for one in inits)
        reason = starting
    else:
        restarts = sum(one.get("restartCount") or 0 for one in inits if one["name"] in sidecars)
        containers = status.get("containerStatuses") or []
        restarts += sum(one.get("restartCount") or 0 for one in containers)
        ready += sum(bool(one.get("ready")) and "running" in _container_state(one) for one in containers)
        reason = _main_reason(containers, conditions, reason)
    if "deletionTimestamp" in pod["metadata"] and status.get("phase") not in ("Succeeded", "Failed"):
        reason = "Terminating"
    return [pod["metadata"]["name"], f"{ready}/{total}", reason, str(restarts)]


def _container_state(container: Object) -> Object:
    return container.get("state") or {}


def _init_reason(container: Object, index: int, count: int, sidecars: set[str]) -> str:
    """The status of a pod that waits for this init container; empty when the container is done."""
    state = _container_state(container)
    ended, waiting = state.get("terminated"), state.get("waiting") or {}
    if ended is not None and ended.get("exitCode") == 0:
        return ""
    # A sidecar does its part by running.
    if container["name"] in sidecars and container.get("started"):
        return ""
    if ended is not None:
        return f"Init:{_end_reason(ended)}"
    if waiting.get("reason") and waiting["reason"] != "PodInitializing":
        return f"Init:{waiting['reason']}"
    return f"Init:{index}/{count}"


def _main_reason(containers: list[Object], conditions: list[Object], reason: str) -> str:
    failed, running = "", False
    # Backwards, so that of several reasons that of the first container stays.
    for container in reversed(containers):
        state = _container_state(container)
        ended, waiting = state.get("terminated"), state.get("waiting") or {}
        if waiting.get("reason"):
            reason = waiting["reason"]
        elif ended is not None:
            reason = _end_reason(ended)
            failed = reason if ended.get("exitCode") else failed
        elif container.get("ready") and "running" in state:
            running = True
    # With one container that has ended well and one that runs, the pod is shown as running.
    if reason != "Completed":
        return reason
    is_ready = any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)
    if running and is_ready:
        return "Running"
    return failed or ("NotReady" if running else reason)


def _end_reason(ended: Object) -> str:
    if ended.get("reason"):
        return str(ended["reason"])
    return f"Signal:{ended['signal']}" if ended.get("signal") else f"ExitCode:{ended.get('exitCode', 0)}"
