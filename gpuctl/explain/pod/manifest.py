"""Reads the pod that a manifest would make, with its claims, as if the cluster had them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from driver.errors import ConfigError
from driver.policy.strict_yaml import load_all_strictly
from gpuctl.cli.cluster import Object
from gpuctl.explain.snapshot import Snapshot
from kubernetes_rules.defaults import created_pod, defaulted_claim_spec

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


def pod_of_file(path: Path, namespace: str, snapshot: Snapshot) -> tuple[Object, Snapshot]:
    """The first pod of a manifest, or the pod that its first Deployment, Job and so on would make.

    Claims and templates of the file count in place of what the cluster has under the same name.
    ``namespace`` is for objects that name none. Raises ConfigError for a file that cannot be used, and
    ApiError.
    """
    try:
        return _pod(path, namespace, snapshot)
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"{path} is not as the API server wants it ({type(error).__name__}: {error})",
            "`kubectl apply --dry-run=server` says where",
        ) from error


def _pod(path: Path, namespace: str, snapshot: Snapshot) -> tuple[Object, Snapshot]:
    documents = _documents(path)
    for one in documents:
        one["metadata"].setdefault("namespace", namespace)
    owner = next((one for one in documents if one["kind"] in _TEMPLATE_AT), None)
    if owner is None:
        kinds = ", ".join(_TEMPLATE_AT)
        raise ConfigError(f"{path} contains no pod", f"give one of these kinds: {kinds}")
    place = owner["metadata"]["namespace"]
    pod: Any = owner
    for part in _TEMPLATE_AT[owner["kind"]]:
        pod = pod.get(part) if isinstance(pod, dict) else None
    spec = pod.get("spec") if isinstance(pod, dict) else None
    if not isinstance(spec, dict) or not isinstance(spec.get("containers"), list):
        raise ConfigError(f"the {owner['kind']} of {path} has no pod with containers", "correct it")
    metadata = {**(pod.get("metadata") or {}), "name": owner["metadata"]["name"], "namespace": place}
    created = {**spec, "priority": _priority(snapshot, spec)}
    made = {
        **created_pod({"metadata": {**metadata, "uid": ""}, "spec": created}),
        "status": {"phase": "Pending"},
    }
    claims: dict[tuple[str, str], Object] = {}
    templates: dict[tuple[str, str], Object | None] = {}
    for one in documents:
        key = str(one["metadata"]["namespace"]), str(one["metadata"]["name"])
        if one["kind"] == "ResourceClaim":
            claims[key] = {**one, "metadata": {"uid": "/".join(key), **one["metadata"]}}
        elif one["kind"] == "ResourceClaimTemplate":
            templates[key] = one
    others = (
        one
        for one in snapshot.claims
        if (one["metadata"]["namespace"], one["metadata"]["name"]) not in claims
    )
    return made, replace(snapshot, claims=(*others, *claims.values()), templates=templates)


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


def _priority(snapshot: Snapshot, spec: Object) -> int:
    """The priority that admission would give a pod. Raises ConfigError for a class that does not exist."""
    if spec.get("priority") is not None:
        return int(spec["priority"])
    classes = snapshot.listed(_CLASSES)
    name = spec.get("priorityClassName")
    for one in classes or ():
        if one["metadata"]["name"] == name if name else one.get("globalDefault"):
            return int(one["value"])
    if name:
        raise ConfigError(
            f"the PriorityClass {name} cannot be found", "create it, or write `priority` into the pod's spec"
        )
    return 0
