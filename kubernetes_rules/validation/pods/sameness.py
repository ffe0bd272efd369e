"""Tells whether two parts of a pod's spec mean the same, as apimachinery's semantic equality does."""

from __future__ import annotations

from typing import Any

from kubernetes_rules.quantity import Quantity

_AMOUNTS = frozenset({"limits", "requests", "overhead"})
_MAPS = _AMOUNTS | {"nodeSelector", "matchLabels", "labels", "annotations", "volumeAttributes", "options"}
_STRUCTS = frozenset({"resources", "preference", "metadata", "podAffinityTerm"})
"""Fields that are there even where nobody wrote them; other objects may be absent, which is not empty."""
_TELLING_ZEROS = frozenset(
    {
        "activeDeadlineSeconds",
        "allowPrivilegeEscalation",
        "automountServiceAccountToken",
        "defaultMode",
        "enableServiceLinks",
        "fsGroup",
        "hostUsers",
        "hostnameOverride",
        "mode",
        "optional",
        "preemptionPolicy",
        "priority",
        "privileged",
        "readOnlyRootFilesystem",
        "resourceClaimName",
        "resourceClaimTemplateName",
        "runAsGroup",
        "runAsNonRoot",
        "runAsUser",
        "runtimeClassName",
        "setHostnameAsFQDN",
        "shareProcessNamespace",
        "terminationGracePeriodSeconds",
        "tolerationSeconds",
    }
)
"""Fields in which zero, false and the empty text say something else than absence."""


def same(one: Any, other: Any, path: tuple[str, ...] = ()) -> bool:
    """Whether both mean the same: ``500m`` is ``0.5``, and an empty list or text is an absent one.

    ``path`` are the names of the fields that lead to the parts.
    """
    field = path[-1] if path else ""
    if isinstance(one, dict) or isinstance(other, dict):
        if (one is None or other is None) and field not in _MAPS | _STRUCTS:
            return False
        left, right = one or {}, other or {}
        return all(same(left.get(key), right.get(key), (*path, key)) for key in {*left, *right})
    if isinstance(one, list) or isinstance(other, list):
        left, right = one or [], other or []
        return len(left) == len(right) and all(same(a, b, path) for a, b in zip(left, right, strict=True))
    if path[-2:-1] and path[-2] in _AMOUNTS and one is not None and other is not None:
        return Quantity.parse(str(one)) == Quantity.parse(str(other))
    if field in _TELLING_ZEROS or (path[-2:-1] and path[-2] in _MAPS):
        return bool(one == other)
    return bool((one or None) == (other or None))
