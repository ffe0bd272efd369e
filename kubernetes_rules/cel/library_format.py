"""Named formats such as ``format.dns1123Label()`` (k8s.io/apiserver/pkg/cel/library/format.go)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from kubernetes_rules.cel.library_urls import NotUrl, parse_request_uri, to_bytes
from kubernetes_rules.cel.types import STRING, Type, function, list_of, method, optional_of
from kubernetes_rules.cel.values import OpaqueValue, optional, regex_units
from kubernetes_rules.printed import quoted

_FORMAT_TYPE = Type("kubernetes.NamedFormat")

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_LABEL_1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"
_NAME = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_UUID = re.compile("(?i:[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12})")
_BASE64 = re.compile("(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})")
_DATE = re.compile("([0-9]{4})-([0-9]{2})-([0-9]{2})")
_TIME = re.compile("([0-9]{2}):([0-9]{2}):([0-9]{2})(?:.[0-9]+)?(?:z|[+-][0-9]{2}:[0-9]{2})")
_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_ASCII_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}

_LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start "
    "and end with an alphanumeric character"
)
_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must "
    "start and end with an alphanumeric character"
)
_LABEL_1035_RULE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic "
    "character, and end with an alphanumeric character"
)
_NAME_RULE = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character"
)
_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must "
    "start and end with an alphanumeric character"
)

Errors = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NamedFormat(OpaqueValue):
    """A format: its name, its check of a text, and the size of its regular expression for the cost."""

    type: ClassVar[Type] = _FORMAT_TYPE

    name: str
    errors: Callable[[str], Errors] = field(compare=False)
    regex_size: int = field(compare=False)


def _mismatch(
    text: str, longest: int | None, pattern: str, rule: str, *examples: str, counted: str = "characters"
) -> Errors:
    """The errors of a text that should match a pattern and have at most ``longest`` bytes.

    ``counted`` is the unit in the message of Kubernetes, which always counts bytes.
    """
    errors = []
    if longest is not None and len(to_bytes(text)) > longest:
        errors.append(f"must be no more than {longest} {counted}")
    if not re.fullmatch(pattern, text):
        shown = " or ".join(f"'{example}', " for example in examples)
        errors.append(f"{rule} (e.g. {shown}regex used for validation is '{pattern}')")
    return tuple(errors)


def _label(text: str) -> Errors:
    errors = _mismatch(text, 63, _LABEL, _LABEL_RULE, "my-name", "123-abc")
    if errors and re.fullmatch(_SUBDOMAIN, text) and not re.fullmatch(_LABEL, text):
        return (*errors[:-1], "must not contain dots")
    return errors


def _subdomain(text: str, counted: str = "characters") -> Errors:
    return _mismatch(text, 253, _SUBDOMAIN, _SUBDOMAIN_RULE, "example.com", counted=counted)


def _label_1035(text: str) -> Errors:
    return _mismatch(text, 63, _LABEL_1035, _LABEL_1035_RULE, "my-name", "abc-123")


def _label_value(text: str) -> Errors:
    return _mismatch(text, 63, f"({_NAME})?", _VALUE_RULE, "MyValue", "my_value", "12345", counted="bytes")


def _qualified_name(text: str) -> Errors:
    *prefixes, name = text.split("/")
    wrong_name = _mismatch(name, None, _NAME, _NAME_RULE, "MyName", "my.name", "123-abc")
    if len(prefixes) > 1:
        rule = _mismatch("", None, _NAME, f"a valid label key {_NAME_RULE}", "MyName", "my.name", "123-abc")
        return (f"{rule[0]} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",)
    errors = []
    if prefixes == [""]:
        errors.append("prefix part must be non-empty")
    elif prefixes:
        errors.extend(f"prefix part {error}" for error in _subdomain(prefixes[0], "bytes"))
    if not name:
        errors.append("name part must be non-empty")
    elif len(to_bytes(name)) > 63:
        errors.append("name part must be no more than 63 bytes")
    return (*errors, *(f"name part {error}" for error in wrong_name))


def _prefix_of(errors: Callable[[str], Errors]) -> Callable[[str], Errors]:
    """The check of a prefix, to which more text will be appended: a dash at its end is not an error."""

    def prefix_errors(text: str) -> Errors:
        written = to_bytes(text)
        if len(written) > 1 and written.endswith(b"-"):
            text = (written[:-2] + b"a").decode("utf-8", "surrogateescape")
        return errors(text)

    return prefix_errors


def _uri(text: str) -> Errors:
    try:
        parse_request_uri(to_bytes(text))
    except NotUrl as error:
        return (f"parse {quoted(text)}: {error}",)
    return ()


def _is_date(text: str) -> bool:
    match = _DATE.fullmatch(text)
    if match is None:
        return False
    year, month, day = map(int, match.groups())
    leap_day = month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return 1 <= month <= 12 and 1 <= day <= _DAYS[month - 1] + leap_day


def _is_datetime(text: str) -> bool:
    date, separator, rest = text.translate(_ASCII_LOWER).partition("t")
    match = _TIME.fullmatch(rest.partition("t")[0])
    if match is None or not separator or not _is_date(date):
        return False
    return match[1] <= "23" and match[2] <= "59" and match[3] <= "59"


def _unless(holds: Callable[[str], object], error: str) -> Callable[[str], Errors]:
    return lambda text: () if holds(text) else (error,)


_DATETIME_REGEX_SIZE = len(r"^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$")
_UUID_REGEX_SIZE = len("(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$")

FORMATS = {
    "dns1123Label": NamedFormat("DNS1123Label", _label, 30),
    "dns1123Subdomain": NamedFormat("DNS1123Subdomain", _subdomain, 60),
    "dns1035Label": NamedFormat("DNS1035Label", _label_1035, 30),
    "qualifiedName": NamedFormat("QualifiedName", _qualified_name, 60),
    "dns1123LabelPrefix": NamedFormat("DNS1123LabelPrefix", _prefix_of(_label), 30),
    "dns1123SubdomainPrefix": NamedFormat("DNS1123SubdomainPrefix", _prefix_of(_subdomain), 60),
    "dns1035LabelPrefix": NamedFormat("DNS1035LabelPrefix", _prefix_of(_label_1035), 30),
    "labelValue": NamedFormat("LabelValue", _label_value, 40),
    "uri": NamedFormat("URI", _uri, 1103),
    "uuid": NamedFormat("uuid", _unless(_UUID.fullmatch, "does not match the UUID format"), _UUID_REGEX_SIZE),
    "byte": NamedFormat("byte", _unless(_BASE64.fullmatch, "invalid base64"), 84),
    "date": NamedFormat("date", _unless(_is_date, "invalid date"), _DATETIME_REGEX_SIZE),
    "datetime": NamedFormat("datetime", _unless(_is_datetime, "invalid datetime"), _DATETIME_REGEX_SIZE),
}
"""The formats by the name that ``format.named`` takes; as in Kubernetes, their own names differ."""


def _named(name: str) -> Any:
    return optional(FORMATS.get(name))


def _validate(form: NamedFormat, text: str) -> Any:
    return optional(form.errors(text) or None)


def _validate_cost(arguments: tuple[Any, ...], _: Any) -> int:
    return regex_units(arguments[1], arguments[0].regex_size)


def _constant(form: NamedFormat) -> Callable[[], NamedFormat]:
    return lambda: form


OVERLOADS = (
    method("validate", (_FORMAT_TYPE, STRING), optional_of(list_of(STRING)), _validate, _validate_cost),
    function("format.named", (STRING,), optional_of(_FORMAT_TYPE), _named),
    *(function(f"format.{name}", (), _FORMAT_TYPE, _constant(form)) for name, form in FORMATS.items()),
)
