"""Puts markers where answers differ each time: names, UIDs, versions, times, continue tokens.

The same UID or version of an object has the same marker throughout a case, so that a change of it is seen.
What a request of the case has given is kept.
"""

from __future__ import annotations

import re
from typing import Any

from tools.conformance.api.connection import Step
from tools.conformance.area import Answer

_UUID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
_TIME = re.compile(r"\b20[2-9]\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?Z")
_VERSIONS = re.compile(r"(resource version: |current: |requested revision |\()(\d+)\b")
_ADDRESS = re.compile(r"\b(\d+\.){3}\d+:\d{4,5}\b")
_AGE = re.compile(r"\d+s")
_OBJECT = re.compile(r'"\{\\".*\}"')
"""An object in a message, as Go quotes it: it has the version and managedFields."""

_REFUSED_NAME = re.compile(r"(-G-)[a-z0-9]{5}\b")
"""A generated name that is refused, so that only messages have it; cases write ``-G-`` nowhere else."""


class Normal:
    """The markers of one case that is played on one server."""

    def __init__(self, name: str, case_text: str) -> None:
        """``name`` is that of the case's namespace, ``case_text`` all that its requests say."""
        self._name = name
        self._said = case_text
        self._uids: dict[str, str] = {}
        self._versions: dict[str, str] = {}
        self._generated: dict[str, str] = {}

    def answer(self, step: Step, answer: Answer) -> Answer:
        """The answer in its normal form; of its body only the fields that the step wants to see."""
        only = step.get("only")
        if only is not None and isinstance(answer["body"], dict):
            answer = {**answer, "body": {key: answer["body"].get(key) for key in only}}
        found = self._value(answer, "")
        assert isinstance(found, dict)
        return found

    def _value(self, value: Any, key: str) -> Any:
        if isinstance(value, dict):
            return self._map(value)
        if isinstance(value, list):
            return _sorted([self._value(item, key) for item in value], key)
        return self._text(value) if isinstance(value, str) else value

    def _map(self, value: dict[str, Any]) -> dict[str, Any]:
        prefix, name = value.get("generateName"), value.get("name")
        if isinstance(prefix, str) and isinstance(name, str) and name.startswith(prefix[:58]):
            self._generated.setdefault(name, f"{prefix[:58]}<{len(name) - len(prefix[:58])} random>")
        result = {self._text(key): self._value(item, key) for key, item in value.items()}
        version = value.get("resourceVersion")
        if isinstance(version, str) and version.isdecimal() and f'"{version}"' not in self._said:
            # The versions of lists and bookmarks are those of the whole store, which others write to.
            if "uid" in value:
                version = self._versions.setdefault(version, f"<version {len(self._versions) + 1}>")
            else:
                version = "<version>"
            result["resourceVersion"] = version
        if value.get("continue"):
            result["continue"] = "<continue>"
        return result

    def _text(self, text: str) -> str:
        for name, marker in self._generated.items():
            text = text.replace(name, marker)
        text = text.replace(self._name, "{{ns}}")
        if "{" in text:
            text = _OBJECT.sub('"<object>"', text)
        if ":" in text:
            text = _ADDRESS.sub("<address>", text)
        if "-" in text:
            text = _REFUSED_NAME.sub(r"\1<random>", text)
            text = _UUID.sub(self._uid, text)
            text = _TIME.sub(self._time, text)
        return _VERSIONS.sub(self._version, text) if "evision" in text or "ersion" in text else text

    def _uid(self, match: re.Match[str]) -> str:
        if match[0] in self._said:
            return match[0]
        return self._uids.setdefault(match[0], f"<uid {len(self._uids) + 1}>")

    def _time(self, match: re.Match[str]) -> str:
        if match[0] in self._said:
            return match[0]
        return "<time with microseconds>" if match[1] else "<time>"

    def _version(self, match: re.Match[str]) -> str:
        return match[0] if match[2] in self._said else f"{match[1]}<version>"


def _sorted(values: list[Any], key: str) -> list[Any]:
    """Managers of fields by name, where Kubernetes goes by seconds; conflicts, which it does not sort.

    Ages in the cells of a table are those of objects that a case has just made.
    """
    if key == "cells":
        return ["<age>" if isinstance(one, str) and _AGE.fullmatch(one) else one for one in values]
    if key == "managedFields":
        return sorted(values, key=lambda one: (one.get("operation", ""), one.get("manager", "")))
    if key == "causes" and any(one.get("reason") == "FieldManagerConflict" for one in values):
        return sorted(values, key=lambda one: (one["message"], one["field"]))
    return values
