"""Default values of kinds other than pods, workloads and claims, as the API server fills them in.

Go: defaults.go in pkg/apis/core/v1, rbac/v1 and scheduling/v1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Object = dict[str, Any]
Json = Mapping[str, Any]

_RBAC = "rbac.authorization.k8s.io"


def fill_in_defaults(item: Object, old: Json | None) -> None:
    """Fill in the defaults of an object, new or an update of ``old``; nothing for a kind without any here."""
    fill = _FILL.get(item["kind"])
    if fill is not None:
        fill(item, old)


def _binding(item: Object, _old: Json | None) -> None:
    role = item["roleRef"]
    role["apiGroup"] = role.get("apiGroup") or _RBAC
    for subject in item.get("subjects") or []:
        if subject.get("kind") in ("User", "Group"):
            subject["apiGroup"] = subject.get("apiGroup") or _RBAC


def _priority_class(item: Object, _old: Json | None) -> None:
    if item.get("preemptionPolicy") is None:
        item["preemptionPolicy"] = "PreemptLowerPriority"


def _node(item: Object, _old: Json | None) -> None:
    status = item.get("status") or {}
    if status.get("capacity") and status.get("allocatable") is None:
        status["allocatable"] = dict(status["capacity"])


def _role(item: Object, _old: Json | None) -> None:
    # The one list without omitempty in Go: an empty one is null.
    item["rules"] = item.get("rules") or None


_FILL: dict[str, Callable[[Object, Json | None], None]] = {
    "RoleBinding": _binding,
    "ClusterRoleBinding": _binding,
    "PriorityClass": _priority_class,
    "Node": _node,
    "Role": _role,
    "ClusterRole": _role,
}
