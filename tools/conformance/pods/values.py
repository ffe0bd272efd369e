"""The texts that random cases put into pods, right and wrong ones, by the field that they are for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_TEXTS = (
    "", "a", "main", "helper", "setup", "gpu", "shared", "half", "scratch", "host", "disk", "Upper", "a_b",
    "a b", "a.b", "a.b/c", "A.b/C", "a/b/c", "/a", "a/", "-a", "a-", "a..b", "1a", "é", "a" * 16, "a" * 64,
    "a" * 254, "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Equal", "Always", "Never", "OnFailure",
    "IfNotPresent", "Sometimes", "NoSchedule", "NoExecute", "PreferNoSchedule", "metadata.name", "TCP",
    "..", "../a", "/a/../b", "..a", "/scratch", "/dev/disk", "node-1", " a", "Restart", "Enabled",
)  # fmt: skip
_AMOUNTS = (
    "0", "1", "2", "3", "-1", "500m", "0.5", "1500m", "2000m", "1u", "100m", "1Gi", "1024Mi", "2Gi", "1e3",
    "1k", "3Mi", "4Mi", "128Mi", "9223372036854775808", "0.0001", "2.0",
)  # fmt: skip
_CANONICAL_AMOUNTS = ("0", "1", "-1", "1m", "500m", "1Ki", "1Gi", "3Mi", "1k")
_RESOURCES = (
    "cpu", "memory", "ephemeral-storage", "nvidia.com/gpu", "amd.com/gpu", "gpu", "pods", "storage",
    "requests.cpu", "requests.nvidia.com/gpu", "a b", "a/b/c", "/gpu", "Upper.com/gpu", "kubernetes.io/gpu",
    "deviceclass.resource.kubernetes.io/gpu.example.com", "hugepages-2Mi", "hugepages-x", "hugepages-1Gi",
)  # fmt: skip
_FIELDS = ("spec.nodeName", "metadata.labels['a']", "metadata.labels['a b']", "status.phase", "x", "")
_RESOURCE_FIELDS = ("limits.cpu", "requests.memory", "limits.hugepages-2Mi", "limits.nvidia.com/gpu", "")
_LABEL_VALUES = ("", "a", "b c", "-a", "A_b", "a" * 64, "é")
_IMAGES = ("", "a", "a:latest", "a:1", "b.example/a:1@sha256:" + "b" * 64, "localhost:5000/a", " a")


def values_for(path: tuple[Any, ...]) -> Sequence[str]:
    """What to put at a place, which the keys that lead to it tell; an empty last key asks for a key."""
    parent, field = (path[-2] if len(path) > 1 else ""), path[-1]
    if parent in ("limits", "requests"):
        return _AMOUNTS if field else _RESOURCES
    if field in ("sizeLimit", "divisor"):
        return _CANONICAL_AMOUNTS
    special: dict[Any, Sequence[str]] = {
        "fieldPath": _FIELDS,
        "resource": _RESOURCE_FIELDS,
        "image": _IMAGES,
        "reference": _IMAGES,
    }
    if parent in ("labels", "nodeSelector") and field:
        return _LABEL_VALUES
    return special.get(field, _TEXTS)
