"""The attributes and capacities of devices as pretended nodes publish them, with words for each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from driver.policy.config import parse_config
from tools.conformance.nodes.mig_nodes import State, offers, slices
from tools.docs.lookup.attribute_words import CAPACITIES, GROUPS, Words
from tools.docs.lookup.marked import code, table

KINDS = ("gpu", "mig", "shared", "vfio", "vgpu")
"""The values of the attribute ``type``, in the order of the page."""

_SHARED = "shared: [{strategy: TimeSlicing, shares: 4}, {strategy: MPS, shares: 4}]"
_ALL_KINDS = f"offer: whole, mig: dynamic, passthrough: true, {_SHARED}"
_NODES: tuple[tuple[str, str, State], ...] = (
    ("hgx-h100", _ALL_KINDS, "delivered"),
    ("hgx-h100", "", "cut"),
    ("hgx-h100", f"mig: {{layout: all-balanced}}, {_SHARED}", "delivered"),
    ("hgx-h100", "shared: {strategy: MPS, memory: {step: 10Gi}, fractional: true}", "delivered"),
    ("hgx-h100", "shared: {strategy: TimeSlicing, shares: 10, fractional: true}", "delivered"),
    ("dgx-a100", "", "delivered"),
    ("dgx1-v100", _ALL_KINDS, "delivered"),
    ("gb200-tray", "mig: dynamic", "delivered"),
    ("hgx-h100-shared-nvswitch", _ALL_KINDS, "delivered"),
    ("l4-quad", f"offer: whole, {_SHARED}", "delivered"),
    ("l4-quad", f"offer: whole, memoryLimits: false, {_SHARED}", "delivered"),
    ("a30-passthrough-guest", "mig: dynamic", "delivered"),
    ("a100-vgpu-guest", f"offer: whole, {_SHARED}", "delivered"),
    ("vgpu-host-l40s", "vgpu: {profiles: [L40S-8Q]}", "delivered"),
    ("vgpu-host-a100-mdev", "vgpu: {profiles: [A100-10C]}", "delivered"),
    ("vgpu-and-passthrough", "passthrough: true", "delivered"),
)
"""Machines, the rule of their node configuration, the state of their GPUs: together they publish everything.

Examples are of the first that publishes an attribute.
"""


@dataclass(slots=True)
class Seen:
    """What is seen of an attribute or a capacity: its types, an example, the kinds of its devices."""

    example: str
    types: set[str] = field(default_factory=set)
    kinds: set[str] = field(default_factory=set)


@cache
def seen() -> tuple[Mapping[str, Seen], Mapping[str, Seen]]:
    """The attributes and the capacities that the nodes publish."""
    attributes: dict[str, Seen] = {}
    capacities: dict[str, Seen] = {}
    for machine, rule, state in _NODES:
        for device in _devices(machine, rule, state):
            add(device, attributes, capacities)
    return attributes, capacities


def add(device: Mapping[str, Any], attributes: dict[str, Seen], capacities: dict[str, Seen]) -> None:
    """Add what one device has, as it stands in a ResourceSlice."""
    kind = device["attributes"]["type"]["string"]
    for name, typed in device["attributes"].items():
        ((word, value),) = typed.items()
        one = attributes.setdefault(name, Seen(str(value).lower() if word == "bool" else str(value)))
        one.types.add(word)
        one.kinds.add(kind)
    for name, told in device.get("capacity", {}).items():
        one = capacities.setdefault(_first_slice(name), Seen(str(told["value"])))
        one.types.add("quantity")
        one.kinds.add(kind)


def attribute_tables() -> str:
    """A table of attributes for each group."""
    found, _ = seen()
    known = {name for group in GROUPS.values() for name in group}
    _match("attributes", known, set(found))
    return "\n".join(f"## {title}\n{_table('attribute', group, found)}" for title, group in GROUPS.items())


def capacity_table() -> str:
    """The table of capacities."""
    _, found = seen()
    _match("capacities", set(CAPACITIES), set(found))
    return _table("capacity", CAPACITIES, found)


def _table(what: str, words: Mapping[str, Words], found: Mapping[str, Seen]) -> str:
    rows = [
        (
            code(name),
            ", ".join(sorted(found[name].types)),
            ", ".join(code(kind) for kind in KINDS if kind in found[name].kinds),
            one.meaning,
            one.source,
            code(found[name].example),
        )
        for name, one in words.items()
    ]
    return table((what, "type", "of devices", "means", "source", "example"), rows)


def _match(what: str, known: set[str], published: set[str]) -> None:
    """Raise ValueError where words and nodes do not have the same names."""
    if known != published:
        raise ValueError(
            f"{what} without words in attribute_words.py: {sorted(published - known)};"
            f" words without a node in attributes.py that publishes them: {sorted(known - published)}"
        )


def _first_slice(name: str) -> str:
    """The memory slices of a partition are one line of the table."""
    return "memorySlice0" if name.startswith("memorySlice") else name


def _devices(machine: str, rule: str, state: State) -> Iterator[Mapping[str, Any]]:
    config = parse_config(f"{{version: v1, rules: [{{{rule}}}]}}", machine) if rule else None
    for one in slices(offers(machine, config, state)):
        yield from one["spec"].get("devices", ())
