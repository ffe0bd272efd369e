"""Asks the API server questions that store nothing: access reviews and dry runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from driver.errors import ApiError
from driver.kube.client import KubeClient
from driver.kube.errors import Forbidden, NotFound, Unauthorized
from gpuctl.cli.cluster import Object
from gpuctl.cli.unread import Unread
from gpuctl.doctor.outside.seen import Right

T = TypeVar("T")

DRY_RUN = {"dryRun": "All"}
GATES = {
    "sharedCounters": "DRAPartitionableDevices",
    "consumesCounters": "DRAPartitionableDevices",
    "allowMultipleAllocations": "DRAConsumableCapacity",
    "taints": "DRADeviceTaints",
}
"""The fields of slices that the driver needs, each with its feature gate: a server with it off drops them."""

_SLICES = "/apis/resource.k8s.io/v1/resourceslices"
_CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
_AUTHORIZATION = "/apis/authorization.k8s.io/v1"
_FEATURE = re.compile(r'^kubernetes_feature_enabled\{name="([A-Za-z0-9]+)"[^}]*\} ([01])', re.MULTILINE)
# Never complete, so that no scheduler would take it for a pool even if it were stored.
_POOL = {"name": "gpuctl-doctor", "generation": 1, "resourceSliceCount": 2}
_PROBES: tuple[Object, ...] = (
    {"sharedCounters": [{"name": "set", "counters": {"slices": {"value": "1"}}}]},
    {
        "devices": [
            {
                "name": "device",
                "allowMultipleAllocations": True,
                "capacity": {"memory": {"value": "1Gi"}},
                "consumesCounters": [{"counterSet": "set", "counters": {"slices": {"value": "1"}}}],
                "taints": [{"key": "gpu.nvidia.com/doctor", "effect": "NoSchedule"}],
            }
        ]
    },
)


def perhaps(what: str, ask: Callable[[], T]) -> T | Unread:
    """The answer, or why there is none; ``what`` says in words what was asked for."""
    try:
        return ask()
    except Forbidden:
        return Unread(f"this user may not {what}")
    except NotFound:
        return Unread(f"the API server does not let anybody {what}")
    except Unauthorized:
        raise
    except ApiError as error:
        return Unread(f"{what}: {error.what}")


def granted(
    client: KubeClient, rights: Iterable[Right], account: tuple[str, str] | None = None
) -> dict[Right, bool]:
    """Which of the rights this user has, or a service account, given as namespace and name.

    Asks by SelfSubjectAccessReview or SubjectAccessReview of authorization.k8s.io/v1. Raises ApiError.
    """
    return {right: _allowed(client, right, account) for right in rights}


def _allowed(client: KubeClient, right: Right, account: tuple[str, str] | None) -> bool:
    resource, _, subresource = right.resource.partition("/")
    attributes = {
        "verb": right.verb,
        "group": right.group,
        "resource": resource,
        "subresource": subresource,
        "namespace": right.namespace,
        "name": right.name,
    }
    spec: Object = {"resourceAttributes": {name: value for name, value in attributes.items() if value}}
    kind = "SelfSubjectAccessReview"
    if account is not None:
        # The groups that the API server gives to the token of a service account; rights may be bound to them.
        namespace, name = account
        kind = "SubjectAccessReview"
        spec["user"] = f"system:serviceaccount:{namespace}:{name}"
        spec["groups"] = [
            "system:serviceaccounts",
            f"system:serviceaccounts:{namespace}",
            "system:authenticated",
        ]
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
    answer = client.create(f"{_AUTHORIZATION}/{kind.lower()}s", body)
    return bool((answer.get("status") or {}).get("allowed"))


def dropped_fields(client: KubeClient) -> frozenset[str]:
    """The fields of ``GATES`` that the server leaves out of a slice, in a dry run; raises ApiError."""
    # The server drops a field whose gate is off without an error, so the answer has to be compared.
    stored: set[str] = set()
    for part in _PROBES:
        spec = {"driver": "doctor.gpu.nvidia.com", "nodeName": "gpuctl-doctor", "pool": _POOL, **part}
        body = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"generateName": "gpuctl-doctor-"},
            "spec": spec,
        }
        kept = client.create(_SLICES, body, DRY_RUN).get("spec") or {}
        stored.update(name for name, value in kept.items() if value)
        stored.update(name for one in kept.get("devices") or () for name, value in one.items() if value)
    return frozenset(GATES) - stored


def features(client: KubeClient) -> dict[str, bool]:
    """The feature gates of the API server that answers, from its metrics; raises ApiError."""
    return read_features(client.text("/metrics"))


def read_features(metrics: str) -> dict[str, bool]:
    """The feature gates in metrics of a component of Kubernetes: ``kubernetes_feature_enabled``."""
    return {name: value == "1" for name, value in _FEATURE.findall(metrics)}


def asked_webhook(client: KubeClient, webhooks: Iterable[Mapping[str, Any]]) -> str:
    """Create a claim, in a dry run, whose configuration one of these webhooks has to deny.

    Returns what else the API server answers; empty if one denies it. Raises Forbidden if this user may not
    create claims in the namespace default.
    """
    # Admission webhooks are called in a dry run too, if they are declared without side effects.
    names = [str(one["name"]) for item in webhooks for one in item.get("webhooks") or ()]
    wrong = {
        "apiVersion": "resource.nvidia.com/v1beta1",
        "kind": "GpuConfig",
        "sharing": {"strategy": "AskedByGpuctlDoctor"},
    }
    devices = {
        "requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}],
        "config": [{"opaque": {"driver": "gpu.nvidia.com", "parameters": wrong}}],
    }
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"generateName": "gpuctl-doctor-"},
        "spec": {"devices": devices},
    }
    try:
        client.create(_CLAIMS, body, DRY_RUN)
    except ApiError as error:
        # A denial has the status that the webhook chose; the name of the webhook is the API server's own.
        if any(f'webhook "{name}" denied' in error.what for name in names):
            return ""
        if isinstance(error, Forbidden):
            raise
        return error.what
    return "the claim would have been stored"
