"""Compares nodes with MIG: Kubernetes accepts every slice that they publish, and allocates as we do.

Other areas of nodes build on it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from functools import cache
from random import Random

from driver.devices.device import Device
from driver.devices.names import DRIVER_NAME
from driver.policy.offers import Offers
from kubernetes_rules.allocator.allocate import AllocationFailed, Allocator
from tools.conformance.allocation import area as allocation_area
from tools.conformance.allocation.objects import Json, claim, device_class, exactly, node
from tools.conformance.area import Answer, Area, Case
from tools.conformance.nodes import mig_nodes
from tools.conformance.validation import area as validation_area

CLASSES = [device_class("gpu", [f"device.driver == '{DRIVER_NAME}'"])]
OWN = f"device.attributes['{DRIVER_NAME}']"
_WITHOUT_MIG = ("l40s-octo", "a100-vgpu-guest")
_LAYOUTS = ("all-1g", "all-balanced", "all-2g", "[3g, 1g, 1g]", "{2g: 1, 1g+me: 1}", "[7g]", "[4g]")
_MOST_IN_A_CLAIM = 32


def written_cases(gpus: int | None) -> list[Case]:
    """The cases for every machine with every shipped configuration; ``gpus`` limits its GPUs."""
    found: list[Case] = []
    for machine in (*mig_nodes.MIG_MACHINES, *_WITHOUT_MIG):
        for path in mig_nodes.MIG_SAMPLES:
            for state in mig_nodes.STATES if machine in mig_nodes.MIG_MACHINES else mig_nodes.STATES[:1]:
                offered = mig_nodes.offers(machine, mig_nodes.sample(path), state, gpus)
                found += questions(f"{machine} {state} {path.stem}", offered)
    return found


def questions(name: str, offered: Offers) -> list[Case]:
    """Cases: each slice is valid, one device of each kind can be allocated, and all without counters."""
    published = mig_nodes.slices(offered)
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
    """The selector of devices that are equal for a user: whole GPUs, or partitions of one profile."""
    if device.attributes["type"] == "gpu":
        return f"{OWN}.type == 'gpu'"
    return f"{OWN}.type == 'mig' && {OWN}.profile == '{device.attributes['profile']}'"


def ask(name: str, published: list[Json], *claims: Json, allocated: Sequence[Json] = ()) -> Case:
    """The case whether these claims can be allocated together, beside ``allocated``."""
    return {
        "op": "allocate",
        "name": name,
        "node": node(mig_nodes.NODE),
        "slices": published,
        "classes": CLASSES,
        "allocated": list(allocated),
        "claims": list(claims),
    }


@cache
def _written() -> Sequence[Case]:
    return written_cases(gpus=1)


def _random(rng: Random) -> Case:
    """A node with a random configuration, some of its partitions allocated, and one more claim."""
    machine, state = rng.choice(mig_nodes.MIG_MACHINES), rng.choice(mig_nodes.STATES)
    mig = mig_nodes.inventory(machine, state).gpus[0].mig
    names = [placed.profile.name for placed in mig.profiles] if mig else []
    some = rng.sample(names, rng.randint(1, 4))
    rule = rng.choice(
        ("dynamic", f"{{dynamic: {{profiles: {some}}}}}", f"{{layout: {rng.choice(_LAYOUTS)}}}", "static")
    )
    offered = mig_nodes.offers(machine, mig_nodes.one_rule(f"mig: {rule}"), state, rng.randint(1, 2))
    published, kinds = mig_nodes.slices(offered), sorted(set(map(kind_of, offered.devices))) or ["true"]
    held = held_claims(rng, published, kinds, random_claim, most=6)
    wanted = random_claim(rng, "next", kinds)
    return ask(f"{machine} {state} {rule}", published, wanted, allocated=held)


def held_claims(
    rng: Random,
    published: list[Json],
    kinds: Sequence[str],
    asking: Callable[[Random, str, Sequence[str]], Json],
    most: int = 12,
) -> list[Json]:
    """Allocated claims: up to ``most`` are allocated one after the other, and some of them end again."""
    allocator = Allocator(published, CLASSES, [])
    held: list[Json] = []
    for number in range(rng.randint(0, most)):
        wanted = asking(rng, f"held-{number}", kinds)
        try:
            found = allocator.allocate(node(mig_nodes.NODE), [wanted])
        except AllocationFailed:
            continue
        if found is not None:
            held.append({**wanted, "status": {"allocation": with_share_ids(rng, found[0])}})
            allocator.assume(held[-1])
        elif held:
            allocator.release(held.pop(rng.randrange(len(held))))
    return held


def with_share_ids(rng: Random, allocation: Json) -> Json:
    """The allocation with share IDs that are the same for the same seed."""
    for result in allocation["devices"]["results"]:
        if "shareID" in result:
            result["shareID"] = str(uuid.UUID(int=rng.getrandbits(128), version=4))
    return allocation


def random_claim(rng: Random, name: str, kinds: Sequence[str]) -> Json:
    """A claim for one or two kinds, maybe on one GPU or on distinct ones."""
    requests = [
        exactly(f"r{index}", rng.choice(kinds), count=rng.choice((1, 1, 1, 2)))
        for index in range(rng.choice((1, 1, 2)))
    ]
    rule = rng.choice((None, None, "matchAttribute", "distinctAttribute"))
    constraints = [{"requests": [], rule: f"{DRIVER_NAME}/parentUUID"}] if rule else []
    return claim(*requests, name=name, constraints=constraints)


def _difference(case: Case, answer: Answer) -> str | None:
    if case["op"] == "allocate":
        return allocation_area.AREA.difference(case, answer)
    if answer["errors"]:
        return f"Kubernetes refuses a slice: {answer['errors']}"
    return validation_area.AREA.difference(case, answer)


AREA = Area("mig", _written, _random, _difference)
