"""Makes random selectors, mostly well typed, and random devices for them to look at.

Selectors grow from templates. ``<int>`` is a place for an expression of that kind (``<!int>`` of no other),
``$int`` names a new variable of that kind that the rest of the template can use.
"""

from __future__ import annotations

import re
from random import Random
from typing import TYPE_CHECKING, Any

from tools.conformance.cel.templates import LEAVES, TEMPLATES

if TYPE_CHECKING:
    from tools.conformance.area import Case

_PLACE = re.compile(r"<(!?\w+)>|\$(\w+)")
_KINDS = tuple(TEMPLATES)
_DRIVERS = ("gpu.example.com", "net.example.com", "d")
_DOMAINS = (*_DRIVERS, "other.example.com")
_NAMES = ("a", "model", "index", "flag", "version", "list")
_TEXTS = ("", "a", "H100", "x-y", "1.2.3", "é", "10.0.0.1", "80Gi", "A long name of a product with blanks")
_VERSIONS = ("1.0.0", "1.2.3", "0.1.0-rc.1", "550.54.15+build", "10.0.0")
_QUANTITIES = ("0", "1", "80Gi", "1500m", "-1", "1e3", "0.1", "9223372036854775807", "1Ki", "100M")
_INTEGERS = (0, 1, -1, 3, 48, 2**63 - 1, -(2**63))
_WRONG = 0.02
"""How often a place gets an expression of another kind."""


def random_case(chance: Random) -> Case:
    """One selector and one device, the same from the same source."""
    expression = _Grown(chance).expression("bool", chance.choice((1, 2, 3, 3, 4, 5)), ())
    if chance.random() < 0.02:
        expression = _damaged(expression, chance)
    return {"op": "cel", "expression": expression[:10_000], "device": random_device(chance)}


class _Grown:
    """Grows one selector."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self._variables = 0

    def expression(self, kind: str, depth: int, scope: tuple[tuple[str, str], ...]) -> str:
        chance = self._chance
        if kind[0] == "!":
            kind = kind[1:]
        elif chance.random() < _WRONG:
            kind = chance.choice(_KINDS)
        known = [name for name, of_kind in scope if of_kind == kind]
        if known and chance.random() < 0.4:
            return chance.choice(known)
        if depth <= 0:
            return chance.choice(LEAVES[kind])
        return self._filled(chance.choice(TEMPLATES[kind]), depth, scope)

    def _filled(self, template: str, depth: int, scope: tuple[tuple[str, str], ...]) -> str:
        parts: list[str] = []
        position = 0
        for match in _PLACE.finditer(template):
            parts.append(template[position : match.start()])
            position = match.end()
            if match[2]:
                self._variables += 1
                name = f"v{self._variables}"
                scope = (*scope, (name, match[2]))
                parts.append(name)
            else:
                parts.append(self.expression(match[1], depth - 1, scope))
        return "".join((*parts, template[position:]))


def _damaged(expression: str, chance: Random) -> str:
    """The text without one character, or with one too many."""
    place = chance.randrange(len(expression) + 1)
    extra = chance.choice(("", "(", ")", ".", "'", "?", "1", "-", "!", "[", "&", " "))
    return expression[:place] + extra + expression[place + (not extra) :]


def random_device(chance: Random) -> dict[str, Any]:
    """A device of one of a few drivers, with a few attributes and capacities."""
    driver = chance.choice(_DRIVERS)
    attributes = {_name(chance, driver): _attribute(chance) for _ in range(chance.randrange(8))}
    capacity = {
        _name(chance, driver): {"value": chance.choice(_QUANTITIES)} for _ in range(chance.randrange(4))
    }
    device: dict[str, Any] = {
        "driver": driver,
        "attributes": attributes,
        "capacity": capacity,
    }
    if chance.random() < 0.5:
        device["allowMultipleAllocations"] = chance.random() < 0.5
    return device


def _name(chance: Random, driver: str) -> str:
    """A name with a domain or without, never the driver's own: of two spellings a random one counts."""
    name, domain = chance.choice(_NAMES), chance.choice(_DOMAINS)
    return name if domain == driver or chance.random() < 0.6 else f"{domain}/{name}"


def _attribute(chance: Random) -> dict[str, Any]:
    kind = chance.choice(
        ("string", "string", "int", "bool", "version", "strings", "ints", "bools", "versions")
    )
    values: dict[str, tuple[Any, ...]] = {
        "string": _TEXTS, "int": _INTEGERS, "bool": (True, False), "version": _VERSIONS,
    }  # fmt: skip
    if kind in values:
        return {kind: chance.choice(values[kind])}
    return {kind: [chance.choice(values[kind[:-1]]) for _ in range(1 + chance.randrange(3))]}
