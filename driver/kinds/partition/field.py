"""Reads the field ``mig`` of a rule of the node configuration: the partitions of a GPU."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from driver.devices.gpu_policy import GpuPolicy, MigMode, MigOffer
from driver.kinds.kind import PolicyField
from driver.kinds.partition.layouts import profile_of_layout

MOST_PARTITIONS = 16
"""The longest layout; no GPU has more GPU instances (nvml.h knows 15 ids)."""

# One list of profiles may be for all GPU models of a cluster.
_MOST_NAMES = 64


def _only(name: str, value: dict[str, Any]) -> dict[str, Any]:
    """The schema of a mapping with one field."""
    return {"type": "object", "additionalProperties": False, "required": [name], "properties": {name: value}}


# YAML reads a bare off as False.
_WORDS: dict[Any, MigMode] = {False: "off", "off": "off", "static": "static", "dynamic": "dynamic"}
_PROFILE = re.compile(r"[1-8]g(\.[0-9]{1,4}gb)?(\+me\.all|\+me|-me|\+gfx)?", re.ASCII)
_NAMED_LAYOUTS = ("all-disabled", "all-enabled", "all-balanced")
_COUNT = {"type": "integer", "minimum": 1, "maximum": MOST_PARTITIONS}
_LAYOUT_PROFILES = {"type": "array", "minItems": 1, "maxItems": MOST_PARTITIONS}
_A_NAME = {"type": "string", "pattern": f"^{_PROFILE.pattern}$"}
SCHEMA: dict[str, Any] = {
    "description": "How MIG divides the GPU.",
    "anyOf": [
        {"enum": [*_WORDS]},
        _only(
            "dynamic",
            _only("profiles", {"type": "array", "minItems": 1, "maxItems": _MOST_NAMES, "items": _A_NAME}),
        ),
        _only("layout", {"type": "string", "pattern": "^all-"}),
        _only("layout", {**_LAYOUT_PROFILES, "items": _A_NAME}),
        _only(
            "layout",
            {"type": "object", "minProperties": 1, "propertyNames": _A_NAME, "additionalProperties": _COUNT},
        ),
    ],
}
"""The JSON schema of the field."""

_FORMS = "must be off, static, dynamic, {dynamic: {profiles: [...]}} or {layout: ...}"
_A_PROFILE = "must be a profile such as 1g.10gb+me, or in short 1g+me"


def read_mig(value: Any, path: str, errors: list[str]) -> MigOffer:
    """The meaning of the field's parsed ``value``; each mistake is added to ``errors`` with its path."""
    if isinstance(value, dict):
        return _mapping(value, path, errors)
    if isinstance(value, bool | str) and value in _WORDS:
        return MigOffer(_WORDS[value])
    errors.append(f"{path}: {_FORMS}")
    return MigOffer()


def _mapping(value: dict[Any, Any], path: str, errors: list[str]) -> MigOffer:
    unknown = [key for key in value if key not in ("dynamic", "layout")]
    errors.extend(f"{path}.{key}: unknown field" for key in unknown)
    if len(value) - len(unknown) != 1:
        errors.append(f"{path}: {_FORMS}")
        return MigOffer()
    if "layout" in value:
        return _layout(value["layout"], f"{path}.layout", errors)
    return MigOffer("dynamic", profiles=_dynamic(value["dynamic"], f"{path}.dynamic", errors))


def _dynamic(value: Any, path: str, errors: list[str]) -> tuple[str, ...]:
    if not isinstance(value, dict):
        errors.append(f"{path}: must be a mapping with profiles")
        return ()
    errors.extend(f"{path}.{key}: unknown field" for key in value if key != "profiles")
    names = _profiles(value.get("profiles"), _MOST_NAMES, f"{path}.profiles", errors)
    errors.extend(
        f"{path}.profiles[{index}]: {name} appears more than once"
        for index, name in enumerate(names)
        if name in names[:index]
    )
    return names


def _layout(value: Any, path: str, errors: list[str]) -> MigOffer:
    if isinstance(value, str):
        if value not in _NAMED_LAYOUTS and profile_of_layout(value) is None:
            errors.append(f"{path}: must be one of {', '.join(_NAMED_LAYOUTS)}, all-<profile>, or profiles")
        return MigOffer("off") if value == "all-disabled" else MigOffer("layout", layout=value)
    if isinstance(value, dict):
        return MigOffer("layout", layout=_counted(value, path, errors))
    return MigOffer("layout", layout=_profiles(value, MOST_PARTITIONS, path, errors))


def _profiles(value: Any, most: int, path: str, errors: list[str]) -> tuple[str, ...]:
    if not isinstance(value, list) or not 1 <= len(value) <= most:
        errors.append(f"{path}: must be a list of 1 to {most} profiles")
        return ()
    wrong = [index for index, name in enumerate(value) if not _is_profile(name)]
    errors.extend(f"{path}[{index}]: {_A_PROFILE}" for index in wrong)
    return () if wrong else tuple(value)


def _counted(value: dict[Any, Any], path: str, errors: list[str]) -> tuple[str, ...]:
    """The profiles of a mapping from profile to number, each as often as its number says."""
    before = len(errors)
    for name, count in value.items():
        if not _is_profile(name):
            errors.append(f"{path}.{name}: {_A_PROFILE}")
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MOST_PARTITIONS:
            errors.append(f"{path}.{name}: must be a number from 1 to {MOST_PARTITIONS}")
    if len(errors) > before:
        return ()
    if not 1 <= sum(value.values()) <= MOST_PARTITIONS:
        errors.append(f"{path}: must name 1 to {MOST_PARTITIONS} partitions")
        return ()
    return tuple(name for name, count in value.items() for _ in range(count))


def _is_profile(name: Any) -> bool:
    return isinstance(name, str) and _PROFILE.fullmatch(name) is not None


class MigField(PolicyField):
    """The field ``mig``."""

    name = "mig"
    schema = SCHEMA

    read = staticmethod(read_mig)

    def implied_form(self, policy: GpuPolicy) -> str | None:
        """Only partitions, for a layout."""
        return "partitions" if policy.mig.mode == "layout" else None

    def contradictions(self, policy: GpuPolicy) -> Iterator[str]:
        """Forms that exclude the partitions of the rule."""
        if policy.form == "whole" and policy.mig.mode == "layout":
            yield "offer: must not be whole with a layout, which offers only partitions"
        if policy.form == "partitions" and policy.mig.mode == "off":
            yield "offer: must not be partitions with mig: off"
