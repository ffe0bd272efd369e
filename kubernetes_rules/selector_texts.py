"""Reads selectors as texts: labels such as ``app in (web,db),!old``, fields such as ``status.phase!=Failed``.

The grammar is that of apimachinery: labels.Parse and fields.ParseSelector.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kubernetes_rules.validation.names import label_key, label_value

_WORD = r"[^=!(),<>\s]+"
_REQUIREMENT = re.compile(
    rf"""\s*(?:!\s*(?P<absent>{_WORD})
        |(?P<key>{_WORD})(?:\s*(?P<operator>==|!=|=|>|<)\s*(?P<one>{_WORD})?
            |\s+(?P<set>in|notin)\s*\((?P<several>[^=!()<>]*)\))?
    )\s*(?P<end>,|$)""",
    re.VERBOSE,
)
_OPERATORS = {"in": "In", "notin": "NotIn", "=": "In", "==": "In", "!=": "NotIn", ">": "Gt", "<": "Lt"}
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_FIELD_OPERATOR = re.compile(r"!=|==|=")
_TERM = re.compile(r"(?:\\.|[^\\,])*\\?", re.DOTALL)
_ESCAPE = re.compile(r"\\(.?)|([,=])", re.DOTALL)


class SelectorInvalid(ValueError):
    """A selector cannot be read; the text is what the API server answers with 400."""


@dataclass(frozen=True, slots=True)
class FieldTerm:
    """One term of a field selector: a field, and the value that it must have, or must not have."""

    field: str
    value: str
    is_equal: bool


def parse_label_selector(text: str) -> list[dict[str, Any]]:
    """The requirements of a label selector, as ``label_requirement_holds`` reads them.

    Raises SelectorInvalid.
    """
    found: list[dict[str, Any]] = []
    at = 0
    while text[at:].strip():
        matched = _REQUIREMENT.match(text, at)
        if matched is None or (matched["end"] == "," and not text[matched.end() :].strip()):
            raise SelectorInvalid(f"unable to parse requirement: '{text[at:]}'")
        found.append(_requirement(matched))
        at = matched.end()
    return found


def _requirement(matched: re.Match[str]) -> dict[str, Any]:
    """One requirement; raises SelectorInvalid for a key or a value that no label has."""
    key = matched["absent"] or matched["key"]
    wrong = label_key(key)
    written = matched["operator"] or matched["set"]
    values: list[str] | None = None
    if written is None:
        operator = "DoesNotExist" if matched["absent"] else "Exists"
    else:
        operator = _OPERATORS[written]
        listed = (matched["one"] or "") if matched["several"] is None else matched["several"]
        values = sorted({one.strip() for one in listed.split(",")})
        wrong += [text for one in values for text in label_value(one)]
        if operator in ("Gt", "Lt") and not _is_int64(values[0]):
            wrong.append("for 'Gt', 'Lt' operators, the value must be an integer")
    if wrong:
        raise SelectorInvalid(f"unable to parse requirement: {matched[0].strip()}: {'; '.join(wrong)}")
    return {"key": key, "operator": operator, **({} if values is None else {"values": values})}


def _is_int64(text: str) -> bool:
    return _INTEGER.fullmatch(text) is not None and -(2**63) <= int(text) < 2**63


def parse_field_selector(text: str) -> Sequence[FieldTerm]:
    """The terms of a field selector, by their texts; raises SelectorInvalid."""
    terms = []
    for part in sorted(filter(None, _TERM.findall(text))):
        operator = _FIELD_OPERATOR.search(part)
        if operator is None:
            raise SelectorInvalid(f"invalid selector: '{text}'; can't understand '{part}'")
        value = _ESCAPE.sub(_unescaped, part[operator.end() :])
        # A term of nothing but its operator selects everything.
        if operator.start() or value:
            terms.append(FieldTerm(part[: operator.start()], value, operator[0] != "!="))
    return terms


def _unescaped(match: re.Match[str]) -> str:
    if match[2]:
        raise SelectorInvalid(f"invalid field selector: unescaped character in value: {ord(match[2])}")
    if not match[1] or match[1] not in "\\,=":
        raise SelectorInvalid(f"invalid field selector: invalid escape sequence: {match[0]}")
    return match[1]
