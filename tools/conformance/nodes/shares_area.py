"""Compares nodes with shared GPUs: Kubernetes accepts what they publish, and allocates as we do."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from random import Random

from driver.devices.device import Device
from driver.devices.names import DRIVER_NAME
from driver.policy.offers import Offers
from tools.conformance.allocation.objects import Json, claim, exactly
from tools.conformance.area import Area, Case
from tools.conformance.nodes import mig_area, mig_nodes

SHARING_SAMPLES = tuple(
    path
    for path in mig_nodes.SAMPLES
    if path not in (*mig_nodes.MIG_SAMPLES, *mig_nodes.VM_SAMPLES) and "shared:" in path.read_text()
)
"""The shipped node configurations in which GPUs are shared."""

_AMOUNTS = ("1", "2", "0", "3", "500m", "100")
_MEMORY = ("1Gi", "1500Mi", "5Gi", "20Gi", "0", "1", "7G", "400Gi")


def written_cases(gpus: int | None) -> list[Case]:
    """The cases for every machine with every shipped configuration; ``gpus`` limits its GPUs."""
    found: list[Case] = []
    for machine in mig_nodes.CONTAINER_MACHINES:
        for path in SHARING_SAMPLES:
            for state in mig_nodes.STATES if machine in mig_nodes.MIG_MACHINES else mig_nodes.STATES[:1]:
                offered = mig_nodes.offers(machine, mig_nodes.sample(path), state, gpus)
                found += questions(f"{machine} {state} {path.stem}", offered)
    return found


def questions(name: str, offered: Offers) -> list[Case]:
    """Cases: each slice is valid, and one device of each kind can be allocated by every kind of request."""
    published = mig_nodes.slices(offered)
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
    """The smallest request for each capacity of a shared device."""
    return [
        (name, {"requests": {name: str(policy.minimum)}})
        for name, policy in device.policies.items()
        if policy.step is not None
    ]


def kind_of(device: Device) -> str:
    """The selector of devices that are equal for a user: by type, strategy and profile."""
    attributes = device.attributes
    terms = [f"{mig_area.OWN}.{name} == '{attributes[name]}'" for name in ("type", "sharing")]
    if "profile" in attributes:
        terms.append(f"{mig_area.OWN}.?profile.orValue('') == '{attributes['profile']}'")
    else:
        terms.append(f"!has({mig_area.OWN}.profile)")
    return " && ".join(terms)


@cache
def _written() -> Sequence[Case]:
    return written_cases(gpus=1)


def _random(rng: Random) -> Case:
    """A node with a random configuration, some of its devices allocated, and one more claim."""
    machine = rng.choice(mig_nodes.CONTAINER_MACHINES)
    state = rng.choice(mig_nodes.STATES) if machine in mig_nodes.MIG_MACHINES else mig_nodes.STATES[0]
    rule = random_rule(rng)
    offered = mig_nodes.offers(machine, mig_nodes.one_rule(rule), state, rng.randint(1, 2))
    published, kinds = mig_nodes.slices(offered), sorted(set(map(kind_of, offered.devices))) or ["true"]
    held = mig_area.held_claims(rng, published, kinds, random_claim)
    wanted = random_claim(rng, "next", kinds)
    return mig_area.ask(f"{machine} {state} {rule}", published, wanted, allocated=held)


def random_rule(rng: Random) -> str:
    """The fields of a rule with shares; each form is equally likely."""
    form = rng.choice(("", "whole", "dynamic", "partitions", "layout", "fractional"))
    strategies = rng.sample(("TimeSlicing", "MPS"), rng.randint(1, 2))
    shared = f"shared: [{', '.join(_way(rng, one, form == 'fractional') for one in strategies)}]"
    return {
        "": shared,
        "fractional": shared,
        "whole": f"offer: whole, mig: off, {shared}",
        "dynamic": f"mig: {{dynamic: {{profiles: [1g, 2g]}}}}, {shared}",
        "partitions": f"offer: partitions, mig: {rng.choice(('dynamic', 'static'))}, {shared}",
        "layout": f"mig: {{layout: {rng.choice(('all-1g', 'all-balanced'))}}}, {shared}",
    }[form]


def _way(rng: Random, strategy: str, fractional: bool) -> str:
    measures = rng.choice((("shares",), ("memory",), ("shares", "memory")))
    fields = [f"strategy: {strategy}"]
    if "shares" in measures:
        fields.append(f"shares: {rng.choice((2, 3, 4, 7, 10))}")
    if "memory" in measures:
        fields.append(f"memory: {{step: {rng.choice(('1Gi', '3Gi', '5Gi', '8000Mi'))}}}")
    if fractional:
        fields.append("fractional: true")
    return f"{{{', '.join(fields)}}}"


def random_claim(rng: Random, name: str, kinds: Sequence[str]) -> Json:
    """A claim for one or two devices, with or without amounts, maybe on one GPU or on distinct ones."""
    requests = []
    for index in range(rng.choice((1, 1, 2))):
        fields: Json = {"count": rng.choice((1, 1, 1, 2))}
        if rng.random() < 0.6:
            fields["capacity"] = {"requests": _amounts(rng)}
        requests.append(exactly(f"r{index}", rng.choice(kinds), **fields))
    rule = rng.choice((None, None, "matchAttribute", "distinctAttribute"))
    attribute = rng.choice(("uuid", "resource.kubernetes.io/pciBusID"))
    if rule is None:
        return claim(*requests, name=name)
    qualified = attribute if "/" in attribute else f"{DRIVER_NAME}/{attribute}"
    return claim(*requests, name=name, constraints=[{"requests": [], rule: qualified}])


def _amounts(rng: Random) -> Json:
    wanted: Json = {}
    if rng.random() < 0.6:
        wanted["shares"] = rng.choice(_AMOUNTS)
    if rng.random() < 0.6 or not wanted:
        wanted["memory"] = rng.choice(_MEMORY)
    return wanted


AREA = Area("shares", _written, _random, mig_area.AREA.difference)
