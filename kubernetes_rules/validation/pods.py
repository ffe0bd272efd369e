"""Checks pods, and the templates of workloads, for the mistakes that users make, and updates of pods.

Of claims and resources the rules are those of Kubernetes (ValidatePodCreate in pkg/apis/core/validation). Of
the rest, names, references within the pod, and what the scheduler reads are checked.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from kubernetes_rules.pod_resources import HUGE, amounts_of
from kubernetes_rules.quantity import Quantity
from kubernetes_rules.validation import field
from kubernetes_rules.validation.field import FieldError
from kubernetes_rules.validation.metadata import label_errors, metadata_errors, metadata_update_errors
from kubernetes_rules.validation.names import (
    dns_label,
    dns_subdomain,
    is_extended_resource_name,
    label_key,
    label_value,
)
from kubernetes_rules.validation.node_selector import node_selector_errors

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

_OF_CONTAINERS = frozenset({"cpu", "memory", "ephemeral-storage"})
_COUNTED = frozenset(
    {
        "configmaps",
        "persistentvolumeclaims",
        "pods",
        "replicationcontrollers",
        "resourcequotas",
        "secrets",
        "services",
        "services.loadbalancers",
        "services.nodeports",
    }
)
_STANDARD = (
    _OF_CONTAINERS
    | _COUNTED
    | {f"{kind}.{name}" for kind in ("requests", "limits") for name in _OF_CONTAINERS}
    | {"storage", "requests.storage"}
)
"""The names without a domain that a resource may have."""

MIRROR = "kubernetes.io/config.mirror"
"""The annotation of a mirror pod, which the kubelet creates for a static pod: one it runs from a file."""

_NAMES = {"resourceClaimName": "ResourceClaimName", "resourceClaimTemplateName": "ResourceClaimTemplateName"}


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


def resource_errors(resources: Object, claims: set[str], path: str) -> list[FieldError]:
    """The errors of a container's resources; ``claims`` are the names of the pod's claims."""
    limits, requests = amounts_of(resources, "limits"), amounts_of(resources, "requests")
    errors: list[FieldError] = []
    for kind, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            here = f"{path}.{kind}[{name}]"
            errors += _container_name_errors(name, here) + quantity_errors(name, amount, here)
    for name, amount in requests.items():
        errors += _limit_errors(name, amount, limits.get(name), path)
    return errors + container_claim_errors(resources.get("claims") or [], claims, f"{path}.claims")


def _limit_errors(name: str, amount: Quantity, limit: Quantity | None, path: str) -> list[FieldError]:
    """The errors of a request and its limit."""
    # IsOvercommitAllowed: of extended resources and huge pages the request has to equal the limit.
    shared = _is_native(name) and not name.startswith(HUGE)
    if limit is None:
        text = "Limit must be set for non overcommitable resources"
        return [] if shared else [field.required(f"{path}.limits", text)]
    if amount.value == limit.value or (shared and amount.value < limit.value):
        return []
    relation = "less than or equal to" if shared else "equal to"
    return [field.invalid(f"{path}.requests", str(amount), f"must be {relation} {name} limit of {limit}")]


def quantity_errors(name: str, amount: Quantity, path: str) -> list[FieldError]:
    """The errors of an amount of a resource: it is not negative, and of some resources whole."""
    errors: list[FieldError] = []
    if amount.value < 0:
        errors.append(field.invalid(path, str(amount), "must be greater than or equal to 0"))
    if (name in _COUNTED or is_extended_resource_name(name)) and amount.scaled(3) % 1000:
        errors.append(field.invalid(path, str(amount), "must be an integer"))
    return errors


def _container_name_errors(name: str, path: str) -> list[FieldError]:
    """The errors of the name of a resource that a container asks for."""
    errors = resource_name_errors(name, path)
    if "/" not in name:
        if name not in _OF_CONTAINERS and not name.startswith(HUGE):
            errors.append(field.invalid(path, name, "must be a standard resource for containers"))
    elif not _is_native(name) and not is_extended_resource_name(name):
        errors.append(field.invalid(path, name, "doesn't follow extended resource name standard"))
    return errors


def resource_name_errors(name: str, path: str) -> list[FieldError]:
    """The errors of the name of any resource."""
    errors = field.all_invalid(path, name, label_key(name))
    is_standard = name in _STANDARD or name.removeprefix("requests.").startswith(HUGE)
    if not errors and "/" not in name and not is_standard:
        errors.append(field.invalid(path, name, "must be a standard resource type or fully qualified"))
    return errors


def _is_native(name: str) -> bool:
    """Whether the resource is one of Kubernetes itself; a name without a domain counts as such."""
    return "/" not in name or "kubernetes.io/" in name


def claim_names(spec: Object) -> set[str]:
    """The names by which containers can refer to the claims of a pod."""
    return {entry["name"] for entry in spec.get("resourceClaims") or [] if entry.get("name")}


def pod_claim_errors(entries: list[Object], annotations: Object, path: str) -> list[FieldError]:
    """The errors of ``spec.resourceClaims``."""
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, entry in enumerate(entries):
        if MIRROR in annotations:
            # Kubernetes gives an empty path here, which it prints as "[]".
            errors.append(field.forbidden("[]", "static pods do not support resource claims"))
            continue
        here, name = f"{path}[{index}]", entry.get("name") or ""
        if not name:
            errors.append(field.required(f"{here}.name"))
        elif name in seen:
            errors.append(field.duplicate(f"{here}.name", name))
        else:
            errors += field.all_invalid(f"{here}.name", name, dns_label(name, "characters"))
            seen.add(name)
        errors += _source_errors(entry, here)
    return errors


def container_claim_errors(claims: list[Object], known: set[str], path: str) -> list[FieldError]:
    """The errors of ``resources.claims`` of a container; ``known`` are the names of the pod's claims."""
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, claim in enumerate(claims):
        here, name, request = f"{path}[{index}]", claim.get("name") or "", claim.get("request") or ""
        if not name:
            errors.append(field.required(here))
            continue
        if name in seen:
            errors.append(field.duplicate(here, name))
        else:
            key = f"{name}/{request}" if request else name
            if request:
                errors += field.all_invalid(f"{here}.request", request, dns_label(request, "characters"))
            if key in seen:
                errors.append(field.duplicate(here, key))
            # Without a request the claim means all its requests, so one of them before it is a duplicate.
            elif not request and any(other.partition("/")[0] == name for other in seen):
                errors.append(field.duplicate(here, name))
            seen.add(key)
        if name not in known:
            listed = f": {', '.join(sorted(known))}" if known else " which is empty"
            text = f"must be one of the names in pod.spec.resourceClaims{listed}"
            errors.append(field.not_found(here, name, text))
    return errors


def pod_status_errors(pod: Object, old: Object) -> list[FieldError]:
    """The errors of what the status of a pod says about its claims, on which the kubelet acts, and its node.

    Go: ValidatePodStatusUpdate.
    """
    spec, status = pod["spec"], pod.get("status") or {}
    errors: list[FieldError] = []
    nominated = status.get("nominatedNodeName")
    if spec.get("nodeName") and nominated and nominated != (old.get("status") or {}).get("nominatedNodeName"):
        text = "may not be set on pods that are already bound to a node"
        errors.append(field.forbidden("status.nominatedNodeName", text))
    seen: set[Hashable] = set()
    for index, one in enumerate(status.get("resourceClaimStatuses") or ()):
        here, name = f"status.resourceClaimStatuses[{index}]", one.get("name") or ""
        if name not in claim_names(spec):
            text = "must match the name of an entry in `spec.resourceClaims`"
            errors.append(field.invalid(f"{here}.name", name, text))
        if name in seen:
            errors.append(field.duplicate(f"{here}.name", name))
        seen.add(name)
        if (claim := one.get("resourceClaimName")) is not None:
            wrong = dns_subdomain(claim, "characters")
            errors += field.all_invalid(f"{here}.resourceClaimName", claim, wrong)
    made = status.get("extendedResourceClaimStatus")
    return errors if made is None else errors + _extended_status_errors(spec, made)


def _extended_status_errors(spec: Object, made: Object) -> list[FieldError]:
    path = "status.extendedResourceClaimStatus"
    asked = {
        one["name"]: (one.get("resources") or {}).get("requests") or {}
        for one in [*(spec.get("initContainers") or ()), *spec["containers"]]
    }
    errors: list[FieldError] = []
    mappings = made.get("requestMappings") or ()
    if not mappings:
        errors.append(field.required(f"{path}.requestMappings", "at least one request mapping is required"))
    seen: set[Hashable] = set()
    for index, one in enumerate(mappings):
        here = f"{path}.requestMappings[{index}]"
        names = {name: one.get(name) or "" for name in ("containerName", "resourceName", "requestName")}
        container, resource, request = names.values()
        if container not in asked:
            text = "must match the name of an entry in spec.initContainers.name or spec.containers.name"
            errors.append(field.invalid(f"{here}.containerName", container, text))
        elif resource not in asked[container]:
            text = (
                "must match the extended resource name of an entry in spec.initContainers.resources.requests "
                "or spec.containers.resources.requests"
            )
            errors.append(field.invalid(f"{here}.resourceName", resource, text))
        errors += field.all_invalid(f"{path}.requestName", request, dns_label(request, "characters"))
        if (container, resource, request) in seen:
            errors += [field.duplicate(f"{here}.{name}", value) for name, value in names.items()]
        seen.add((container, resource, request))
    if not (claim := made.get("resourceClaimName") or ""):
        return [*errors, field.required(f"{path}.resourceClaimName")]
    return errors + field.all_invalid(f"{path}.resourceClaimName", claim, dns_subdomain(claim, "characters"))


def _source_errors(entry: Object, path: str) -> list[FieldError]:
    """An entry names either a claim or a template."""
    errors: list[FieldError] = []
    given = [key for key in _NAMES if entry.get(key) is not None]
    if len(given) != 1:
        # Kubernetes prints the entry with Go's field names.
        shown = {"Name": entry.get("name") or "", **{_NAMES[key]: entry.get(key) for key in _NAMES}}
        text = (
            "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            if given
            else "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
        )
        errors.append(field.invalid(path, shown, text))
    for key in given:
        errors += field.all_invalid(f"{path}.{key}", entry[key], dns_subdomain(entry[key], "characters"))
    return errors
