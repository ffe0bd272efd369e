"""Checks the annotations of pods that mean something to Kubernetes."""

from __future__ import annotations

from typing import Any

from kubernetes_rules.validation.errors import FieldError, invalid
from kubernetes_rules.validation.pods.claims import MIRROR

Object = dict[str, Any]

_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_INT32 = range(-(2**31), 2**31)


def annotation_errors(annotations: Object, spec: Object, path: str) -> list[FieldError]:
    """The errors of the annotations that mean something to Kubernetes; their keys are checked elsewhere."""
    errors: list[FieldError] = []
    if MIRROR in annotations and not spec.get("nodeName"):
        text = "must set spec.nodeName if mirror pod annotation is set"
        errors.append(invalid(f"{path}[{MIRROR}]", annotations[MIRROR], text))
    cost = annotations.get(_DELETION_COST)
    if cost is not None and not _is_cost(cost):
        errors.append(invalid(f"{path}[{_DELETION_COST}]", cost, "must be a 32bit integer"))
    return errors


def _is_cost(text: str) -> bool:
    """Whether it is a 32 bit integer in the way that Kubernetes takes: no plus, no leading zero."""
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()):
        return False
    return (text == "0" or not text.startswith("0")) and int(text) in _INT32
