"""Compares validation of resource.k8s.io/v1: the fields and types of errors."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

from kubernetes_rules.validation import field
from kubernetes_rules.validation.dra_kinds import errors_of
from tools.conformance.area import Answer, Area, Case
from tools.conformance.validation.cases import CEL, valid_objects, written_cases

KeyPath = tuple[Any, ...]
"""The keys that lead to a place in an object."""

_MOST_CHANGES = 4
_TITLES = {title: kind for kind, title in field.TITLES.items()}
_LINE = re.compile(f"^(.*?): ({'|'.join(_TITLES)})", re.DOTALL)
_KEY_BYTES = 96
_LONG_KEY = re.compile(r"\[([^\[\]]{97,})\]")

_TEXTS = (
    "", "a", "gpu", "any/big", "any", "small", "Upper", "a_b", "a b", "a.b", "a.b/c", "A.b/C", "a/b/c",
    "/a", "a/", "-a", "a-", "a..b", "1a", "é", "a" * 33, "a" * 64, "a" * 254, "example.com/gpu",
    "kubernetes.io/gpu", "requests.a/b", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Equal",
    "All", "ExactCount", "None", "NoSchedule", "metadata.name", "orphan", "foregroundDeletion", "1.2.3",
    "1.2", "v1", "apps/v1", "Event", "board-0", "\n", "a\n",
)  # fmt: skip
_QUANTITIES = (
    "0", "1", "2", "4", "8", "-1", "500m", "1500m", "10Gi", "20Gi", "40Gi", "80Gi", "1e3", "1Ki", "7",
    "9223372036854775807", "9223372036854775808", "18446744073709551616", "100", "5", "0.5", "1n",
    "10737418240",
)  # fmt: skip
_EXPRESSIONS = (
    CEL, "true", "", "device", "1", "device.", "device.foo", "!", "device.driver", "false || true",
    "device.driver == 1", 'device.attributes["a"].b == 1', "device.attributes",
    'device.capacity["a"].b.compareTo(quantity("1")) >= 0', "x", "[1].all(y, y > 0)", "has(device.driver)",
    "device.allowMultipleAllocations", "'a' + 1",
)  # fmt: skip
_QUANTITY_KEYS = frozenset({"value", "default", "min", "max", "step"})
# Around the limits of lists and maps in the API.
_COUNTS = (0, 1, 2, 3, 4, 5, 8, 9, 10, 11, 16, 17, 32, 33, 64, 65, 128, 129)


def _random(rng: Random) -> Case:
    item = copy.deepcopy(rng.choice(valid_objects()))
    for _ in range(rng.randint(0, _MOST_CHANGES)):
        _mutate(rng, item)
    _default_operators(item)
    return {"op": "validate", "object": item}


def _default_operators(item: Any) -> None:
    """Set the API server's defaults of tolerations, of which the oracle sets only some."""
    if isinstance(item, dict):
        for toleration in item.get("tolerations") or []:
            toleration["operator"] = toleration.get("operator") or "Equal"
    for value in item.values() if isinstance(item, dict) else item if isinstance(item, list) else ():
        _default_operators(value)


def places(
    item: Any, is_left_out: Callable[[KeyPath], bool], path: KeyPath = ()
) -> Iterator[tuple[Any, Any, KeyPath]]:
    """All places below ``item`` that are not left out: the mapping or list, the key, and the path of keys."""
    entries = item.items() if isinstance(item, dict) else enumerate(item) if isinstance(item, list) else ()
    for key, value in entries:
        here = (*path, key)
        if not is_left_out(here):
            yield item, key, here
            yield from places(value, is_left_out, here)


def _is_left_out(path: KeyPath) -> bool:
    return path in (("apiVersion",), ("kind",)) or "parameters" in path[:-1]


def _mutate(rng: Random, item: dict[str, Any]) -> None:
    """Change one place; types stay right."""
    found = list(places(item, _is_left_out))
    if not found:
        return
    holder, key, path = rng.choice(found)
    value = holder[key]
    if rng.random() < 0.15:
        del holder[key]
    elif isinstance(value, bool):
        holder[key] = not value
    elif isinstance(value, int):
        holder[key] = rng.choice((-1, 0, 1, 2, 128, 2**40))
    elif isinstance(value, str):
        holder[key] = rng.choice(_texts_for(path))
    elif isinstance(value, list):
        _mutate_list(rng, value)
    elif isinstance(value, dict):
        _mutate_map(rng, value, path)


def _texts_for(path: KeyPath) -> Sequence[str]:
    if path[-1] == "expression":
        return _EXPRESSIONS
    is_amount = path[-2:-1] == ("requests",) and "capacity" in path
    is_quantity = path[-1] in _QUANTITY_KEYS and ("capacity" in path or "counters" in path)
    return _QUANTITIES if is_quantity or is_amount or "validValues" in path else _TEXTS


def _mutate_list(rng: Random, value: list[Any]) -> None:
    if not value or rng.random() < 0.2:
        value.clear()
        return
    entry = rng.choice(value)
    for index in range(rng.choice(_COUNTS)):
        added = copy.deepcopy(entry)
        if isinstance(added, dict) and "name" in added and rng.random() < 0.95:
            added["name"] = f"n{index}"
        elif isinstance(added, str) and rng.random() < 0.9:
            added = str(index) if added.lstrip("-")[:1].isdigit() else f"n{index}"
        value.append(added)


def _mutate_map(rng: Random, value: dict[str, Any], path: KeyPath) -> None:
    if path[-1] in ("attributes", "capacity", "counters", "labels", "annotations") and value:
        entry = rng.choice(list(value.values()))
        names = [rng.choice(_TEXTS)] if rng.random() < 0.7 else [f"k{n}" for n in range(rng.choice(_COUNTS))]
        if isinstance(entry, dict) or path[-1] in ("labels", "annotations"):
            value.update({name: copy.deepcopy(entry) for name in names})
    elif path[-1] == "opaque":
        value["parameters"] = rng.choice((None, {}, [], 1, "a", {"a": {"b": None}}, False))
    elif path[-2:-1] == ("attributes",):
        added = rng.choice(
            (("int", 1), ("bool", False), ("string", ""), ("version", "1.0.0"), ("string", "x" * 65))
        )
        value[added[0]] = added[1]
    elif len(path) > 1:
        value.clear()


def _difference(case: Case, answer: Answer) -> str | None:
    theirs: set[tuple[str, str]] = set()
    for line in answer["errors"]:
        match = _LINE.match(line)
        if match is None:
            return f"the oracle answered {line!r}"
        theirs.add((_cut(match[1]), _TITLES[match[2]]))
    ours = {(_cut(error.field), error.type) for error in errors_of(case["object"])}
    if ours == theirs:
        return None
    return f"only ours: {sorted(ours - theirs)}; only Kubernetes': {sorted(theirs - ours)}"


def _cut(path: str) -> str:
    """The path with long keys shortened: Kubernetes' hand-written rules do that, its declared ones do not."""
    return _LONG_KEY.sub(lambda match: f"[{field.shortened(match[1], _KEY_BYTES)}]", path)


AREA = Area("validation", lambda: list(written_cases()), _random, _difference, recorded=1500)
