"""Named formats such as ``format.dns1123Label()`` (k8s.io/apiserver/pkg/cel/library/format.go).

What Kubernetes says of a text that does not fit is not imitated: there is one error instead of several.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from kubernetes_rules.cel.library_urls import NotUrl, parse_request_uri, to_bytes
from kubernetes_rules.cel.types import STRING, Type, function, list_of, method, optional_of
from kubernetes_rules.cel.values import OpaqueValue, optional, regex_units

_FORMAT_TYPE = Type("kubernetes.NamedFormat")

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_UUID = "(?i:[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12})"
_BASE64 = "(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})"
_DATE = re.compile("([0-9]{4})-([0-9]{2})-([0-9]{2})")
_TIME = re.compile("([0-9]{2}):([0-9]{2}):([0-9]{2})(?:.[0-9]+)?(?:z|[+-][0-9]{2}:[0-9]{2})")
_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_ASCII_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}

Holds = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class NamedFormat(OpaqueValue):
    """A format: its name, its check of a text, and the size of its regular expression for the cost."""

    type: ClassVar[Type] = _FORMAT_TYPE

    name: str
    holds: Holds = field(compare=False)
    regex_size: int = field(compare=False)


def _matches(pattern: str, longest: int | None = None) -> Holds:
    """Whether a text matches a pattern and has at most so many bytes."""
    compiled = re.compile(pattern)

    def holds(text: str) -> bool:
        return compiled.fullmatch(text) is not None and (longest is None or len(to_bytes(text)) <= longest)

    return holds


_label = _matches(_LABEL, 63)
_subdomain = _matches(rf"{_LABEL}(\.{_LABEL})*", 253)
_label_1035 = _matches("[a-z]([-a-z0-9]*[a-z0-9])?", 63)
_name = _matches(_NAME, 63)


def _is_qualified_name(text: str) -> bool:
    prefix, slash, name = text.rpartition("/")
    return _name(name) and (not slash or _subdomain(prefix))


def _prefix_of(holds: Holds) -> Holds:
    """The check of a prefix, to which more text will be appended: a dash at its end is not an error."""

    def holds_of_prefix(text: str) -> bool:
        written = to_bytes(text)
        if len(written) > 1 and written.endswith(b"-"):
            text = (written[:-2] + b"a").decode("utf-8", "surrogateescape")
        return holds(text)

    return holds_of_prefix


def _is_uri(text: str) -> bool:
    try:
        parse_request_uri(to_bytes(text))
    except NotUrl:
        return False
    return True


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


_DATETIME_REGEX_SIZE = len(r"^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$")
_UUID_REGEX_SIZE = len("(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$")

FORMATS = {
    "dns1123Label": NamedFormat("DNS1123Label", _label, 30),
    "dns1123Subdomain": NamedFormat("DNS1123Subdomain", _subdomain, 60),
    "dns1035Label": NamedFormat("DNS1035Label", _label_1035, 30),
    "qualifiedName": NamedFormat("QualifiedName", _is_qualified_name, 60),
    "dns1123LabelPrefix": NamedFormat("DNS1123LabelPrefix", _prefix_of(_label), 30),
    "dns1123SubdomainPrefix": NamedFormat("DNS1123SubdomainPrefix", _prefix_of(_subdomain), 60),
    "dns1035LabelPrefix": NamedFormat("DNS1035LabelPrefix", _prefix_of(_label_1035), 30),
    "labelValue": NamedFormat("LabelValue", _matches(f"({_NAME})?", 63), 40),
    "uri": NamedFormat("URI", _is_uri, 1103),
    "uuid": NamedFormat("uuid", _matches(_UUID), _UUID_REGEX_SIZE),
    "byte": NamedFormat("byte", _matches(_BASE64), 84),
    "date": NamedFormat("date", _is_date, _DATETIME_REGEX_SIZE),
    "datetime": NamedFormat("datetime", _is_datetime, _DATETIME_REGEX_SIZE),
}
"""The formats by the name that ``format.named`` takes; as in Kubernetes, their own names differ."""


def _named(name: str) -> Any:
    return optional(FORMATS.get(name))


def _validate(form: NamedFormat, text: str) -> Any:
    return optional(None if form.holds(text) else (f"the text is not of the format {form.name}",))


def _validate_cost(arguments: tuple[Any, ...], _: Any) -> int:
    return regex_units(arguments[1], arguments[0].regex_size)


def _constant(form: NamedFormat) -> Callable[[], NamedFormat]:
    return lambda: form


OVERLOADS = (
    method("validate", (_FORMAT_TYPE, STRING), optional_of(list_of(STRING)), _validate, _validate_cost),
    function("format.named", (STRING,), optional_of(_FORMAT_TYPE), _named),
    *(function(f"format.{name}", (), _FORMAT_TYPE, _constant(form)) for name, form in FORMATS.items()),
)
