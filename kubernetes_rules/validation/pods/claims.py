"""Checks the ResourceClaims of a pod, and the references of its containers to them."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from kubernetes_rules.validation import field
from kubernetes_rules.validation.field import FieldError
from kubernetes_rules.validation.names import dns_label, dns_subdomain

Object = dict[str, Any]

MIRROR = "kubernetes.io/config.mirror"
"""The annotation of a mirror pod, which the kubelet creates for a static pod: one it runs from a file."""

_NAMES = {"resourceClaimName": "ResourceClaimName", "resourceClaimTemplateName": "ResourceClaimTemplateName"}


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
