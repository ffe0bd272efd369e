"""Checks the containers of a pod: names, images, and what each list of them allows."""

from __future__ import annotations

from typing import Any

from kubernetes_rules.validation.errors import (
    FieldError,
    all_invalid,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    too_many,
)
from kubernetes_rules.validation.names import dns_label
from kubernetes_rules.validation.pods.environment import variable_errors, variable_set_errors
from kubernetes_rules.validation.pods.mounts import device_errors, mount_errors
from kubernetes_rules.validation.pods.ports import host_port_errors, port_errors
from kubernetes_rules.validation.pods.resources import container_resource_errors
from kubernetes_rules.validation.pods.volumes import pull_policy_errors

Object = dict[str, Any]

_MESSAGE_POLICIES = ("File", "FallbackToLogsOnError")
_RESTART_POLICIES = ("Always", "Never", "OnFailure")
_ACTIONS = ("Restart", "RestartAllContainers")
_OPERATORS = ("In", "NotIn")
_MOST_RULES = 20
_MOST_CODES = 255
_ONLY_SIDECARS = ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe")


def container_list_errors(
    containers: list[Object], volumes: dict[str, Object], claims: set[str], path: str
) -> list[FieldError]:
    """The errors of ``spec.containers``; ``volumes`` are the right ones, ``claims`` the names of claims."""
    if not containers:
        return [required(path)]
    errors: list[FieldError] = []
    names: set[str] = set()
    for index, container in enumerate(containers):
        here, name = f"{path}[{index}]", container.get("name") or ""
        errors += _common_errors(container, volumes, claims, here)
        if name in names:
            errors.append(duplicate(f"{here}.name", name))
        names.add(name)
        errors += _restart_errors(container, here)
    return errors + host_port_errors([(f"{path}[{index}]", one) for index, one in enumerate(containers)])


def init_container_list_errors(
    containers: list[Object],
    others: list[Object],
    volumes: dict[str, Object],
    claims: set[str],
    path: str,
) -> list[FieldError]:
    """The errors of ``spec.initContainers``, whose names differ from those of ``others`` as well."""
    errors: list[FieldError] = []
    names = {one.get("name") or "" for one in others}
    for index, container in enumerate(containers):
        here, name = f"{path}[{index}]", container.get("name") or ""
        errors += _common_errors(container, volumes, claims, here)
        errors += _restart_errors(container, here)
        if name in names:
            errors.append(duplicate(f"{here}.name", name))
        elif name:
            names.add(name)
        # Each is looked at as if it were the first, since init containers run one by one.
        errors += host_port_errors([(f"{path}[0]", container)])
        if container.get("restartPolicy") != "Always":
            text = "may not be set for init containers without restartPolicy=Always"
            errors += [
                forbidden(f"{here}.{field}", text)
                for field in _ONLY_SIDECARS
                if container.get(field) is not None
            ]
    return errors


def untrimmed_image_errors(containers: list[Object], path: str) -> list[FieldError]:
    """The errors of images with white space around them."""
    text = "must not have leading or trailing whitespace"
    return [
        invalid(f"{path}[{index}].image", container["image"], text)
        for index, container in enumerate(containers)
        if (container.get("image") or "") != (container.get("image") or "").strip()
    ]


def _common_errors(
    container: Object, volumes: dict[str, Object], claims: set[str], path: str
) -> list[FieldError]:
    """What containers of all lists have in common."""
    name, policy = container.get("name") or "", container.get("terminationMessagePolicy") or ""
    errors = (
        all_invalid(f"{path}.name", name, dns_label(name, "characters"))
        if name
        else [required(f"{path}.name")]
    )
    if not container.get("image"):
        errors.append(required(f"{path}.image"))
    if not policy:
        errors.append(required(f"{path}.terminationMessagePolicy"))
    elif policy not in _MESSAGE_POLICIES:
        errors.append(not_supported(f"{path}.terminationMessagePolicy", policy, _MESSAGE_POLICIES))
    errors += port_errors(container.get("ports") or [], f"{path}.ports")
    errors += variable_errors(container.get("env") or [], f"{path}.env")
    errors += variable_set_errors(container.get("envFrom") or [], f"{path}.envFrom")
    errors += mount_errors(container, volumes, f"{path}.volumeMounts")
    errors += device_errors(container, volumes, f"{path}.volumeDevices")
    errors += pull_policy_errors(container.get("imagePullPolicy") or "", f"{path}.imagePullPolicy")
    return errors + container_resource_errors(container.get("resources") or {}, claims, f"{path}.resources")


def _restart_errors(container: Object, path: str) -> list[FieldError]:
    """The errors of when a container is started again, which may differ from its pod's policy."""
    policy, rules = container.get("restartPolicy"), container.get("restartPolicyRules") or []
    errors: list[FieldError] = []
    if policy is None:
        if rules:
            text = "must specify restartPolicy when restart rules are used"
            errors.append(required(f"{path}.restartPolicy", text))
    elif policy not in _RESTART_POLICIES:
        errors.append(not_supported(f"{path}.restartPolicy", policy, _RESTART_POLICIES))
    here = f"{path}.restartPolicyRules"
    if len(rules) > _MOST_RULES:
        errors.append(too_many(here, len(rules), _MOST_RULES))
    for index, rule in enumerate(rules):
        errors += _rule_errors(rule, f"{here}[{index}]")
    return errors


def _rule_errors(rule: Object, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    action, codes = rule.get("action") or "", rule.get("exitCodes")
    if action not in _ACTIONS:
        errors.append(not_supported(f"{path}.action", action, _ACTIONS))
    if codes is None:
        return [*errors, required(f"{path}.exitCodes", "must be specified")]
    operator, values = codes.get("operator") or "", codes.get("values") or []
    if operator not in _OPERATORS:
        errors.append(not_supported(f"{path}.exitCodes.operator", operator, _OPERATORS))
    if len(values) > _MOST_CODES:
        errors.append(too_many(f"{path}.exitCodes.values", len(values), _MOST_CODES))
    return errors
