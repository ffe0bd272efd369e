"""What kube-apiserver refuses of a MutatingWebhookConfiguration or a ValidatingWebhookConfiguration.

Go: k8s.io/kubernetes, pkg/apis/admissionregistration/validation, and k8s.io/apiserver,
pkg/util/webhook/validation.go.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from kubernetes_rules.admission.conditions import condition_errors
from kubernetes_rules.admission.objects import rule_errors
from kubernetes_rules.validation import field
from kubernetes_rules.validation.field import FieldError, invalid, not_supported, required
from kubernetes_rules.validation.metadata import label_selector_errors
from kubernetes_rules.validation.names import dns_label_1035, dns_subdomain

Object = dict[str, Any]
_REVIEW_VERSIONS = ("v1", "v1beta1")

_POLICIES = ("Fail", "Ignore")
_MATCH_POLICIES = ("Equivalent", "Exact")
_NO_SIDE_EFFECTS = ("None", "NoneOnDryRun")
_SIDE_EFFECTS = (*_NO_SIDE_EFFECTS, "Some", "Unknown")
_REINVOCATIONS = ("IfNeeded", "Never")
_MOST_TIMEOUT_SECONDS = 30
_FORM = "; desired format: https://host[/path]"


def webhook_errors(item: Object, old: Object | None) -> list[FieldError]:
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
            errors += condition_errors(listed, f"{path}.matchConditions", has_params=False)
        errors += _version_errors(hook, f"{path}.admissionReviewVersions", checks_known=checks_versions)
        if unique and name in seen:
            errors.append(field.duplicate(f"{path}.name", name))
        seen |= {name} if name else set()
    return errors


def _has_known_version(hook: Object) -> bool:
    versions = hook.get("admissionReviewVersions") or ()
    return not versions or any(version in _REVIEW_VERSIONS for version in versions)


def _hook_errors(hook: Object, path: str, effects: tuple[str, ...]) -> list[FieldError]:
    errors = _name_errors(hook.get("name") or "", f"{path}.name")
    for index, rule in enumerate(hook.get("rules") or ()):
        errors += rule_errors(rule, f"{path}.rules[{index}]")
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
        errors += label_selector_errors(hook.get(name) or {}, f"{path}.{name}")
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
    if url.startswith(":"):
        text = f'url must be a valid URL: parse "{url}": missing protocol scheme'
        return [required(path, f"{text}{_FORM}")]
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
    below = str(service.get("path") or "/")
    if below == "/":
        return errors
    if below == "//":
        return [*errors, invalid(f"{path}.path", below, "segment[0] may not be empty")]
    if not below.startswith("/"):
        errors.append(invalid(f"{path}.path", below, "must start with a '/'"))
    for index, step in enumerate(below[1:].removesuffix("/").split("/")):
        wrong = dns_subdomain(step) if step else ["may not be empty"]
        prefix = f"segment[{index}]: " if step else f"segment[{index}] "
        errors += field.all_invalid(f"{path}.path", below, [f"{prefix}{one}" for one in wrong])
    return errors


_SWAPPED = (("namespace", "name"), ("name", "namespace"))


def _version_errors(hook: Object, path: str, *, checks_known: bool) -> list[FieldError]:
    versions: list[str] = hook.get("admissionReviewVersions") or []
    if not versions:
        return [required(path, f"must specify one of {', '.join(_REVIEW_VERSIONS)}")]
    errors: list[FieldError] = []
    for index, version in enumerate(versions):
        if version in versions[:index]:
            errors.append(invalid(f"{path}[{index}]", version, "duplicate version"))
            continue
        errors += field.all_invalid(f"{path}[{index}]", version, dns_label_1035(version))
    if checks_known and not _has_known_version(hook):
        text = f"must include at least one of {', '.join(_REVIEW_VERSIONS)}"
        errors.append(invalid(path, versions, text))
    return errors
