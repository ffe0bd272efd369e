"""Fills in what the API server fills in: defaults of pods, workloads, claims and a few other kinds.

Objects are JSON as the API has them. Go for workloads: pkg/apis/apps/v1/defaults.go,
pkg/apis/batch/v1/defaults.go, and generateSelector in pkg/registry/batch/job/strategy.go.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

from kubernetes_rules.pod_resources import defaulted_pod_resources
from kubernetes_rules.quantity import Quantity

Json = Mapping[str, Any]
Object = dict[str, Any]

_SPEC = {"restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler"}
_FILE_MODE = 0o644
_SOURCES: dict[str, Object] = {"fileKeyRef": {"optional": False}, "resourceFieldRef": {"divisor": "0"}}
_VOLUMES: dict[str, Object] = {
    "secret": {"defaultMode": _FILE_MODE},
    "configMap": {"defaultMode": _FILE_MODE},
    "downwardAPI": {"defaultMode": _FILE_MODE},
    "projected": {"defaultMode": _FILE_MODE},
    "hostPath": {"type": ""},
}

NO_LIMIT = 2**31 - 1
"""The largest int32, by which fields such as ``backoffLimit`` and ``revisionHistoryLimit`` say "no limit"."""

_JOB_NAME_LABELS = ("job-name", "batch.kubernetes.io/job-name")
_JOB_UID_LABELS = ("controller-uid", "batch.kubernetes.io/controller-uid")
"""Labels of a Job's pods: the older name of each, then the newer one, by which the Job selects."""

_JOB: Object = {"completionMode": "NonIndexed", "suspend": False, "manualSelector": False}


def created_pod(pod: Json) -> Object:
    """A new pod with all defaults of its spec, those of pod-level resources included."""
    found = defaulted_pod(pod)
    if found["spec"].get("resources") is not None:
        found["spec"]["resources"] = defaulted_pod_resources(found["spec"])
    return found


def defaulted_pod(pod: Json) -> Object:
    """A copy of a pod with the defaults of its spec.

    Not covered: probes, lifecycle hooks and volumes of other storage systems.
    Go: SetObjectDefaults_Pod in pkg/apis/core/v1.
    """
    found = defaulted_template(pod)
    spec = found["spec"]
    if spec.get("enableServiceLinks") is None:
        spec["enableServiceLinks"] = True
    if spec["terminationGracePeriodSeconds"] < 0:
        spec["terminationGracePeriodSeconds"] = 1
    for kind in ("containers", "initContainers"):
        for container in spec.get(kind) or []:
            # Templates keep their ports as they are: this default belongs to pods alone.
            if spec.get("hostNetwork"):
                _default_host_ports(container)
            resources = container["resources"]
            # SetDefaults_Pod: a limit without a request is also the request.
            if resources.get("limits"):
                resources["requests"] = {**resources["limits"], **(resources.get("requests") or {})}
    return found


def defaulted_template(template: Json) -> Object:
    """A copy of a workload's pod template with its defaults, which are fewer than those of a pod."""
    found = copy.deepcopy(dict(template))
    spec = found["spec"] = found.get("spec") or {}
    _default_spec(spec)
    for volume in spec.get("volumes") or []:
        _default_volume(volume)
    for kind in ("containers", "initContainers"):
        for container in spec.get(kind) or []:
            _default_container(container)
    return found


def _default_spec(spec: Object) -> None:
    for name, value in _SPEC.items():
        spec[name] = spec.get(name) or value
    if spec.get("securityContext") is None:
        spec["securityContext"] = {}
    if spec.get("terminationGracePeriodSeconds") is None:
        spec["terminationGracePeriodSeconds"] = 30
    _round(spec, ("overhead",))
    _round(spec.get("resources") or {}, ("limits", "requests"))
    # ``serviceAccount`` is the deprecated name of the same field; the API server writes both.
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account


def _default_volume(volume: Object) -> None:
    # SetDefaults_Volume: a volume that names no source is an emptyDir.
    if not any(value is not None for name, value in volume.items() if name != "name"):
        volume["emptyDir"] = {}
    for name, defaults in _VOLUMES.items():
        source = volume.get(name)
        if source is not None:
            _fill(source, defaults)
    image = volume.get("image")
    if image is not None:
        image["pullPolicy"] = image.get("pullPolicy") or default_pull_policy(image.get("reference") or "")
    files = [*((volume.get("downwardAPI") or {}).get("items") or [])]
    for source in (volume.get("projected") or {}).get("sources") or []:
        files += (source.get("downwardAPI") or {}).get("items") or []
        if source.get("serviceAccountToken") is not None:
            _fill(source["serviceAccountToken"], {"expirationSeconds": 3600})
    _default_field_references(files)


def _default_container(container: Object) -> None:
    container["imagePullPolicy"] = container.get("imagePullPolicy") or default_pull_policy(
        container.get("image") or ""
    )
    container["terminationMessagePath"] = container.get("terminationMessagePath") or "/dev/termination-log"
    container["terminationMessagePolicy"] = container.get("terminationMessagePolicy") or "File"
    for port in container.get("ports") or []:
        port["protocol"] = port.get("protocol") or "TCP"
    _default_field_references((one.get("valueFrom") or {}) for one in container.get("env") or [])
    for one in container.get("env") or []:
        source = one.get("valueFrom") or {}
        for kind, defaults in _SOURCES.items():
            if source.get(kind) is not None:
                _fill(source[kind], defaults)
    resources = container["resources"] = container.get("resources") or {}
    _round(resources, ("limits", "requests"))


def _default_host_ports(container: Object) -> None:
    for port in container.get("ports") or []:
        if not port.get("hostPort") and port.get("containerPort"):
            port["hostPort"] = port["containerPort"]


def _round(holder: Object, kinds: Iterable[str]) -> None:
    """Round the quantities of resource lists to thousandths (SetDefaults_ResourceList)."""
    for kind in kinds:
        if holder.get(kind):
            amounts = {name: Quantity.parse(str(text)) for name, text in holder[kind].items()}
            holder[kind] = {name: str(amount.rounded_up(3)) for name, amount in amounts.items()}


def _default_field_references(holders: Iterable[Object]) -> None:
    for holder in holders:
        if holder.get("fieldRef") is not None:
            holder["fieldRef"]["apiVersion"] = holder["fieldRef"].get("apiVersion") or "v1"


def _fill(holder: Object, defaults: Json) -> None:
    for name, value in defaults.items():
        if holder.get(name) is None:
            holder[name] = value


def default_pull_policy(image: str) -> str:
    """``Always`` for an image without a tag or with the tag ``latest``, else ``IfNotPresent``."""
    name, at, _ = image.partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    return "Always" if tag == "latest" or not (tag or at) else "IfNotPresent"


def defaulted_claim_spec(spec: Json) -> Object:
    """A copy of a ResourceClaimSpec with its defaults.

    By default a request, or each of its subrequests, asks for exactly one device, and a toleration compares
    with Equal. Go: SetDefaults_ExactDeviceRequest and SetDefaults_DeviceSubRequest in
    pkg/apis/resource/v1.
    """
    devices = spec.get("devices") or {}
    if not devices.get("requests"):
        return dict(spec)
    requests = [_defaulted_request(request) for request in devices["requests"]]
    return {**spec, "devices": {**devices, "requests": requests}}


def _defaulted_request(request: Json) -> Object:
    found = dict(request)
    if found.get("exactly") is not None:
        found["exactly"] = _defaulted_subrequest(found["exactly"])
    if found.get("firstAvailable"):
        found["firstAvailable"] = [_defaulted_subrequest(one) for one in found["firstAvailable"]]
    return found


def _defaulted_subrequest(stored: Json) -> Object:
    """A DeviceSubRequest, or an ExactDeviceRequest, which has the same defaults."""
    found = {**stored, "allocationMode": stored.get("allocationMode") or "ExactCount"}
    if found["allocationMode"] == "ExactCount" and not found.get("count"):
        found["count"] = 1
    if found.get("tolerations"):
        found["tolerations"] = [
            {**one, "operator": one.get("operator") or "Equal"} for one in found["tolerations"]
        ]
    return found


def defaulted_workload(workload: Mapping[str, Any], *, is_new: bool) -> Object:
    """A copy of a workload with its defaults.

    A new Job also gets the labels and the selector of its pods; it needs its name and UID for that.
    """
    found = copy.deepcopy(dict(workload))
    spec = found["spec"] = found.get("spec") or {}
    spec["template"] = defaulted_template(spec.get("template") or {})
    match found["kind"]:
        case "Deployment":
            _fill(spec, {"replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600})
            strategy = spec["strategy"] = spec.get("strategy") or {}
            strategy["type"] = strategy.get("type") or "RollingUpdate"
            if strategy["type"] == "RollingUpdate":
                strategy["rollingUpdate"] = strategy.get("rollingUpdate") or {}
                _fill(strategy["rollingUpdate"], {"maxUnavailable": "25%", "maxSurge": "25%"})
        case "ReplicaSet":
            _fill(spec, {"replicas": 1})
        case "Job":
            _default_job(found, is_new=is_new)
    return found


def _default_job(job: Object, *, is_new: bool) -> None:
    spec = job["spec"]
    # SetDefaults_Job: a Job that says neither runs once; parallelism alone makes it a work queue.
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    per_index = spec.get("backoffLimitPerIndex") is not None
    # With a podFailurePolicy the API allows only Failed: a pod is replaced once it has ended.
    replaced = "Failed" if spec.get("podFailurePolicy") is not None else "TerminatingOrFailed"
    limit = NO_LIMIT if per_index else 6
    _fill(spec, {"parallelism": 1, "backoffLimit": limit, "podReplacementPolicy": replaced, **_JOB})
    if is_new and not spec["manualSelector"]:
        _select_own_pods(job)
    _take_labels(job)


def _select_own_pods(job: Object) -> None:
    """Give a Job's pods labels of their own and select by them; labels that exist are kept."""
    metadata, spec = job["metadata"], job["spec"]
    template = spec["template"]["metadata"] = spec["template"].get("metadata") or {}
    labels = template["labels"] = template.get("labels") or {}
    _fill(labels, dict.fromkeys(_JOB_NAME_LABELS, metadata.get("name") or ""))
    _fill(labels, dict.fromkeys(_JOB_UID_LABELS, metadata["uid"]))
    selector = spec["selector"] = spec.get("selector") or {}
    selector["matchLabels"] = selector.get("matchLabels") or {}
    _fill(selector["matchLabels"], {_JOB_UID_LABELS[1]: metadata["uid"]})


def _take_labels(workload: Object) -> None:
    """A workload without labels gets those of its template."""
    labels = (workload["spec"]["template"].get("metadata") or {}).get("labels")
    if labels and not workload["metadata"].get("labels"):
        workload["metadata"]["labels"] = dict(labels)


def default_few(item: Object) -> None:
    """Fill in the defaults of a Node, a PriorityClass, or an object of RBAC; nothing of another kind.

    Go: defaults.go in pkg/apis/core/v1, scheduling/v1 and rbac/v1.
    """
    match item["kind"]:
        case "Node":
            status = item.get("status") or {}
            if status.get("capacity") and status.get("allocatable") is None:
                status["allocatable"] = dict(status["capacity"])
        case "PriorityClass":
            _fill(item, {"preemptionPolicy": "PreemptLowerPriority"})
        case "Role" | "ClusterRole":
            # The one list without omitempty in Go: an empty one is null.
            item["rules"] = item.get("rules") or None
        case "RoleBinding" | "ClusterRoleBinding":
            people = [one for one in item.get("subjects") or () if one.get("kind") in ("User", "Group")]
            for one in (item["roleRef"], *people):
                one["apiGroup"] = one.get("apiGroup") or "rbac.authorization.k8s.io"
