"""Checks names, labels and keys by apimachinery's rules; the functions return messages or field errors.

The rules are those of k8s.io/apimachinery/pkg/api/validate/content and strfmt.
"""

from __future__ import annotations

import re

from kubernetes_rules.validation.field import FieldError, all_invalid, invalid, required, too_long

LABEL_BYTES = 63
SUBDOMAIN_BYTES = 253
DRIVER_BYTES = 63
IDENTIFIER_BYTES = 32

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = _LABEL + r"(\." + _LABEL + ")*"
_KEY = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE = f"({_KEY})?"
_IDENTIFIER = "[A-Za-z_][A-Za-z0-9_]*"
_LABEL_RE, _SUBDOMAIN_RE, _KEY_RE, _VALUE_RE, _IDENTIFIER_RE = (
    re.compile(text) for text in (_LABEL, _SUBDOMAIN, _KEY, _VALUE, _IDENTIFIER)
)
_CASELESS_RE = re.compile(_SUBDOMAIN, re.IGNORECASE | re.ASCII)
_ENDS = "must start and end with an alphanumeric character"
_KEY_TEXT = f"must consist of alphanumeric characters, '-', '_' or '.', and {_ENDS}"
_CONFIG_KEY = "[-._a-zA-Z0-9]+"
_CONFIG_KEY_RE = re.compile(_CONFIG_KEY)
_UUID_RE = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def _bytes(text: str) -> int:
    return len(text.encode())


def _pattern(text: str, pattern: str, *examples: str) -> str:
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{text} (e.g. {shown}regex used for validation is '{pattern}')"


def dns_label(text: str, counted: str = "bytes") -> list[str]:
    """The messages for an invalid RFC 1123 label; older rules count bytes but call them ``characters``."""
    wrong = [] if _bytes(text) <= LABEL_BYTES else [f"must be no more than {LABEL_BYTES} {counted}"]
    if not _LABEL_RE.fullmatch(text):
        if _SUBDOMAIN_RE.fullmatch(text):
            return [*wrong, "must not contain dots"]
        rule = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
        wrong.append(_pattern(rule + _ENDS, _LABEL, "my-name", "123-abc"))
    return wrong


def path_segment(text: str) -> list[str]:
    """The messages for a name that cannot be a part of a URL's path."""
    if text in (".", ".."):
        return [f"may not be '{text}'"]
    return [f"may not contain '{character}'" for character in "/%" if character in text]


def dns_subdomain(text: str, counted: str = "bytes") -> list[str]:
    """The messages for an invalid lower case RFC 1123 subdomain; ``counted`` is as for ``dns_label``."""
    rule = (
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and "
    )
    return _subdomain(text, _SUBDOMAIN_RE, rule + _ENDS, "example.com", counted)


def dns_subdomain_caseless(text: str) -> list[str]:
    """The messages for an invalid RFC 1123 subdomain in any case."""
    rule = f"an RFC 1123 subdomain must consist of alphanumeric characters, '-' or '.', and {_ENDS}"
    return _subdomain(text, _CASELESS_RE, rule, "Example.com", "bytes")


def _subdomain(text: str, pattern: re.Pattern[str], rule: str, example: str, counted: str) -> list[str]:
    wrong = [] if _bytes(text) <= SUBDOMAIN_BYTES else [f"must be no more than {SUBDOMAIN_BYTES} {counted}"]
    if not pattern.fullmatch(text):
        wrong.append(_pattern(rule, _SUBDOMAIN, example))
    return wrong


def label_key(text: str) -> list[str]:
    """The messages for an invalid label key, also called a qualified name."""
    prefix, slash, name = text.rpartition("/")
    if "/" in prefix:
        rule = "a valid label key " + _pattern(_KEY_TEXT, _KEY, "MyName", "my.name", "123-abc")
        return [f"{rule} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"]
    wrong: list[str] = []
    if slash and not prefix:
        wrong.append("prefix part must be non-empty")
    elif slash:
        wrong += [f"prefix part {message}" for message in dns_subdomain(prefix)]
    if not name:
        wrong.append("name part must be non-empty")
    elif _bytes(name) > LABEL_BYTES:
        wrong.append(f"name part must be no more than {LABEL_BYTES} bytes")
    if not _KEY_RE.fullmatch(name):
        wrong.append("name part " + _pattern(_KEY_TEXT, _KEY, "MyName", "my.name", "123-abc"))
    return wrong


def label_value(text: str) -> list[str]:
    """The messages for an invalid label value."""
    wrong = [] if _bytes(text) <= LABEL_BYTES else [f"must be no more than {LABEL_BYTES} bytes"]
    if not _VALUE_RE.fullmatch(text):
        rule = (
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
            f"and {_ENDS}"
        )
        wrong.append(_pattern(rule, _VALUE, "MyValue", "my_value", "12345"))
    return wrong


def annotation_key(text: str) -> list[str]:
    """The messages for an invalid annotation key: a label key in any case."""
    return label_key(text.lower())


def config_key(text: str) -> list[str]:
    """The messages for an invalid key of a ConfigMap or a Secret."""
    wrong = [] if _bytes(text) <= SUBDOMAIN_BYTES else [f"must be no more than {SUBDOMAIN_BYTES} characters"]
    if not _CONFIG_KEY_RE.fullmatch(text):
        rule = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'"
        wrong.append(_pattern(rule, _CONFIG_KEY, "key.name", "KEY_NAME", "key-name"))
    if text in (".", ".."):
        wrong.append(f"must not be '{text}'")
    elif text.startswith(".."):
        wrong.append("must not start with '..'")
    return wrong


def c_identifier_errors(text: str, path: str) -> list[FieldError]:
    """The errors of an attribute's name without its domain."""
    errors = [too_long(path, IDENTIFIER_BYTES)] if _bytes(text) > IDENTIFIER_BYTES else []
    if not _IDENTIFIER_RE.fullmatch(text):
        rule = (
            "a valid C identifier must start with alphabetic character or '_', followed by a string of "
            "alphanumeric characters or '_'"
        )
        errors.append(invalid(path, text, _pattern(rule, _IDENTIFIER, "my_name", "MY_NAME", "MyName")))
    return errors


def driver_name_errors(name: str, path: str) -> list[FieldError]:
    """The errors of a driver's name, which may be in any case."""
    if not name:
        return [required(path)]
    errors = [too_long(path, DRIVER_BYTES)] if _bytes(name) > DRIVER_BYTES else []
    return errors + all_invalid(path, name, dns_subdomain(name.lower()))


def pool_name_errors(name: str, path: str) -> list[FieldError]:
    """The errors of a pool's name: subdomains separated by slashes."""
    if not name:
        return [required(path)]
    errors = [too_long(path, SUBDOMAIN_BYTES)] if _bytes(name) > SUBDOMAIN_BYTES else []
    for part in name.split("/"):
        errors += all_invalid(path, part, dns_subdomain(part))
    return errors


def qualified_name_errors(name: str, path: str) -> list[FieldError]:
    """The errors of the name of an attribute or a capacity (QualifiedName)."""
    parts = name.split("/")
    if len(parts) == 1:
        return c_identifier_errors(name, path)
    # validateQualifiedName has no case for this, so that it passes.
    if len(parts) > 2:
        return []
    domain, identifier = parts
    errors = (
        driver_name_errors(domain, path) if domain else [invalid(path, "", "the domain must not be empty")]
    )
    if identifier:
        return errors + c_identifier_errors(identifier, path)
    return [*errors, invalid(path, "", "the name must not be empty")]


def fully_qualified_name_errors(name: str, path: str) -> list[FieldError]:
    """The errors of an attribute's name that needs a domain, in lower case (FullyQualifiedName)."""
    errors = qualified_name_errors(name, path)
    domain, slash, rest = name.partition("/")
    if slash and "/" not in rest and domain and not errors:
        errors = all_invalid(path, domain, [f"prefix: {message}" for message in dns_subdomain(domain)])
    if not slash:
        errors.append(
            invalid(path, name, "a fully qualified name must be a domain and a name separated by a slash")
        )
    return errors


def is_uuid(text: str) -> bool:
    """Whether the text is a UUID in lower case with hyphens."""
    return _UUID_RE.fullmatch(text) is not None


def is_extended_resource_name(name: str) -> bool:
    """Whether a name is one of an extended resource, such as example.com/gpu."""
    if "/" not in name or "kubernetes.io/" in name or name.startswith("requests."):
        return False
    # ResourceQuota counts it under this name, which has to be valid too.
    return not label_key(f"requests.{name}")
