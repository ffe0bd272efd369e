"""Checks the containers of a pod: names, images, environment variables, ports, and rules of each list."""

from __future__ import annotations

from typing import Any

from kubernetes_rules.quantity import Quantity
from kubernetes_rules.validation import field, names
from kubernetes_rules.validation.field import FieldError
from kubernetes_rules.validation.pods.resources import container_resource_errors
from kubernetes_rules.validation.pods.volumes import device_errors, mount_errors, pull_policy_errors

Object = dict[str, Any]

_MESSAGE_POLICIES = ("File", "FallbackToLogsOnError")
_RESTART_POLICIES = ("Always", "Never", "OnFailure")
_ACTIONS = ("Restart", "RestartAllContainers")
_OPERATORS = ("In", "NotIn")
_MOST_RULES = 20
_MOST_CODES = 255
_ONLY_SIDECARS = ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe")

_FIELDS = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
_KNOWN_LABELS = frozenset(
    {*_FIELDS, "metadata.annotations", "metadata.labels", "spec.restartPolicy", "spec.schedulerName"}
    | {"status.phase"}
)
_RESOURCES = tuple(
    f"{kind}.{name}" for kind in ("limits", "requests") for name in ("cpu", "ephemeral-storage", "memory")
)
_HUGE_PREFIXES = ("limits.hugepages-", "requests.hugepages-")
_CPU_DIVISORS = ("1m", "1")
_BYTE_DIVISORS = ("1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei")
_SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")

_PORTS = range(1, 65536)
_RANGE = "must be between 1 and 65535, inclusive"
_PROTOCOLS = ("SCTP", "TCP", "UDP")


def container_list_errors(
    containers: list[Object], volumes: dict[str, Object], claims: set[str], path: str
) -> list[FieldError]:
    """The errors of ``spec.containers``; ``volumes`` are the valid ones, ``claims`` the names of claims."""
    if not containers:
        return [field.required(path)]
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, container in enumerate(containers):
        here, name = f"{path}[{index}]", container.get("name") or ""
        errors += _common_errors(container, volumes, claims, here)
        if name in seen:
            errors.append(field.duplicate(f"{here}.name", name))
        seen.add(name)
        errors += _restart_errors(container, here)
    return errors + _host_port_errors([(f"{path}[{index}]", one) for index, one in enumerate(containers)])


def init_container_list_errors(
    containers: list[Object], others: list[Object], volumes: dict[str, Object], claims: set[str], path: str
) -> list[FieldError]:
    """The errors of ``spec.initContainers``, whose names must differ from those of ``others`` too."""
    errors: list[FieldError] = []
    seen = {one.get("name") or "" for one in others}
    for index, container in enumerate(containers):
        here, name = f"{path}[{index}]", container.get("name") or ""
        errors += _common_errors(container, volumes, claims, here)
        errors += _restart_errors(container, here)
        if name in seen:
            errors.append(field.duplicate(f"{here}.name", name))
        elif name:
            seen.add(name)
        # Init containers run one by one, so each is checked alone, as if it were the first.
        errors += _host_port_errors([(f"{path}[0]", container)])
        if container.get("restartPolicy") != "Always":
            text = "may not be set for init containers without restartPolicy=Always"
            errors += [
                field.forbidden(f"{here}.{key}", text)
                for key in _ONLY_SIDECARS
                if container.get(key) is not None
            ]
    return errors


def untrimmed_image_errors(containers: list[Object], path: str) -> list[FieldError]:
    """The errors of images with white space around them."""
    text = "must not have leading or trailing whitespace"
    return [
        field.invalid(f"{path}[{index}].image", container["image"], text)
        for index, container in enumerate(containers)
        if (container.get("image") or "") != (container.get("image") or "").strip()
    ]


def _common_errors(
    container: Object, volumes: dict[str, Object], claims: set[str], path: str
) -> list[FieldError]:
    """The errors by rules that hold for containers of both lists."""
    name, policy = container.get("name") or "", container.get("terminationMessagePolicy") or ""
    errors = (
        field.all_invalid(f"{path}.name", name, names.dns_label(name, "characters"))
        if name
        else [field.required(f"{path}.name")]
    )
    if not container.get("image"):
        errors.append(field.required(f"{path}.image"))
    if not policy:
        errors.append(field.required(f"{path}.terminationMessagePolicy"))
    elif policy not in _MESSAGE_POLICIES:
        errors.append(field.not_supported(f"{path}.terminationMessagePolicy", policy, _MESSAGE_POLICIES))
    errors += _port_errors(container.get("ports") or [], f"{path}.ports")
    errors += _variable_errors(container.get("env") or [], f"{path}.env")
    errors += _variable_set_errors(container.get("envFrom") or [], f"{path}.envFrom")
    errors += mount_errors(container, volumes, f"{path}.volumeMounts")
    errors += device_errors(container, volumes, f"{path}.volumeDevices")
    errors += pull_policy_errors(container.get("imagePullPolicy") or "", f"{path}.imagePullPolicy")
    return errors + container_resource_errors(container.get("resources") or {}, claims, f"{path}.resources")


def _restart_errors(container: Object, path: str) -> list[FieldError]:
    """The errors of a container's own restart policy and its rules."""
    policy, rules = container.get("restartPolicy"), container.get("restartPolicyRules") or []
    errors: list[FieldError] = []
    if policy is None:
        if rules:
            text = "must specify restartPolicy when restart rules are used"
            errors.append(field.required(f"{path}.restartPolicy", text))
    elif policy not in _RESTART_POLICIES:
        errors.append(field.not_supported(f"{path}.restartPolicy", policy, _RESTART_POLICIES))
    here = f"{path}.restartPolicyRules"
    if len(rules) > _MOST_RULES:
        errors.append(field.too_many(here, len(rules), _MOST_RULES))
    for index, rule in enumerate(rules):
        errors += _rule_errors(rule, f"{here}[{index}]")
    return errors


def _rule_errors(rule: Object, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    action, codes = rule.get("action") or "", rule.get("exitCodes")
    if action not in _ACTIONS:
        errors.append(field.not_supported(f"{path}.action", action, _ACTIONS))
    if codes is None:
        return [*errors, field.required(f"{path}.exitCodes", "must be specified")]
    operator, values = codes.get("operator") or "", codes.get("values") or []
    if operator not in _OPERATORS:
        errors.append(field.not_supported(f"{path}.exitCodes.operator", operator, _OPERATORS))
    if len(values) > _MOST_CODES:
        errors.append(field.too_many(f"{path}.exitCodes.values", len(values), _MOST_CODES))
    return errors


def _variable_errors(variables: list[Object], path: str) -> list[FieldError]:
    """The errors of ``env``."""
    errors: list[FieldError] = []
    for index, variable in enumerate(variables):
        here, name = f"{path}[{index}]", variable.get("name") or ""
        if name:
            errors += field.all_invalid(f"{here}.name", name, names.environment_name(name))
        else:
            errors.append(field.required(f"{here}.name"))
        if variable.get("valueFrom") is not None:
            errors += _source_errors(variable["valueFrom"], bool(variable.get("value")), f"{here}.valueFrom")
    return errors


def _variable_set_errors(sets: list[Object], path: str) -> list[FieldError]:
    """The errors of ``envFrom``."""
    errors: list[FieldError] = []
    for index, one in enumerate(sets):
        here, prefix = f"{path}[{index}]", one.get("prefix") or ""
        if prefix:
            errors += field.all_invalid(f"{here}.prefix", prefix, names.environment_name(prefix))
        given = [key for key in ("configMapRef", "secretRef") if one.get(key) is not None]
        for key in given:
            name = one[key].get("name") or ""
            if name:
                # Kubernetes checks it as the prefix of a name, so that a trailing hyphen passes.
                masked = f"{name[:-1]}a" if len(name) > 1 and name.endswith("-") else name
                errors += field.all_invalid(
                    f"{here}.{key}.name", name, names.dns_subdomain(masked, "characters")
                )
            else:
                errors.append(field.required(f"{here}.{key}.name"))
        if not given:
            errors.append(field.invalid(path, "", "must specify one of: `configMapRef` or `secretRef`"))
        elif len(given) > 1:
            errors.append(field.invalid(path, "", "may not have more than one field specified at a time"))
    return errors


def _source_errors(source: Object, has_value: bool, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    given = [key for key in _SOURCES if source.get(key) is not None]
    for key in given:
        here = f"{path}.{key}"
        match key:
            case "fieldRef":
                errors += _field_errors(source[key], here)
            case "resourceFieldRef":
                errors += _resource_errors(source[key], here)
            case "configMapKeyRef" | "secretKeyRef":
                errors += _key_errors(source[key], here)
    if not given:
        listed = f"{', '.join(f'`{key}`' for key in _SOURCES[:-1])} or `{_SOURCES[-1]}`"
        errors.append(field.invalid(path, "", f"must specify one of: {listed}"))
    elif has_value:
        errors.append(field.invalid(path, "", "may not be specified when `value` is not empty"))
    elif len(given) > 1:
        errors.append(field.invalid(path, "", "may not have more than one field specified at a time"))
    return errors


def _field_errors(reference: Object, path: str) -> list[FieldError]:
    """The errors of a reference to a field of the pod, such as ``metadata.labels['app']``."""
    label, version = reference.get("fieldPath") or "", reference.get("apiVersion") or "v1"
    here = f"{path}.fieldPath"
    if not label:
        return [field.required(here)]
    if version != "v1":
        return [field.invalid(here, label, f"error converting fieldPath: unsupported pod version: {version}")]
    name, bracket, key = label.removesuffix("']").partition("['")
    if label.endswith("']") and bracket and name:
        if name == "metadata.annotations":
            return field.all_invalid(path, key.lower(), names.annotation_key(key))
        if name == "metadata.labels":
            return field.all_invalid(path, key, names.label_key(key))
        text = f"error converting fieldPath: field label does not support subscript: {label}"
        return [field.invalid(here, label, text)]
    # An older name of the field, which the API server still converts.
    label = "spec.nodeName" if label == "spec.host" else label
    if label not in _KNOWN_LABELS:
        return [field.invalid(here, label, f"error converting fieldPath: field label not supported: {label}")]
    return [] if label in _FIELDS else [field.not_supported(here, label, _FIELDS)]


def _resource_errors(reference: Object, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    name = reference.get("resource") or ""
    if not name:
        errors.append(field.required(f"{path}.resource"))
    elif name not in _RESOURCES and not name.startswith(_HUGE_PREFIXES):
        errors.append(field.not_supported(f"{path}.resource", name, _RESOURCES))
    divisor = Quantity.parse(str(reference.get("divisor") or "0"))
    kind = name.partition(".")[2]
    allowed = _CPU_DIVISORS if kind == "cpu" else _BYTE_DIVISORS
    if (
        divisor.value
        and (name in _RESOURCES or name.startswith(_HUGE_PREFIXES))
        and str(divisor) not in allowed
    ):
        listed = "1m and 1" if kind == "cpu" else ", ".join(_BYTE_DIVISORS)
        what = {"cpu": "cpu", "memory": "memory", "ephemeral-storage": "local ephemeral storage"}
        text = f"only divisor's values {listed} are supported with the {what.get(kind, 'hugepages')} resource"
        errors.append(field.invalid(f"{path}.divisor", name, text))
    return errors


def _key_errors(reference: Object, path: str) -> list[FieldError]:
    name, key = reference.get("name") or "", reference.get("key") or ""
    errors = field.all_invalid(f"{path}.name", name, names.dns_subdomain(name, "characters"))
    if not key:
        return [*errors, field.required(f"{path}.key")]
    return errors + field.all_invalid(f"{path}.key", key, names.config_key(key))


def _port_errors(ports: list[Object], path: str) -> list[FieldError]:
    """The errors of the ports of one container."""
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, port in enumerate(ports):
        here, name = f"{path}[{index}]", port.get("name") or ""
        wrong = names.port_name(name) if name else []
        errors += field.all_invalid(f"{here}.name", name, wrong)
        if name and not wrong:
            if name in seen:
                errors.append(field.duplicate(f"{here}.name", name))
            seen.add(name)
        number, outside = port.get("containerPort") or 0, port.get("hostPort") or 0
        if not number:
            errors.append(field.required(f"{here}.containerPort"))
        elif number not in _PORTS:
            errors.append(field.invalid(f"{here}.containerPort", number, _RANGE))
        if outside and outside not in _PORTS:
            errors.append(field.invalid(f"{here}.hostPort", outside, _RANGE))
        protocol = port.get("protocol") or ""
        if not protocol:
            errors.append(field.required(f"{here}.protocol"))
        elif protocol not in _PROTOCOLS:
            errors.append(field.not_supported(f"{here}.protocol", protocol, _PROTOCOLS))
    return errors


def _host_port_errors(containers: list[tuple[str, Object]]) -> list[FieldError]:
    """The errors of host ports that several of these containers use; each comes with its path."""
    errors: list[FieldError] = []
    seen: set[str] = set()
    for path, container in containers:
        for index, port in enumerate(container.get("ports") or []):
            if not port.get("hostPort"):
                continue
            key = f"{port.get('protocol') or ''}/{port.get('hostIP') or ''}/{port['hostPort']}"
            if key in seen:
                errors.append(field.duplicate(f"{path}.ports[{index}].hostPort", key))
            seen.add(key)
    return errors


def host_network_errors(containers: list[Object], path: str, *, of_template: bool) -> list[FieldError]:
    """The errors of ports in a pod on the host network whose host port is not their container port.

    A template may leave host ports out; its pods get them by default.
    """
    text = "must match `containerPort` when `hostNetwork` is true"
    return [
        field.invalid(f"{path}[{index}].ports[{number}].hostPort", port.get("hostPort") or 0, text)
        for index, container in enumerate(containers)
        for number, port in enumerate(container.get("ports") or [])
        if (port.get("hostPort") or 0) != (port.get("containerPort") or 0)
        and not (of_template and not port.get("hostPort"))
    ]
