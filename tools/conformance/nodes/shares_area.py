"""Compares nodes with shared GPUs: Kubernetes takes every slice that they publish, and allocates as we do."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from functools import cache
from random import Random

from driver.devices.device import Device
from driver.devices.names import DRIVER_NAME
from driver.policy.offers import Offers
from kubernetes_rules.allocator.allocate import AllocationFailed, Allocator
from tools.conformance.allocation.objects import Json, claim, device_class, exactly, node
from tools.conformance.area import Area, Case
from tools.conformance.nodes import mig_area
from tools.conformance.nodes.mig_nodes import (
    CONTAINER_MACHINES,
    MIG_MACHINES,
    MIG_SAMPLES,
    NODE,
    SAMPLES,
    VM_SAMPLES,
    State,
    offers,
    one_rule,
    sample,
    slices,
)

SHARING_SAMPLES = tuple(
    path for path in SAMPLES if path not in (*MIG_SAMPLES, *VM_SAMPLES) and "shared:" in path.read_text()
)
"""The shipped node configurations in which GPUs are shared."""

_CLASSES = [device_class("gpu", [f"device.driver == '{DRIVER_NAME}'"])]
_OWN = f"device.attributes['{DRIVER_NAME}']"
_STATES: tuple[State, ...] = ("delivered", "mode on", "cut")
_MOST_HELD = 12
_AMOUNTS = ("1", "2", "0", "3", "500m", "100")
_MEMORY = ("1Gi", "1500Mi", "5Gi", "20Gi", "0", "1", "7G", "400Gi")


def written_cases(gpus: int | None) -> list[Case]:
    """The cases for every machine with every shipped configuration, with its first ``gpus`` GPUs."""
    found: list[Case] = []
    for machine in CONTAINER_MACHINES:
        for path in SHARING_SAMPLES:
            for state in _STATES if machine in MIG_MACHINES else _STATES[:1]:
                offered = offers(machine, sample(path), state, gpus)
                found += questions(f"{machine} {state} {path.stem}", offered)
    return found


def questions(name: str, offered: Offers) -> list[Case]:
    """Cases: each slice is valid, and one device of each kind can be allocated in every way to ask for it."""
    published = slices(offered)
    cases: list[Case] = [{"op": "validate", "object": one} for one in published]
    kinds = {kind_of(one): one for one in reversed(offered.devices)}
    for kind, device in kinds.items():
        cases.append(mig_area.ask(f"{name}: {kind}", published, claim(exactly("r", kind))))
        cases += [
            mig_area.ask(f"{name}: {kind} by {amount}", published, claim(exactly("r", kind, capacity=wanted)))
            for amount, wanted in _least(device)
        ]
    return cases


def _least(device: Device) -> list[tuple[str, Json]]:
    """The smallest request of each capacity of a shared device that can be requested."""
    return [
        (name, {"requests": {name: str(policy.minimum)}})
        for name, policy in device.policies.items()
        if policy.step is not None
    ]


def kind_of(device: Device) -> str:
    """The selector of all devices that are alike for a user: by type, strategy and profile."""
    attributes = device.attributes
    terms = [f"{_OWN}.{name} == '{attributes[name]}'" for name in ("type", "sharing")]
    if "profile" in attributes:
        terms.append(f"{_OWN}.?profile.orValue('') == '{attributes['profile']}'")
    else:
        terms.append(f"!has({_OWN}.profile)")
    return " && ".join(terms)


@cache
def _written() -> Sequence[Case]:
    return written_cases(gpus=1)


def _random(chance: Random) -> Case:
    """One node with a random configuration, some of its devices allocated, and one more claim."""
    machine = chance.choice(CONTAINER_MACHINES)
    state = chance.choice(_STATES) if machine in MIG_MACHINES else _STATES[0]
    rule = random_rule(chance)
    offered = offers(machine, one_rule(rule), state, chance.randint(1, 2))
    published, kinds = slices(offered), sorted(set(map(kind_of, offered.devices))) or ["true"]
    held = held_claims(chance, published, kinds)
    wanted = random_claim(chance, "next", kinds)
    return mig_area.ask(f"{machine} {state} {rule}", published, wanted, allocated=held)


def random_rule(chance: Random) -> str:
    """The fields of a rule that shares something, each way equally likely."""
    form = chance.choice(("", "whole", "dynamic", "partitions", "layout", "fractional"))
    strategies = chance.sample(("TimeSlicing", "MPS"), chance.randint(1, 2))
    shared = f"shared: [{', '.join(_way(chance, one, form == 'fractional') for one in strategies)}]"
    return {
        "": shared,
        "fractional": shared,
        "whole": f"offer: whole, mig: off, {shared}",
        "dynamic": f"mig: {{dynamic: {{profiles: [1g, 2g]}}}}, {shared}",
        "partitions": f"offer: partitions, mig: {chance.choice(('dynamic', 'static'))}, {shared}",
        "layout": f"mig: {{layout: {chance.choice(('all-1g', 'all-balanced'))}}}, {shared}",
    }[form]


def _way(chance: Random, strategy: str, fractional: bool) -> str:
    measures = chance.choice((("shares",), ("memory",), ("shares", "memory")))
    fields = [f"strategy: {strategy}"]
    if "shares" in measures:
        fields.append(f"shares: {chance.choice((2, 3, 4, 7, 10))}")
    if "memory" in measures:
        fields.append(f"memory: {{step: {chance.choice(('1Gi', '3Gi', '5Gi', '8000Mi'))}}}")
    if fractional:
        fields.append("fractional: true")
    return f"{{{', '.join(fields)}}}"


def held_claims(
    chance: Random,
    published: list[Json],
    kinds: Sequence[str],
    asking: Callable[[Random, str, Sequence[str]], Json] | None = None,
) -> list[Json]:
    """Allocated claims: claims are allocated one after the other, and some of them end."""
    allocator = Allocator(published, _CLASSES, [])
    held: list[Json] = []
    for number in range(chance.randint(0, _MOST_HELD)):
        wanted = (asking or random_claim)(chance, f"held-{number}", kinds)
        try:
            found = allocator.allocate(node(NODE), [wanted])
        except AllocationFailed:
            continue
        if found is not None:
            held.append({**wanted, "status": {"allocation": _named(chance, found[0])}})
            allocator.assume(held[-1])
        elif held:
            allocator.release(held.pop(chance.randrange(len(held))))
    return held


def _named(chance: Random, allocation: Json) -> Json:
    """The allocation with share IDs that are the same for the same seed."""
    for result in allocation["devices"]["results"]:
        if "shareID" in result:
            result["shareID"] = str(uuid.UUID(int=chance.getrandbits(128), version=4))
    return allocation


def random_claim(chance: Random, name: str, kinds: Sequence[str]) -> Json:
    """A claim for one or two devices, by amounts or not, perhaps of one GPU or of distinct ones."""
    requests = []
    for index in range(chance.choice((1, 1, 2))):
        fields: Json = {"count": chance.choice((1, 1, 1, 2))}
        if chance.random() < 0.6:
            fields["capacity"] = {"requests": _amounts(chance)}
        requests.append(exactly(f"r{index}", chance.choice(kinds), **fields))
    rule = chance.choice((None, None, "matchAttribute", "distinctAttribute"))
    attribute = chance.choice(("uuid", "resource.kubernetes.io/pciBusID"))
    if rule is None:
        return claim(*requests, name=name)
    qualified = attribute if "/" in attribute else f"{DRIVER_NAME}/{attribute}"
    return claim(*requests, name=name, constraints=[{"requests": [], rule: qualified}])


def _amounts(chance: Random) -> Json:
    wanted: Json = {}
    if chance.random() < 0.6:
        wanted["shares"] = chance.choice(_AMOUNTS)
    if chance.random() < 0.6 or not wanted:
        wanted["memory"] = chance.choice(_MEMORY)
    return wanted


AREA = Area("shares", _written, _random, mig_area.AREA.difference)
