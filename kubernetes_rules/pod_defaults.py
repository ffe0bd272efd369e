"""Fills in what the API server fills in where a pod leaves it out, before it looks at the pod."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from decimal import ROUND_UP, Decimal
from typing import Any

from kubernetes_rules.image_names import default_pull_policy
from kubernetes_rules.pod_resources import defaulted_pod_resources
from kubernetes_rules.quantity import Quantity

Json = Mapping[str, Any]
Object = dict[str, Any]

_MILLI = Decimal("0.001")
_SPEC = {
    "restartPolicy": "Always",
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
}
_FILES_MODE = 0o644
_SOURCES: dict[str, Object] = {"fileKeyRef": {"optional": False}, "resourceFieldRef": {"divisor": "0"}}
_VOLUMES: dict[str, Object] = {
    "secret": {"defaultMode": _FILES_MODE},
    "configMap": {"defaultMode": _FILES_MODE},
    "downwardAPI": {"defaultMode": _FILES_MODE},
    "projected": {"defaultMode": _FILES_MODE},
    "hostPath": {"type": ""},
}


def created_pod(pod: Json) -> Object:
    """A new pod with the defaults of its spec, among them those of what it requests as a whole."""
    found = defaulted_pod(pod)
    if found["spec"].get("resources") is not None:
        found["spec"]["resources"] = defaulted_pod_resources(found["spec"])
    return found


def defaulted_pod(pod: Json) -> Object:
    """A pod with the defaults of its spec; the one that is given stays as it is.

    Among them: what a container has a limit of and does not request, it requests as much of. Defaults of
    probes, of lifecycle hooks and of volumes of other systems are not there.
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
            if spec.get("hostNetwork"):
                _default_host_ports(container)
            resources = container["resources"]
            if resources.get("limits"):
                resources["requests"] = {**resources["limits"], **(resources.get("requests") or {})}
    return found


def defaulted_template(template: Json) -> Object:
    """The template of a workload's pods with its defaults, which are fewer than those of a pod."""
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
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account


def _default_volume(volume: Object) -> None:
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
    """Round the amounts of resources."""
    for kind in kinds:
        if holder.get(kind):
            holder[kind] = {name: _in_thousandths(str(text)) for name, text in holder[kind].items()}


def _in_thousandths(text: str) -> str:
    """The quantity as it is stored: what is finer than a thousandth is rounded away from zero."""
    quantity = Quantity.parse(text)
    if quantity.value == quantity.value.quantize(_MILLI, rounding=ROUND_UP):
        return str(quantity)
    return str(Quantity(quantity.value.quantize(_MILLI, rounding=ROUND_UP), quantity.format))


def _default_field_references(holders: Iterable[Object]) -> None:
    for holder in holders:
        if holder.get("fieldRef") is not None:
            holder["fieldRef"]["apiVersion"] = holder["fieldRef"].get("apiVersion") or "v1"


def _fill(holder: Object, defaults: Json) -> None:
    for name, value in defaults.items():
        if holder.get(name) is None:
            holder[name] = value
