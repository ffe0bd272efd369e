"""The tables of the attributes and capacities of devices.

Types, kinds of devices and examples are read from the slices of fake nodes; meanings and sources are in
words.yaml.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from driver.policy.config import parse_config
from tools.conformance.nodes.mig_nodes import State, offers, slices
from tools.docs.lookup.marked import WORDS, code, table

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
"""Machine, rule of the node configuration, state of the GPUs: together these publish every attribute.

The example of an attribute is from the first machine that publishes it.
"""


@dataclass(frozen=True, slots=True)
class _Words:
    """The meaning of an attribute or a capacity, and its source: a call of NVML, sysfs, or the driver."""

    meaning: str
    source: str


GROUPS: dict[str, dict[str, _Words]] = {
    title: {name: _Words(*words) for name, words in group.items()}
    for title, group in WORDS["attributes"].items()
}
"""All attributes, in the groups of the page."""

CAPACITIES = {name: _Words(*words) for name, words in WORDS["capacities"].items()}
"""All capacities."""


@dataclass(slots=True)
class Seen:
    """An attribute or a capacity as nodes publish it: an example, its types, and the kinds of its devices."""

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
    """Add the attributes and capacities of one device of a ResourceSlice."""
    kind = device["attributes"]["type"]["string"]
    for name, typed in device["attributes"].items():
        ((word, value),) = typed.items()
        one = attributes.setdefault(name, Seen(str(value).lower() if word == "bool" else str(value)))
        one.types.add(word)
        one.kinds.add(kind)
    for name, amount in device.get("capacity", {}).items():
        one = capacities.setdefault(_first_slice(name), Seen(str(amount["value"])))
        one.types.add("quantity")
        one.kinds.add(kind)


def attribute_tables() -> str:
    """A table of attributes for each group."""
    found, _ = seen()
    known = {name for group in GROUPS.values() for name in group}
    _match("attributes", known, set(found))
    return "\n".join(f"### {title}\n{_table('attribute', group, found)}" for title, group in GROUPS.items())


def capacity_table() -> str:
    """The table of capacities."""
    _, found = seen()
    _match("capacities", set(CAPACITIES), set(found))
    return _table("capacity", CAPACITIES, found)


def _table(what: str, words: Mapping[str, _Words], found: Mapping[str, Seen]) -> str:
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
    return table((what, "type", "devices", "meaning", "source", "example"), rows)


def _match(what: str, known: set[str], published: set[str]) -> None:
    """Raise ValueError if the described names are not those that nodes publish."""
    if known != published:
        raise ValueError(
            f"{what} without words in words.yaml: {sorted(published - known)};"
            f" words without a node in attributes.py that publishes them: {sorted(known - published)}"
        )


def _first_slice(name: str) -> str:
    """The name in the table, which has one line for all memory slices of a partition."""
    return "memorySlice0" if name.startswith("memorySlice") else name


def _devices(machine: str, rule: str, state: State) -> Iterator[Mapping[str, Any]]:
    config = parse_config(f"{{version: v1, rules: [{{{rule}}}]}}", machine) if rule else None
    for one in slices(offers(machine, config, state)):
        yield from one["spec"].get("devices", ())
