"""Turns configurations of mig-parted into node configurations, and says what of them has no equivalent."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import yaml

from driver.hardware.functions import NVIDIA_VENDOR_ID
from driver.hardware.pci import PRODUCTS
from gpuctl.importing.mig_parted import Entry

Mode = Literal["layout", "static"]

_PROFILE = re.compile(r"(?:(?P<compute>[1-8])c\.)?(?P<rest>(?P<slices>[1-8])g\..*)", re.ASCII)
_ATTRIBUTES = ("", "+me", "+me.all", "-me", "+gfx")
_WIDE = 10_000


@dataclass(frozen=True, slots=True)
class Imported:
    """One configuration as the YAML of a node configuration; ``lost`` says what has no equivalent."""

    name: str
    text: str
    lost: tuple[str, ...]


def imported(
    name: str, entries: Sequence[Entry], mode: Mode, source: str, *, in_config_map: bool = False
) -> Imported:
    """A configuration of mig-parted as a node configuration.

    With ``layout`` the driver makes the partitions when claims need them; with ``static`` somebody makes them
    with mig-parted as before, and comments say which. ``source`` is the file, for those comments;
    ``in_config_map`` says that NVIDIA's MIG manager reads it.
    """
    lost: list[str] = []
    ordered = list(enumerate(entries))
    if any(one.meets(other) for index, one in ordered for other in entries[index + 1 :]):
        # There the last entry that means a GPU decides, here the first rule.
        ordered.reverse()
    rules = [_rule(f"{name}[{index}]", entry, mode, lost) for index, entry in ordered]
    lines = [f"# {name}: made from the configuration of mig-parted in {source}"]
    if in_config_map:
        lines.append(f"# for the nodes with the label nvidia.com/mig.config={name}")
    elif mode == "static" and any(entry.enabled for entry in entries):
        lines.append(f"# on the node, before: nvidia-mig-parted apply -f {source} -c {name}")
    lines += ["version: v1", "rules:" if any(rule.fields for rule in rules) else "rules: []"]
    return Imported(name, "\n".join([*lines, *map(str, rules), ""]), tuple(lost))


@dataclass(frozen=True, slots=True)
class _Rule:
    """A rule, or none where ``fields`` is empty, with a comment above it."""

    comment: str
    fields: dict[str, Any]

    def __str__(self) -> str:
        rule = yaml.safe_dump([self.fields], sort_keys=False, width=_WIDE) if self.fields else ""
        return (f"# {self.comment}\n" * bool(self.comment) + rule).rstrip("\n")


def _rule(where: str, entry: Entry, mode: Mode, lost: list[str]) -> _Rule:
    """The rule for one entry; GPUs whose partitions cannot be expressed are hidden, not left to others."""
    when = _when(where, entry, lost)
    if when is None:
        return _Rule(f"{where}: no model that it names is known", {})
    selects = {"when": when} if when else {}
    if mode == "static" and entry.enabled:
        partitions = ", ".join(f"{count} x {name}" for name, count in entry.profiles) or "none"
        return _Rule(f"partitions made with mig-parted: {partitions}", {**selects, "mig": "static"})
    mig = _mig(where, entry, lost)
    if mig is None:
        return _Rule(f"{where}: its partitions have no equivalent", {**selects, "offer": "hidden"})
    return _Rule("", {**selects, "mig": mig})


def _when(where: str, entry: Entry, lost: list[str]) -> str | None:
    """The CEL expression, empty for all GPUs; None when none of the models is known."""
    parts = []
    if entry.devices is not None:
        parts.append(f"gpu.index in [{', '.join(map(str, entry.devices))}]")
    if entry.device_ids:
        names: dict[str, None] = {}
        for device_id in entry.device_ids:
            known = products_of(device_id)
            if not known:
                lost.append(f"{where}.device-filter: no product name is known for {device_id}")
            names |= dict.fromkeys(known)
        if not names:
            return None
        parts.append(f"gpu.productName in {json.dumps(list(names))}")
    return " && ".join(parts)


def products_of(device_id: str) -> tuple[str, ...]:
    """The names of a model; none for an unknown one, and for one that names boards by their subsystem."""
    if ":" in device_id:
        return ()
    number = int(device_id, 16)
    return PRODUCTS.get(number >> 16, ()) if number & 0xFFFF == NVIDIA_VENDOR_ID else ()


def _mig(where: str, entry: Entry, lost: list[str]) -> Any:
    """The field ``mig`` of the rule, None when a profile has no equivalent."""
    if not entry.enabled:
        return "off"
    if not entry.profiles:
        return {"layout": "all-enabled"}
    layout: dict[str, int] = {}
    for name, count in entry.profiles:
        profile = whole_instance(name)
        if profile is None:
            what = "is a part of a GPU instance, or has an attribute that is not known"
            lost.append(f"{where}.mig-devices: {name} {what}; its GPUs are hidden")
            return None
        layout[profile] = layout.get(profile, 0) + count
    return {"layout": layout}


def whole_instance(name: str) -> str | None:
    """The profile without compute slices in its name; None where they are fewer, or with an odd attribute."""
    match = _PROFILE.fullmatch(name)
    if match is None or (match["compute"] or match["slices"]) != match["slices"]:
        return None
    size, sign, attribute = re.fullmatch(r"([^+-]*)([+-]?)(.*)", match["rest"]).groups()  # type: ignore[union-attr]  # matches all
    return size + sign + attribute if sign + attribute in _ATTRIBUTES else None
