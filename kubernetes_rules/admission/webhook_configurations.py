"""Defaults and errors of MutatingWebhookConfiguration and ValidatingWebhookConfiguration.

Go: k8s.io/kubernetes, pkg/apis/admissionregistration (v1/defaults.go, validation/validation.go), and
k8s.io/apiserver, pkg/util/webhook/validation.go.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

from kubernetes_rules.validation import field
from kubernetes_rules.validation.field import FieldError, invalid, not_supported, required
from kubernetes_rules.validation.names import dns_subdomain, label_key, label_value

Object = dict[str, Any]
ConditionErrors = Callable[[str, str], list[FieldError]]
"""The errors of a CEL expression of a match condition, from its text and its path."""

REVIEW_VERSIONS = ("v1", "v1beta1")
"""The versions of AdmissionReview that an API server sends."""

_POLICIES = ("Fail", "Ignore")
_MATCH_POLICIES = ("Equivalent", "Exact")
_NO_SIDE_EFFECTS = ("None", "NoneOnDryRun")
_SIDE_EFFECTS = (*_NO_SIDE_EFFECTS, "Some", "Unknown")
_REINVOCATIONS = ("IfNeeded", "Never")
_OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
_SCOPES = ("*", "Cluster", "Namespaced")
_MOST_CONDITIONS = 64
_MOST_TIMEOUT_SECONDS = 30
_FORM = "; desired format: https://host[/path]"
_VERSION = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_VERSION_RULE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic "
    "character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for "
    "validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)


def set_defaults(item: Object) -> None:
    """Fill in the defaults of a webhook configuration, in place."""
    for hook in item.get("webhooks") or ():
        hook.setdefault("failurePolicy", "Fail")
        hook.setdefault("matchPolicy", "Equivalent")
        hook.setdefault("namespaceSelector", {})
        hook.setdefault("objectSelector", {})
        hook.setdefault("timeoutSeconds", 10)
        if item.get("kind") == "MutatingWebhookConfiguration":
            hook.setdefault("reinvocationPolicy", "Never")
        for rule in hook.get("rules") or ():
            rule.setdefault("scope", "*")
        service = (hook.get("clientConfig") or {}).get("service")
        if service is not None:
            service.setdefault("port", 443)


def webhook_errors(item: Object, old: Object | None, condition_errors: ConditionErrors) -> list[FieldError]:
    """The errors of a webhook configuration without those of its metadata.

    An update may keep what ``old`` has and a new object may not have.
    """
    hooks: Sequence[Object] = item.get("webhooks") or ()
    before: Sequence[Object] | None = None if old is None else old.get("webhooks") or ()
    names = [hook.get("name") or "" for hook in before or ()]
    strict = before is None or all(hook.get("sideEffects") in _NO_SIDE_EFFECTS for hook in before)
    effects = _NO_SIDE_EFFECTS if strict else _SIDE_EFFECTS
    checks_versions = before is None or all(_has_known_version(hook) for hook in before)
    # Match conditions are checked again only where one of them has changed.
    conditions = [hook.get("matchConditions") for hook in hooks]
    checks_conditions = before is None or conditions != [hook.get("matchConditions") for hook in before]
    unique, seen = len(set(names)) == len(names), set()
    errors: list[FieldError] = []
    for index, hook in enumerate(hooks):
        path, name = f"webhooks[{index}]", hook.get("name") or ""
        errors += _hook_errors(hook, path, effects)
        if checks_conditions:
            listed = hook.get("matchConditions") or []
            errors += _match_condition_errors(listed, f"{path}.matchConditions", condition_errors)
        errors += _version_errors(hook, f"{path}.admissionReviewVersions", checks_known=checks_versions)
        if unique and name in seen:
            errors.append(field.duplicate(f"{path}.name", name))
        seen |= {name} if name else set()
    return errors


def _has_known_version(hook: Object) -> bool:
    versions = hook.get("admissionReviewVersions") or ()
    return not versions or any(version in REVIEW_VERSIONS for version in versions)


def _hook_errors(hook: Object, path: str, effects: tuple[str, ...]) -> list[FieldError]:
    errors = _name_errors(hook.get("name") or "", f"{path}.name")
    for index, rule in enumerate(hook.get("rules") or ()):
        errors += _rule_errors(rule, f"{path}.rules[{index}]")
    errors += _choice_errors(hook, "failurePolicy", path, _POLICIES)
    errors += _choice_errors(hook, "matchPolicy", path, _MATCH_POLICIES)
    if hook.get("sideEffects") is None:
        errors.append(required(f"{path}.sideEffects", f"must specify one of {', '.join(effects)}"))
    errors += _choice_errors(hook, "sideEffects", path, effects)
    seconds = hook.get("timeoutSeconds")
    if seconds is not None and not 1 <= seconds <= _MOST_TIMEOUT_SECONDS:
        text = "the timeout value must be between 1 and 30 seconds"
        errors.append(invalid(f"{path}.timeoutSeconds", seconds, text))
    for name in ("namespaceSelector", "objectSelector"):
        errors += selector_errors(hook.get(name) or {}, f"{path}.{name}")
    errors += _choice_errors(hook, "reinvocationPolicy", path, _REINVOCATIONS)
    return errors + _client_errors(hook.get("clientConfig") or {}, f"{path}.clientConfig")


def _choice_errors(hook: Object, name: str, path: str, choices: tuple[str, ...]) -> list[FieldError]:
    value = hook.get(name)
    return [] if value is None or value in choices else [not_supported(f"{path}.{name}", value, choices)]


def _name_errors(name: str, path: str) -> list[FieldError]:
    """The errors of a name that needs three segments (IsFullyQualifiedName)."""
    if not name:
        return [required(path)]
    wrong = dns_subdomain(name)
    if wrong:
        return [invalid(path, name, ",".join(wrong))]
    if name.count(".") < 2:
        text = "should be a domain with at least three segments separated by dots"
        return [invalid(path, name, text)]
    return []


def _rule_errors(rule: Object, path: str) -> list[FieldError]:
    operations = rule.get("operations") or []
    errors = [] if operations else [required(f"{path}.operations")]
    if len(operations) > 1 and "*" in operations:
        text = "if '*' is present, must not specify other operations"
        errors.append(invalid(f"{path}.operations", operations, text))
    for index, operation in enumerate(operations):
        if operation not in _OPERATIONS:
            errors.append(not_supported(f"{path}.operations[{index}]", operation, _OPERATIONS))
    for name, words in (("apiGroups", "API groups"), ("apiVersions", "API versions")):
        values = rule.get(name) or []
        if not values:
            errors.append(required(f"{path}.{name}"))
        if len(values) > 1 and "*" in values:
            text = f"if '*' is present, must not specify other {words}"
            errors.append(invalid(f"{path}.{name}", values, text))
    for index, version in enumerate(rule.get("apiVersions") or ()):
        if not version:
            errors.append(required(f"{path}.apiVersions[{index}]"))
    errors += _resource_errors(rule.get("resources") or [], f"{path}.resources")
    scope = rule.get("scope")
    return (
        errors
        if scope is None or scope in _SCOPES
        else [
            *errors,
            not_supported(f"{path}.scope", scope, _SCOPES),
        ]
    )


def _resource_errors(resources: list[str], path: str) -> list[FieldError]:
    errors = [] if resources else [required(path)]
    # Resources with x/*, and subresources with */x.
    wide, everywhere = set(), set()
    has_plain = False
    for index, text in enumerate(resources):
        place = f"{path}[{index}]"
        if not text:
            errors.append(required(place))
            continue
        resource, slash, subresource = text.partition("/")
        if not slash:
            # The last one counts, as in Kubernetes.
            has_plain = text != "*"
            continue
        if resource in wide:
            errors.append(invalid(place, text, f"if '{resource}/*' is present, must not specify {text}"))
        if subresource in everywhere:
            errors.append(invalid(place, text, f"if '*/{subresource}' is present, must not specify {text}"))
        wide |= {resource} if subresource == "*" else set()
        everywhere |= {subresource} if resource == "*" else set()
    if len(resources) > 1 and "*/*" in resources:
        errors.append(invalid(path, resources, "if '*/*' is present, must not specify other resources"))
    if "*" in resources and has_plain:
        text = "if '*' is present, must not specify other resources without subresources"
        errors.append(invalid(path, resources, text))
    return errors


def selector_errors(selector: Object, path: str) -> list[FieldError]:
    """The errors of a label selector (ValidateLabelSelector of apimachinery)."""
    errors: list[FieldError] = []
    for key, value in (selector.get("matchLabels") or {}).items():
        errors += field.all_invalid(f"{path}.matchLabels", key, label_key(key))
        errors += field.all_invalid(f"{path}.matchLabels", value, label_value(value))
    for index, one in enumerate(selector.get("matchExpressions") or ()):
        place, operator, values = f"{path}.matchExpressions[{index}]", one.get("operator"), one.get("values")
        if operator in ("In", "NotIn"):
            text = "must be specified when `operator` is 'In' or 'NotIn'"
            errors += [] if values else [required(f"{place}.values", text)]
        elif operator in ("Exists", "DoesNotExist"):
            text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            errors += [field.forbidden(f"{place}.values", text)] if values else []
        else:
            errors.append(invalid(f"{place}.operator", operator or "", "not a valid selector operator"))
        errors += field.all_invalid(f"{place}.key", one.get("key") or "", label_key(one.get("key") or ""))
        for number, value in enumerate(values or ()):
            errors += field.all_invalid(f"{place}.values[{number}]", value, label_value(value))
    return errors


def _client_errors(config: Object, path: str) -> list[FieldError]:
    url, service = config.get("url"), config.get("service")
    if (url is None) is (service is None):
        return [required(path, "exactly one of url or service is required")]
    return _service_errors(service, f"{path}.service") if service else _url_errors(url or "", f"{path}.url")


def _url_errors(url: str, path: str) -> list[FieldError]:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        return [required(path, f"url must be a valid URL: {error}{_FORM}")]
    errors = []
    if parts.scheme != "https":
        text = f"'https' is the only allowed URL scheme{_FORM}"
        errors.append(invalid(path, parts.scheme, text))
    user, _, host = parts.netloc.rpartition("@")
    if not host:
        errors.append(invalid(path, host, f"host must be specified{_FORM}"))
    if user:
        errors.append(invalid(path, user, "user information is not permitted in the URL"))
    if parts.fragment:
        errors.append(invalid(path, parts.fragment, "fragments are not permitted in the URL"))
    if parts.query:
        errors.append(invalid(path, parts.query, "query parameters are not permitted in the URL"))
    return errors


def _service_errors(service: Object, path: str) -> list[FieldError]:
    # ValidateWebhookService is called with name and namespace in the place of each other.
    errors = [required(f"{path}.{name}") for field_name, name in _SWAPPED if not service.get(field_name)]
    port = service.get("port", 443)
    if not 1 <= port <= 65535:
        text = "port is not valid: must be between 1 and 65535, inclusive"
        errors.append(invalid(f"{path}.port", port, text))
    text = service.get("path")
    if not text or text == "/":
        return errors
    if text == "//":
        return [*errors, invalid(f"{path}.path", text, "segment[0] may not be empty")]
    if not text.startswith("/"):
        errors.append(invalid(f"{path}.path", text, "must start with a '/'"))
    for index, step in enumerate(text[1:].removesuffix("/").split("/")):
        wrong = dns_subdomain(step) if step else ["may not be empty"]
        prefix = f"segment[{index}]: " if step else f"segment[{index}] "
        errors += field.all_invalid(f"{path}.path", text, [f"{prefix}{one}" for one in wrong])
    return errors


_SWAPPED = (("namespace", "name"), ("name", "namespace"))


def _version_errors(hook: Object, path: str, *, checks_known: bool) -> list[FieldError]:
    versions: list[str] = hook.get("admissionReviewVersions") or []
    if not versions:
        return [required(path, f"must specify one of {', '.join(REVIEW_VERSIONS)}")]
    errors: list[FieldError] = []
    for index, version in enumerate(versions):
        if version in versions[:index]:
            errors.append(invalid(f"{path}[{index}]", version, "duplicate version"))
        elif not _VERSION.fullmatch(version):
            errors.append(invalid(f"{path}[{index}]", version, _VERSION_RULE))
    if checks_known and not _has_known_version(hook):
        text = f"must include at least one of {', '.join(REVIEW_VERSIONS)}"
        errors.append(invalid(path, versions, text))
    return errors


def _match_condition_errors(
    conditions: list[Object], path: str, condition_errors: ConditionErrors
) -> list[FieldError]:
    errors: list[FieldError] = []
    if len(conditions) > _MOST_CONDITIONS:
        errors.append(field.too_many(path, len(conditions), _MOST_CONDITIONS))
    seen = set()
    for index, one in enumerate(conditions):
        place, name = f"{path}[{index}]", one.get("name") or ""
        expression = (one.get("expression") or "").strip()
        if expression:
            errors += condition_errors(expression, f"{place}.expression")
        else:
            errors.append(required(f"{place}.expression"))
        errors += (
            field.all_invalid(f"{place}.name", name, label_key(name)) if name else [required(f"{place}.name")]
        )
        if name in seen:
            errors.append(field.duplicate(f"{place}.name", name))
        seen |= {name} if name else set()
    return errors
