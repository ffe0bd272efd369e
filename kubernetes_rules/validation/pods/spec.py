"""Checks pods, and the templates of workloads, for the mistakes that users make, and updates of pods.

Of claims and resources the rules are those of Kubernetes (ValidatePodCreate in pkg/apis/core/validation). Of
the rest, names, references within the pod, and what the scheduler reads are checked.
"""

from __future__ import annotations

from typing import Any

from kubernetes_rules.validation import field
from kubernetes_rules.validation.field import FieldError
from kubernetes_rules.validation.metadata import label_errors, metadata_errors, metadata_update_errors
from kubernetes_rules.validation.names import dns_label, dns_subdomain, label_key, label_value
from kubernetes_rules.validation.node_selector import node_selector_errors
from kubernetes_rules.validation.pods.claims import claim_names, pod_claim_errors
from kubernetes_rules.validation.pods.resources import resource_errors

Object = dict[str, Any]

_LISTS = ("containers", "initContainers")
_SUBDOMAINS = ("serviceAccountName", "nodeName", "priorityClassName", "runtimeClassName")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_OPERATORS = ("Equal", "Exists")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_CHANGEABLE = (
    "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"
    "`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def pod_errors(pod: Object) -> list[FieldError]:
    """The errors of a new pod with its defaults."""
    metadata, spec = pod.get("metadata") or {}, pod.get("spec") or {}
    errors = metadata_errors(metadata, namespaced=True)
    errors += _spec_errors(spec, metadata.get("annotations") or {}, "spec")
    errors += _choice_errors(spec, "spec.restartPolicy", ("Always", "OnFailure", "Never"))
    if spec.get("nodeName") and spec.get("schedulingGates"):
        text = "cannot be set until all schedulingGates have been cleared"
        errors.append(field.forbidden("spec.nodeName", text))
    return errors


def template_errors(workload: Object) -> list[FieldError]:
    """The errors of the template of a Deployment, a ReplicaSet or a Job, with its defaults."""
    template = (workload.get("spec") or {}).get("template") or {}
    spec, path = template.get("spec") or {}, "spec.template"
    errors = label_errors(template.get("metadata") or {}, path) + _spec_errors(spec, {}, f"{path}.spec")
    policies = ("OnFailure", "Never") if workload["kind"] == "Job" else ("Always",)
    return errors + _choice_errors(spec, f"{path}.spec.restartPolicy", policies)


def pod_update_errors(new: Object, old: Object) -> list[FieldError]:
    """The errors of ``new`` as an update of ``old``.

    Images and the deadline may change, tolerations may be added, and gates removed. A pod with scheduling
    gates may also be sent elsewhere (KEP-3838).
    """
    errors = metadata_update_errors(new.get("metadata") or {}, old["metadata"])
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    errors += _spec_errors(spec, (new.get("metadata") or {}).get("annotations") or {}, "spec")
    for kind in _LISTS:
        if len(spec.get(kind) or []) != len(before.get(kind) or []):
            errors.append(field.forbidden(f"spec.{kind}", "pod updates may not add or remove containers"))
            return errors
    kept = [{**one, "tolerationSeconds": 0} for one in spec.get("tolerations") or []]
    if any({**one, "tolerationSeconds": 0} not in kept for one in before.get("tolerations") or []):
        text = "existing toleration can not be modified except its tolerationSeconds"
        errors.append(field.forbidden("spec.tolerations", text))
    gates = [one.get("name") for one in before.get("schedulingGates") or []]
    for index, gate in enumerate(spec.get("schedulingGates") or []):
        if gate.get("name") not in gates:
            text = f"only deletion is allowed, but found new scheduling gate '{gate.get('name')}'"
            errors.append(field.forbidden(f"spec.schedulingGates[{index}].name", text))
    if gates and not (before.get("nodeSelector") or {}).items() <= (spec.get("nodeSelector") or {}).items():
        text = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        errors.append(field.invalid("spec.nodeSelector", spec.get("nodeSelector"), text))
    if _fixed(spec, gated=bool(gates)) != _fixed(before, gated=bool(gates)):
        errors.append(field.forbidden("spec", f"pod updates may not change fields other than {_CHANGEABLE}"))
    return errors


def _fixed(spec: Object, *, gated: bool) -> Object:
    """The part of a spec that never changes, without empty fields."""
    free = {"activeDeadlineSeconds", "tolerations", "schedulingGates"}
    free |= {"nodeSelector", "affinity"} if gated else set()
    kept = {key: value for key, value in spec.items() if key not in free and value not in (None, [], {}, "")}
    for kind in _LISTS:
        kept[kind] = [{**one, "image": ""} for one in spec.get(kind) or []]
    return kept


def _spec_errors(spec: Object, annotations: Object, path: str) -> list[FieldError]:
    claims = claim_names(spec)
    errors = pod_claim_errors(spec.get("resourceClaims") or [], annotations, f"{path}.resourceClaims")
    volumes = {one.get("name") for one in spec.get("volumes") or []}
    if not spec.get("containers"):
        errors.append(field.required(f"{path}.containers"))
    errors += _named_errors(spec.get("volumes") or [], f"{path}.volumes", set())
    seen: set[str] = set()
    for kind in _LISTS:
        errors += _named_errors(spec.get(kind) or [], f"{path}.{kind}", seen)
        for index, container in enumerate(spec.get(kind) or []):
            here = f"{path}.{kind}[{index}]"
            if not container.get("image"):
                errors.append(field.required(f"{here}.image"))
            errors += [
                field.not_found(f"{here}.volumeMounts[{number}].name", mount.get("name") or "")
                for number, mount in enumerate(container.get("volumeMounts") or [])
                if mount.get("name") not in volumes
            ]
            errors += resource_errors(container.get("resources") or {}, claims, f"{here}.resources")
    if (spec.get("resources") or {}).get("claims") is not None:
        text = "claims may not be set for Resources at pod-level"
        errors.append(field.forbidden(f"{path}.resources.claims", text))
    for key in _SUBDOMAINS:
        name = spec.get(key) or ""
        errors += field.all_invalid(f"{path}.{key}", name, dns_subdomain(name, "characters")) if name else []
    return errors + _placement_errors(spec, path)


def _named_errors(items: list[Object], path: str, seen: set[str]) -> list[FieldError]:
    """The errors of the names of containers or volumes; ``seen`` are those before, and gets these."""
    errors: list[FieldError] = []
    for index, item in enumerate(items):
        here, name = f"{path}[{index}].name", item.get("name") or ""
        if not name:
            errors.append(field.required(here))
        elif name in seen:
            errors.append(field.duplicate(here, name))
        else:
            errors += field.all_invalid(here, name, dns_label(name, "characters"))
        seen.add(name)
    return errors


def _choice_errors(spec: Object, path: str, choices: tuple[str, ...]) -> list[FieldError]:
    value = spec.get(path.rpartition(".")[2]) or ""
    return [] if value in choices else [field.not_supported(path, value, choices)]


def _placement_errors(spec: Object, path: str) -> list[FieldError]:
    """The errors of what the scheduler reads."""
    errors: list[FieldError] = []
    for key, value in (spec.get("nodeSelector") or {}).items():
        errors += field.all_invalid(f"{path}.nodeSelector", key, label_key(key))
        errors += field.all_invalid(f"{path}.nodeSelector", value or "", label_value(value or ""))
    needed = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED)
    if needed is not None:
        errors += node_selector_errors(needed, f"{path}.affinity.nodeAffinity.{_REQUIRED}")
    for index, toleration in enumerate(spec.get("tolerations") or []):
        here, operator = f"{path}.tolerations[{index}]", toleration.get("operator") or "Equal"
        if toleration.get("key"):
            errors += field.all_invalid(f"{here}.key", toleration["key"], label_key(toleration["key"]))
        elif operator != "Exists":
            text = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            errors.append(field.invalid(f"{here}.operator", operator, text))
        if operator not in _OPERATORS:
            errors.append(field.not_supported(f"{here}.operator", operator, _OPERATORS))
        if toleration.get("effect") and toleration["effect"] not in _EFFECTS:
            errors.append(field.not_supported(f"{here}.effect", toleration["effect"], _EFFECTS))
    errors += [
        error
        for index, gate in enumerate(spec.get("schedulingGates") or [])
        for error in field.all_invalid(
            f"{path}.schedulingGates[{index}]", gate.get("name") or "", label_key(gate.get("name") or "")
        )
    ]
    return errors
