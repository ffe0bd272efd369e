"""Whether a dashboard fits Grafana's own types, which read anything and check nothing."""

from __future__ import annotations

import json
import typing
from collections.abc import Callable
from enum import Enum
from typing import Any

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models import dashboard as grafana

register_default_plugins()

Types = tuple[Any, ...]


def read(board: dict[str, Any]) -> grafana.Dashboard:
    """The dashboard in Grafana's types, which leave out what they do not know."""
    return grafana.Dashboard.from_json(json.loads(json.dumps(board)))


def written(model: Any) -> Any:
    """What Grafana's types make of themselves."""
    return json.loads(json.dumps(model, cls=JSONEncoder))


def misfits(value: Any, wanted: Any, where: str) -> list[str]:
    """Where a value is not of the type that Grafana has for it, as sentences."""
    if wanted in (Any, object):
        return []
    if (origin := typing.get_origin(wanted)) in _GENERIC:
        return _GENERIC[origin](value, typing.get_args(wanted), where)
    if issubclass(wanted, Enum):
        fits = value in [one.value for one in wanted]
        return [] if fits else [f"{where} is {value!r}, no {wanted.__name__}"]
    if isinstance(value, dict) and hasattr(wanted, "from_json"):  # what the types leave as it was read
        made = wanted.from_json(value)
        return misfits(made, wanted, where) if written(made) == value else [f"{where} has an unknown field"]
    is_bool = isinstance(value, bool) and wanted is not bool
    if is_bool or not isinstance(value, (int, float) if wanted is float else wanted):
        return [f"{where} is {value!r}, no {wanted}"]
    return _of_fields(value, where)


def _of_fields(model: Any, where: str) -> list[str]:
    if not type(model).__module__.startswith("grafana_foundation_sdk"):
        return []
    return [
        one
        for name, wanted in typing.get_type_hints(type(model)).items()
        if hasattr(model, name)
        for one in misfits(getattr(model, name), wanted, f"{where}.{name}")
    ]


def _of_union(value: Any, inside: Types, where: str) -> list[str]:
    if value is None:
        return [] if type(None) in inside else [f"{where} is empty"]
    found = [misfits(value, one, where) for one in inside if one is not type(None)]
    return [] if [] in found else next((one for one in found if "no <class" not in one[0]), found[0])


def _of_literal(value: Any, inside: Types, where: str) -> list[str]:
    return [] if value in inside else [f"{where} is {value!r}, not one of {inside}"]


def _of_list(value: Any, inside: Types, where: str) -> list[str]:
    if not isinstance(value, list):
        return [f"{where} is no list"]
    return [one for place, item in enumerate(value) for one in misfits(item, inside[0], f"{where}[{place}]")]


def _of_mapping(value: Any, _inside: Types, where: str) -> list[str]:
    return [] if isinstance(value, dict) else [f"{where} is no mapping"]


_GENERIC: dict[Any, Callable[[Any, Types, str], list[str]]] = {
    typing.Union: _of_union,
    typing.Literal: _of_literal,
    list: _of_list,
    dict: _of_mapping,
}
