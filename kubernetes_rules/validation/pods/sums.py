"""Checks that the containers of a pod fit into the resources of the pod itself."""

from __future__ import annotations

from typing import Any

from kubernetes_rules.pod_resources import HUGE, amounts_of, container_total
from kubernetes_rules.validation.errors import FieldError, invalid

Object = dict[str, Any]


def sum_errors(spec: Object, path: str) -> list[FieldError]:
    """The errors of ``spec.resources``, at this path, beside what the containers ask for.

    All requests together fit, and all limits of huge pages; each other limit fits by itself.
    """
    limits, requests = (amounts_of(spec["resources"], kind) for kind in ("limits", "requests"))
    errors: list[FieldError] = []
    for kind, whole, names in (
        ("requests", requests, requests),
        ("limits", limits, [name for name in limits if name.startswith(HUGE)]),
    ):
        total = container_total(spec, kind)
        for name in names:
            if name in total and total[name].value > whole[name].value:
                text = f"must be greater than or equal to aggregate container {kind} of {total[name]}"
                errors.append(invalid(f"{path}.{kind}[{name}]", str(whole[name]), text))
    for index, container in enumerate(spec.get("containers") or []):
        for name, limit in amounts_of(container.get("resources") or {}, "limits").items():
            if name in limits and limit.value > limits[name].value:
                here = f"{path}.containers[{index}][{name}].limits"
                text = f"must be less than or equal to pod limits of {limits[name]}"
                errors.append(invalid(here, str(limit), text))
    return errors
