"""Finds what room is wanted for: a pod of the cluster, or the pod that a manifest would make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from driver.errors import ConfigError
from driver.policy.strict_yaml import load_all_strictly
from gpuctl.cli.cluster import ClusterView
from gpuctl.explain.snapshot import Object, events_of, listed_if_readable, pod_of, template_of
from kubernetes_rules.defaults import created_pod, defaulted_claim_spec
from kubernetes_rules.extended_resources import asked_resources

_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
_TEMPLATE_AT: Mapping[str, tuple[str, ...]] = {
    "Pod": (),
    "Deployment": ("spec", "template"),
    "ReplicaSet": ("spec", "template"),
    "StatefulSet": ("spec", "template"),
    "DaemonSet": ("spec", "template"),
    "Job": ("spec", "template"),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
}
"""Where each kind has its pod."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A pod, the claim ``templates`` and claims that it names, and the ``events`` about it.

    ``claims`` are those of a manifest, which the cluster may not have yet.
    """

    pod: Object
    templates: Mapping[str, Object | None]
    claims: tuple[Object, ...] = ()
    events: Sequence[Object] = field(default=())

    @property
    def namespace(self) -> str:
        """The namespace of the pod."""
        return str(self.pod["metadata"]["namespace"])

    @property
    def name(self) -> str:
        """The name of the pod, or of the object that would make it."""
        return str(self.pod["metadata"]["name"])

    @property
    def asks_devices(self) -> bool:
        """Whether it names claims, or asks for extended resources."""
        return bool(self.pod["spec"].get("resourceClaims") or asked_resources(self.pod))


def pod_in_cluster(view: ClusterView, namespace: str, name: str) -> Wanted:
    """A pod as it is now. Raises ConfigError if there is none, and ApiError."""
    pod = pod_of(view, namespace, name)
    if pod is None:
        raise ConfigError(f"there is no pod {namespace}/{name}", "name its namespace with -n")
    events = events_of(view, namespace, pod["metadata"]["uid"])
    return Wanted(pod, _templates(view, pod, {}), events=events)


def pod_of_file(view: ClusterView, path: Path, namespace: str) -> Wanted:
    """The first pod of a manifest, or the pod that its first Deployment, Job and so on would make.

    Claims and templates of the file count as if they were in the cluster; others are read from there.
    ``namespace`` is for objects that name none. Raises ConfigError for a file that cannot be used, and
    ApiError.
    """
    try:
        return _wanted(view, path, namespace)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"{path} is not as the API server wants it ({type(error).__name__}: {error})",
            "`kubectl apply --dry-run=server` says where",
        ) from error


def _wanted(view: ClusterView, path: Path, namespace: str) -> Wanted:
    documents = _documents(path)
    for one in documents:
        one["metadata"].setdefault("namespace", namespace)
    owner = next((one for one in documents if one["kind"] in _TEMPLATE_AT), None)
    if owner is None:
        kinds = ", ".join(_TEMPLATE_AT)
        raise ConfigError(f"{path} contains no pod", f"give one of these kinds: {kinds}")
    place = owner["metadata"]["namespace"]
    pod: Any = owner
    for key in _TEMPLATE_AT[owner["kind"]]:
        pod = pod.get(key) if isinstance(pod, dict) else None
    spec = pod.get("spec") if isinstance(pod, dict) else None
    if not isinstance(spec, dict) or not isinstance(spec.get("containers"), list):
        raise ConfigError(f"the {owner['kind']} of {path} has no pod with containers", "correct it")
    metadata = {**(pod.get("metadata") or {}), "name": owner["metadata"]["name"], "namespace": place}
    made = {
        **created_pod(
            {"metadata": {**metadata, "uid": ""}, "spec": {**spec, "priority": _priority(view, spec)}}
        ),
        "status": {"phase": "Pending"},
    }
    here = [one for one in documents if one["metadata"]["namespace"] == place]
    own = {one["metadata"]["name"]: one for one in here if one["kind"] == "ResourceClaimTemplate"}
    claims = tuple(
        {**one, "metadata": {"uid": f"{place}/{one['metadata']['name']}", **one["metadata"]}}
        for one in here
        if one["kind"] == "ResourceClaim"
    )
    return Wanted(made, _templates(view, made, own), claims)


def _documents(path: Path) -> list[Object]:
    """The objects of a file, also those within a List. Raises ConfigError."""
    try:
        listed = load_all_strictly(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}", "check --for") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not YAML: {error}", "correct it") from error
    for one in listed:
        metadata = one.get("metadata") if isinstance(one, dict) else None
        if not isinstance(metadata, dict) or not metadata.get("name") or not one.get("kind"):
            raise ConfigError(f"{path} contains an object without kind or metadata.name", "correct it")
    return [_with_defaults(path, one) for one in listed]


def _with_defaults(path: Path, one: Object) -> Object:
    """A claim or a template as the API server would store it; other objects as they are."""
    if one["kind"] not in ("ResourceClaim", "ResourceClaimTemplate"):
        return one
    is_template = one["kind"] == "ResourceClaimTemplate"
    spec: Any = one.get("spec")
    if is_template and isinstance(spec, dict):
        spec = spec.get("spec")
    devices = spec.get("devices") if isinstance(spec, dict) else None
    if not isinstance(devices, dict) or not isinstance(devices.get("requests"), list):
        raise ConfigError(f"{one['kind']} {one['metadata']['name']} of {path} has no requests", "correct it")
    made = defaulted_claim_spec(spec)
    return {**one, "spec": {**one["spec"], "spec": made} if is_template else made}


def _templates(view: ClusterView, pod: Object, known: Mapping[str, Object]) -> dict[str, Object | None]:
    """The claim templates that a pod names; those that are not ``known`` are read from the cluster."""
    entries = pod["spec"].get("resourceClaims") or ()
    names = sorted({entry.get("resourceClaimTemplateName") for entry in entries} - {None})
    namespace = str(pod["metadata"]["namespace"])
    return {name: known.get(name) or template_of(view, namespace, name) for name in names}


def _priority(view: ClusterView, spec: Object) -> int:
    """The priority that admission would give a pod. Raises ConfigError for a class that does not exist."""
    if spec.get("priority") is not None:
        return int(spec["priority"])
    classes = listed_if_readable(view, _CLASSES)
    name = spec.get("priorityClassName")
    for one in classes or ():
        if one["metadata"]["name"] == name if name else one.get("globalDefault"):
            return int(one["value"])
    if name:
        raise ConfigError(
            f"the PriorityClass {name} cannot be found", "create it, or write `priority` into the pod's spec"
        )
    return 0
