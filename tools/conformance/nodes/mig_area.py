"""Compares nodes with MIG: Kubernetes takes every slice that they publish, and allocates from it as we do."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from random import Random

from driver.devices.device import Device
from driver.devices.names import DRIVER_NAME
from driver.policy.offers import Offers
from kubernetes_rules.allocator.allocate import Allocator
from tools.conformance.allocation import area as allocation_area
from tools.conformance.allocation.objects import Json, claim, device_class, exactly, node
from tools.conformance.area import Answer, Area, Case
from tools.conformance.nodes.mig_nodes import (
    MIG_MACHINES,
    MIG_SAMPLES,
    NODE,
    State,
    inventory,
    offers,
    one_rule,
    sample,
    slices,
)
from tools.conformance.validation import area as validation_area

CLASSES = [device_class("gpu", [f"device.driver == '{DRIVER_NAME}'"])]
_OWN = f"device.attributes['{DRIVER_NAME}']"
_WITHOUT_MIG = ("l40s-octo", "a100-vgpu-guest")
_LAYOUTS = ("all-1g", "all-balanced", "all-2g", "[3g, 1g, 1g]", "{2g: 1, 1g+me: 1}", "[7g]", "[4g]")
_STATES: tuple[State, ...] = ("delivered", "mode on", "cut")
_MOST_HELD = 6
_MOST_IN_A_CLAIM = 32


def written_cases(gpus: int | None) -> list[Case]:
    """The cases for every machine with every shipped configuration, with its first ``gpus`` GPUs."""
    found: list[Case] = []
    for machine in (*MIG_MACHINES, *_WITHOUT_MIG):
        for path in MIG_SAMPLES:
            for state in _STATES if machine in MIG_MACHINES else _STATES[:1]:
                offered = offers(machine, sample(path), state, gpus)
                found += questions(f"{machine} {state} {path.stem}", offered)
    return found


def questions(name: str, offered: Offers) -> list[Case]:
    """Cases: each slice is valid, one device of each kind can be allocated, and all without counters."""
    published = slices(offered)
    cases: list[Case] = [{"op": "validate", "object": one} for one in published]
    kinds = dict.fromkeys(map(kind_of, offered.devices))
    cases += [ask(f"{name}: {kind}", published, claim(exactly("r", kind))) for kind in kinds]
    plain = [device for device in offered.devices if not device.consumes]
    if plain and len(plain) == len(offered.devices):
        cases.append(ask(f"{name}: all {len(plain)}", published, *_claims_for(len(plain))))
    return cases


def _claims_for(count: int) -> list[Json]:
    """Claims that together ask for ``count`` devices."""
    return [
        claim(exactly("r", count=min(_MOST_IN_A_CLAIM, count - start)), name=f"from-{start}")
        for start in range(0, count, _MOST_IN_A_CLAIM)
    ]


def kind_of(device: Device) -> str:
    """The selector of all devices that are alike for a user: whole GPUs, or partitions of a profile."""
    if device.attributes["type"] == "gpu":
        return f"{_OWN}.type == 'gpu'"
    return f"{_OWN}.type == 'mig' && {_OWN}.profile == '{device.attributes['profile']}'"


def ask(name: str, published: list[Json], *claims: Json, allocated: Sequence[Json] = ()) -> Case:
    """The case: can these claims be allocated together from these slices, beside ``allocated``?"""
    return {
        "op": "allocate",
        "name": name,
        "node": node(NODE),
        "slices": published,
        "classes": CLASSES,
        "allocated": list(allocated),
        "claims": list(claims),
    }


@cache
def _written() -> Sequence[Case]:
    return written_cases(gpus=1)


def _random(chance: Random) -> Case:
    """One node with a random configuration, some of its partitions allocated, and one more claim."""
    machine, state = chance.choice(MIG_MACHINES), chance.choice(_STATES)
    mig = inventory(machine, state).gpus[0].mig
    names = [placed.profile.name for placed in mig.profiles] if mig else []
    some = chance.sample(names, chance.randint(1, 4))
    rule = chance.choice(
        ("dynamic", f"{{dynamic: {{profiles: {some}}}}}", f"{{layout: {chance.choice(_LAYOUTS)}}}", "static")
    )
    offered = offers(machine, one_rule(f"mig: {rule}"), state, chance.randint(1, 2))
    published, kinds = slices(offered), sorted(set(map(kind_of, offered.devices))) or ["true"]
    held = _held(chance, published, kinds)
    wanted = _claim(chance, "next", kinds)
    return ask(f"{machine} {state} {rule}", published, wanted, allocated=held)


def _held(chance: Random, published: list[Json], kinds: Sequence[str]) -> list[Json]:
    """Allocated claims: claims are allocated one after the other, and some of them end."""
    allocator = Allocator(published, CLASSES, [])
    held: list[Json] = []
    for number in range(chance.randint(0, _MOST_HELD)):
        wanted = _claim(chance, f"held-{number}", kinds)
        found = allocator.allocate(node(NODE), [wanted])
        if found is not None:
            held.append({**wanted, "status": {"allocation": found[0]}})
            allocator.assume(held[-1])
        elif held:
            allocator.release(held.pop(chance.randrange(len(held))))
    return held


def _claim(chance: Random, name: str, kinds: Sequence[str]) -> Json:
    """A claim for one or two kinds, perhaps of one parent or of distinct ones."""
    requests = [
        exactly(f"r{index}", chance.choice(kinds), count=chance.choice((1, 1, 1, 2)))
        for index in range(chance.choice((1, 1, 2)))
    ]
    rule = chance.choice((None, None, "matchAttribute", "distinctAttribute"))
    constraints = [{"requests": [], rule: f"{DRIVER_NAME}/parentUUID"}] if rule else []
    return claim(*requests, name=name, constraints=constraints)


def _difference(case: Case, answer: Answer) -> str | None:
    if case["op"] == "allocate":
        return allocation_area.AREA.difference(case, answer)
    if answer["errors"]:
        return f"Kubernetes refuses a slice: {answer['errors']}"
    return validation_area.AREA.difference(case, answer)


AREA = Area("mig", _written, _random, _difference)
