"""Checks the spec of a pod: single fields, fields that depend on each other, and fields for scheduling.

The latter are node selectors, node affinity, tolerations and scheduling gates.
"""

from __future__ import annotations

from typing import Any

from kubernetes_rules.validation import field
from kubernetes_rules.validation.field import FieldError
from kubernetes_rules.validation.names import dns_label, dns_subdomain, label_key, label_value
from kubernetes_rules.validation.node_selector import node_selector_errors, node_selector_term_errors
from kubernetes_rules.validation.pods.claims import claim_names, pod_claim_errors
from kubernetes_rules.validation.pods.containers import (
    container_list_errors,
    host_network_errors,
    init_container_list_errors,
)
from kubernetes_rules.validation.pods.resources import pod_resource_errors, sum_errors
from kubernetes_rules.validation.pods.volumes import volume_errors

Object = dict[str, Any]

_MOST_SECONDS = 2**31 - 1
_CHOICES = {
    "restartPolicy": ("Always", "OnFailure", "Never"),
    "dnsPolicy": ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"),
}
_SUBDOMAINS = ("serviceAccountName", "nodeName", "priorityClassName")
_LABELS = ("hostname", "subdomain")
_SYSTEMS = ("linux", "windows")

_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_WEIGHTS = range(1, 101)


def pod_spec_errors(spec: Object, metadata: Object | None, path: str) -> list[FieldError]:
    """The errors of a pod's spec with its defaults; ``metadata`` is the pod's, None for a template."""
    volumes, errors = volume_errors(spec.get("volumes") or [], metadata or {}, f"{path}.volumes")
    annotations, names = (metadata or {}).get("annotations") or {}, claim_names(spec)
    errors += pod_claim_errors(spec.get("resourceClaims") or [], annotations, f"{path}.resourceClaims")
    containers, initial = spec.get("containers") or [], spec.get("initContainers") or []
    errors += container_list_errors(containers, volumes, names, f"{path}.containers")
    errors += init_container_list_errors(initial, containers, volumes, names, f"{path}.initContainers")
    if spec.get("resources") is not None:
        errors += pod_resource_errors(spec["resources"], names, f"{path}.resources")
        errors += sum_errors(spec, f"{path}.resources")
    if spec.get("hostNetwork"):
        errors += host_network_errors(containers, f"{path}.containers", of_template=metadata is None)
    errors += _placement_errors(spec, path)
    errors += _name_errors(spec, path)
    errors += _choice_errors(spec, path)
    return errors + _number_errors(spec, path)


def _placement_errors(spec: Object, path: str) -> list[FieldError]:
    errors = _selector_errors(spec.get("nodeSelector") or {}, f"{path}.nodeSelector")
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    errors += _node_affinity_errors(affinity, f"{path}.affinity.nodeAffinity")
    errors += _pod_toleration_errors(spec.get("tolerations") or [], f"{path}.tolerations")
    return errors + _gate_errors(spec.get("schedulingGates") or [], f"{path}.schedulingGates")


def _name_errors(spec: Object, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for key in _SUBDOMAINS:
        name = spec.get(key) or ""
        errors += field.all_invalid(f"{path}.{key}", name, dns_subdomain(name, "characters")) if name else []
    for key in _LABELS:
        name = spec.get(key) or ""
        errors += field.all_invalid(f"{path}.{key}", name, dns_label(name, "characters")) if name else []
    runtime = spec.get("runtimeClassName")
    if runtime is not None:
        errors += field.all_invalid(f"{path}.runtimeClassName", runtime, dns_subdomain(runtime, "characters"))
    for index, gate in enumerate(spec.get("readinessGates") or []):
        name = gate.get("conditionType") or ""
        errors += field.all_invalid(f"{path}.readinessGates[{index}].conditionType", name, label_key(name))
    return errors


def _choice_errors(spec: Object, path: str) -> list[FieldError]:
    """The errors of fields that are enumerations, and of flags that exclude each other."""
    errors: list[FieldError] = []
    for key, choices in _CHOICES.items():
        errors += _one_of(spec.get(key) or "", choices, f"{path}.{key}")
    preemption = spec.get("preemptionPolicy")
    if preemption is not None:
        errors += _one_of(preemption, ("PreemptLowerPriority", "Never"), f"{path}.preemptionPolicy")
    if spec.get("os") is not None:
        system = spec["os"].get("name") or ""
        if not system:
            errors.append(field.required(f"{path}.os.name"))
        elif system not in _SYSTEMS:
            errors.append(field.not_supported(f"{path}.os", system, _SYSTEMS))
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        text = "ShareProcessNamespace and HostPID cannot both be enabled"
        errors.append(field.invalid(f"{path}.shareProcessNamespace", spec["shareProcessNamespace"], text))
    # A pod in a user namespace cannot share the other namespaces of the node.
    if spec.get("hostUsers") is False:
        text = "when `hostUsers` is false"
        for key, shown in (("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")):
            if spec.get(key):
                errors.append(field.forbidden(f"{path}.{shown}", text))
        errors += [
            field.forbidden(f"{path}.{kind}[{index}].volumeDevices", text)
            for kind in ("initContainers", "containers")
            for index, container in enumerate(spec.get(kind) or [])
            if container.get("volumeDevices")
        ]
    return errors


def _number_errors(spec: Object, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    grace, deadline = spec.get("terminationGracePeriodSeconds"), spec.get("activeDeadlineSeconds")
    if grace is None:
        errors.append(field.required(f"{path}.terminationGracePeriodSeconds"))
    if deadline is not None and not 1 <= deadline <= _MOST_SECONDS:
        text = f"must be between 1 and {_MOST_SECONDS}, inclusive"
        errors.append(field.invalid(f"{path}.activeDeadlineSeconds", deadline, text))
    return errors


def _one_of(value: str, choices: tuple[str, ...], path: str) -> list[FieldError]:
    if not value:
        return [field.required(path)]
    return [] if value in choices else [field.not_supported(path, value, choices)]


def _selector_errors(labels: Object, path: str) -> list[FieldError]:
    """The errors of ``nodeSelector``."""
    errors: list[FieldError] = []
    for key, value in labels.items():
        errors += field.all_invalid(path, key, label_key(key))
        errors += field.all_invalid(path, value or "", label_value(value or ""))
    return errors


def _node_affinity_errors(affinity: Object, path: str) -> list[FieldError]:
    """The errors of ``affinity.nodeAffinity``."""
    errors: list[FieldError] = []
    needed = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if needed is not None:
        errors += node_selector_errors(needed, f"{path}.requiredDuringSchedulingIgnoredDuringExecution")
    liked = affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or []
    for index, term in enumerate(liked):
        here = f"{path}.preferredDuringSchedulingIgnoredDuringExecution[{index}]"
        weight = term.get("weight") or 0
        if weight not in _WEIGHTS:
            errors.append(field.invalid(f"{here}.weight", weight, "must be in the range 1-100"))
        preference = term.get("preference") or {}
        errors += node_selector_term_errors(preference, f"{here}.preference", check_values=False)
    return errors


def _pod_toleration_errors(tolerations: list[Object], path: str) -> list[FieldError]:
    """The errors of ``tolerations``. Lt and Gt are behind a gate that is off."""
    errors: list[FieldError] = []
    for index, toleration in enumerate(tolerations):
        here = f"{path}[{index}]"
        key, value, operator, effect = (
            toleration.get(name) or "" for name in ("key", "value", "operator", "effect")
        )
        if key:
            errors += field.all_invalid(f"{here}.key", key, label_key(key))
        elif operator != "Exists":
            text = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            errors.append(field.invalid(f"{here}.operator", operator, text))
        if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
            text = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            errors.append(field.invalid(f"{here}.effect", effect, text))
        errors += _operator_errors(operator, value, f"{here}.operator")
        if effect and effect not in _EFFECTS:
            errors.append(field.not_supported(f"{here}.effect", effect, _EFFECTS))
    return errors


def _gate_errors(gates: list[Object], path: str) -> list[FieldError]:
    """The errors of ``schedulingGates``."""
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, gate in enumerate(gates):
        here, name = f"{path}[{index}]", gate.get("name") or ""
        errors += field.all_invalid(here, name, label_key(name))
        if name in seen:
            errors.append(field.duplicate(here, name))
        seen.add(name)
    return errors


def _operator_errors(operator: str, value: str, path: str) -> list[FieldError]:
    if operator in ("", "Equal"):
        wrong = label_value(value)
        return [field.invalid(path, value, ";".join(wrong))] if wrong else []
    if operator == "Exists":
        text = "value must be empty when `operator` is 'Exists'"
        return [field.invalid(path, value, text)] if value else []
    known = ("Equal", "Exists", "Lt", "Gt") if operator in ("Lt", "Gt") else ("Equal", "Exists")
    return [field.not_supported(path, operator, known)]
