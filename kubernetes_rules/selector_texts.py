"""Reads selectors as texts: labels such as ``app in (web,db),!old``, fields such as ``status.phase!=Failed``.

The grammar, with the words of its errors, is that of apimachinery: labels.Parse and fields.ParseSelector.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kubernetes_rules.validation.names import label_key, label_value

_WORD = re.compile(r"==|!=|[=!(),<>]|[^=!(),<> \t\r\n]+")
_SYMBOLS = frozenset({"", "==", "=", "!=", "!", "(", ")", ",", "<", ">"})
_OPERATORS = {
    "in": "In",
    "notin": "NotIn",
    "=": "In",
    "==": "In",
    "!=": "NotIn",
    ">": "Gt",
    "<": "Lt",
}
_BINARY = "in, notin, =, ==, !=, gt, lt"
_END = ""
"""What the end of the text is read as."""

_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
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
    return _Labels(text).requirements()


class _Labels:
    """Reads a label selector word by word. A word such as ``in`` may be a key, an operator or a value."""

    def __init__(self, text: str) -> None:
        self._words: list[str] = [*_WORD.findall(text), _END]
        self._at = 0

    def requirements(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        while (word := self._next()) != _END:
            if word != "!" and word in _SYMBOLS:
                raise SelectorInvalid(f"found '{word}', expected: !, identifier, or 'end of string'")
            try:
                found.append(self._requirement())
            except SelectorInvalid as error:
                raise SelectorInvalid(f"unable to parse requirement: {error}") from error
            word = self._take()
            if word == _END:
                break
            if word != ",":
                raise SelectorInvalid(f"found '{word}', expected: ',' or 'end of string'")
            word = self._next()
            if word != "!" and _is_symbol(word):
                raise SelectorInvalid(f"found '{word}', expected: identifier after ','")
        return found

    def _next(self) -> str:
        return self._words[self._at]

    def _take(self) -> str:
        word = self._words[self._at]
        # Behind the end there is nothing, however often it is taken.
        self._at = min(self._at + 1, len(self._words) - 1)
        return word

    def _requirement(self) -> dict[str, Any]:
        key = self._take()
        is_absent = key == "!"
        if is_absent:
            key = self._take()
        if _is_symbol(key):
            raise SelectorInvalid(f"found '{key}', expected: identifier")
        if wrong := label_key(key):
            raise SelectorInvalid(_invalid("<nil>", key, "; ".join(wrong)))
        if is_absent:
            return {"key": key, "operator": "DoesNotExist"}
        if self._next() in (_END, ","):
            return {"key": key, "operator": "Exists"}
        written = self._take()
        if written not in _OPERATORS:
            raise SelectorInvalid(f"found '{written}', expected: {_BINARY}")
        values = self._values() if written in ("in", "notin") else [self._value()]
        requirement = {"key": key, "operator": _OPERATORS[written], "values": sorted(set(values))}
        _check_values(requirement)
        return requirement

    def _value(self) -> str:
        if self._next() in (_END, ","):
            return ""
        word = self._take()
        if word in _SYMBOLS:
            raise SelectorInvalid(f"found '{word}', expected: identifier")
        return word

    def _values(self) -> list[str]:
        word = self._take()
        if word != "(":
            raise SelectorInvalid(f"found '{word}' expected: '('")
        first = self._next()
        if first == ")":
            self._take()
            return [""]
        if first != "," and _is_symbol(first):
            raise SelectorInvalid(f"found '{first}', expected: ',', ')' or identifier")
        found: list[str] = []
        while self._next() != ")":
            word = self._take()
            if word == ",":
                # Nothing before, between or behind commas is the empty value.
                if not found or self._next() in (",", ")"):
                    found.append("")
                continue
            if _is_symbol(word):
                raise SelectorInvalid(f"found '{word}', expected: ',', or identifier")
            found.append(word)
            if self._next() not in (",", ")"):
                raise SelectorInvalid(f"found '{self._next()}', expected: ',' or ')'")
        self._take()
        return found


def _is_symbol(word: str) -> bool:
    """Whether it is no key and no value; the end of the text is none either."""
    return word in _SYMBOLS


def _check_values(requirement: dict[str, Any]) -> None:
    """Check the values of a requirement (labels.NewRequirement); raises SelectorInvalid."""
    key, values = requirement["key"], requirement["values"]
    errors = []
    if requirement["operator"] in ("Gt", "Lt"):
        rule = "for 'Gt', 'Lt' operators, the value must be an integer"
        errors += [
            _invalid(f"values[{at}]", one, rule) for at, one in enumerate(values) if not _is_int64(one)
        ]
    for at, value in enumerate(values):
        if wrong := label_value(value):
            errors.append(_invalid(f"values[{at}][{key}]", value, "; ".join(wrong)))
    errors = list(dict.fromkeys(errors))
    if errors:
        raise SelectorInvalid(errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]")


def _is_int64(text: str) -> bool:
    return _INTEGER.fullmatch(text) is not None and -(2**63) <= int(text) < 2**63


def _invalid(path: str, value: str, rule: str) -> str:
    return f"{path}: Invalid value: {json.dumps(value, ensure_ascii=False)}: {rule}"


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
