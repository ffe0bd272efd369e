"""Compares nodes with passthrough: Kubernetes accepts what they publish, and allocates no GPU twice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import combinations
from random import Random

from driver.devices.device import Device
from driver.devices.region import overlap
from driver.hardware.functions import IommuGroup, PciFunction, PciView
from driver.hardware.gpu import Inventory
from driver.policy.offers import Offers, tainted_offers
from driver.policy.rules import NodeConfig
from driver.slices.specs import read_devices
from fakegpu.machine.spec import known_machines
from tools.conformance.allocation.objects import Json, claim, exactly
from tools.conformance.area import Answer, Area, Case
from tools.conformance.nodes import mig_area, mig_nodes
from tools.conformance.nodes.shares_area import kind_of, random_claim

_TIMES, _CLIENTS = "{strategy: TimeSlicing, shares: 4}", "{strategy: MPS, shares: 4}"
RULES: dict[str, str] = {
    "alone": "offer: passthrough",
    "whole": "mig: off, passthrough: true",
    "partitions": "mig: {dynamic: {profiles: [1g, 2g, 3g]}}, passthrough: true",
    "shares": f"offer: whole, mig: off, shared: [{_TIMES}, {_CLIENTS}], passthrough: true",
    "shares alone": f"shared: {_TIMES}, passthrough: true",
    "all": f"mig: {{dynamic: {{profiles: [1g, 2g]}}}}, shared: [{_TIMES}, {_CLIENTS}], passthrough: true",
    "layout": "mig: {layout: all-balanced}, passthrough: true",
    "shared layout": f"mig: {{layout: all-1g}}, shared: [{_TIMES}, {_CLIENTS}], passthrough: true",
}
"""The fields of a rule, for each combination of passthrough with other forms of GPUs."""

MACHINES = tuple(name for name in known_machines() if "vgpu" not in name)
_CHOSEN = ("hgx-h100", "dgx-a100", "l40s-octo", "gh200")
"""The machines of the written cases: MIG without and with a reset, no MIG, and a single GPU."""


def in_pairs(found: Inventory) -> Inventory:
    """The same node with two GPUs in each IOMMU group; an odd last one keeps its own group."""
    functions = found.pci.functions
    groups: list[IommuGroup] = []
    for number, start in enumerate(range(0, len(functions), 2)):
        pair = tuple(replace(one, iommu_group=number) for one in functions[start : start + 2])
        groups.append(IommuGroup(number, pair))
    paired: tuple[PciFunction, ...] = tuple(one for group in groups for one in group.functions)
    return replace(found, pci=PciView(paired, tuple(groups), found.pci.has_iommufd))


def offered_by(
    machine: str,
    config: NodeConfig,
    gpus: int | None = None,
    state: mig_nodes.State = "delivered",
    *,
    pairs: bool = False,
) -> Offers:
    """What a machine offers; ``gpus`` limits its GPUs, ``pairs`` puts two into each IOMMU group."""
    found = mig_nodes.inventory(machine, state)
    functions = found.pci.functions[:gpus]
    of_these = {function.iommu_group for function in functions}
    groups = tuple(group for group in found.pci.groups if group.number in of_these)
    kept = replace(found, gpus=found.gpus[:gpus], pci=PciView(functions, groups, found.pci.has_iommufd))
    return tainted_offers(in_pairs(kept) if pairs else kept, config)


def written_cases(gpus: int | None) -> list[Case]:
    """The cases for machines with every combination and every shipped configuration."""
    found: list[Case] = []
    for machine in _CHOSEN:
        configs = {word: mig_nodes.one_rule(fields) for word, fields in RULES.items()}
        configs |= {path.stem: mig_nodes.sample(path) for path in mig_nodes.VM_SAMPLES}
        for word, config in configs.items():
            for pairs in (False, True):
                name = f"{machine} {word}{' in pairs' if pairs else ''}"
                found += questions(name, offered_by(machine, config, gpus, pairs=pairs))
    return found


def questions(name: str, offered: Offers) -> list[Case]:
    """Cases: each slice is valid, and a device of each kind can be allocated, alone or beside passthrough."""
    published = mig_nodes.slices(offered)
    cases: list[Case] = [{"op": "validate", "object": one} for one in published]
    kinds = list(dict.fromkeys(map(kind_of, offered.devices)))
    cases += [mig_area.ask(f"{name}: {kind}", published, claim(exactly("r", kind))) for kind in kinds]
    machines = [one for one in offered.devices if one.attributes["type"] == "vfio"]
    if machines:
        virtual, count = kind_of(machines[0]), len(machines)
        every = claim(exactly("r", virtual, count=count), name="machines")
        cases.append(mig_area.ask(f"{name}: all {count} to machines", published, every))
        cases += [
            mig_area.ask(f"{name}: {kind} beside all machines", published, every, claim(exactly("r", kind)))
            for kind in kinds
        ]
    return cases


@cache
def _written() -> Sequence[Case]:
    return written_cases(gpus=2)


def _random(rng: Random) -> Case:
    """A node with a random combination, some of its devices allocated, and one more claim."""
    machine, pairs = rng.choice(MACHINES), rng.random() < 0.3
    state: mig_nodes.State = (
        rng.choice(("delivered", "mode on")) if machine in mig_nodes.MIG_MACHINES else "delivered"
    )
    word = rng.choice(tuple(RULES))
    offered = offered_by(machine, mig_nodes.one_rule(RULES[word]), rng.randint(1, 4), state, pairs=pairs)
    published, kinds = mig_nodes.slices(offered), sorted(set(map(kind_of, offered.devices))) or ["true"]
    held = mig_area.held_claims(rng, published, kinds, _claim)
    wanted = _claim(rng, "next", kinds)
    return mig_area.ask(f"{machine} {state} {word} {pairs}", published, wanted, allocated=held)


def _claim(rng: Random, name: str, kinds: Sequence[str]) -> Json:
    """Mostly a claim for one device of a random kind, otherwise any claim."""
    if rng.random() < 0.8:
        return claim(exactly("r", rng.choice(kinds)), name=name)
    return random_claim(rng, name, kinds)


def handed_out_twice(case: Case, answer: Answer) -> list[str]:
    """The pairs of allocated devices that overlap: two claims would have the same GPU."""
    claimed = dict.fromkeys(given(case["allocated"], answer))
    devices, _ = read_devices([one["spec"] for one in case["slices"]])
    by_name = {device.name: device for device in devices}
    return [
        f"{one} and {other}"
        for one, other in combinations(claimed, 2)
        if _exclude(by_name[one], by_name[other])
    ]


def given(allocated: Iterable[Json], answer: Answer) -> Iterator[str]:
    """The names of the allocated devices: of the claims of the case, and of the answer."""
    allocations = [one["status"]["allocation"] for one in allocated] + list(answer.get("results", ()))
    for allocation in allocations:
        for result in allocation["devices"]["results"]:
            yield result["device"]


def _exclude(one: Device, other: Device) -> bool:
    return overlap(one.regions, other.regions)


def _difference(case: Case, answer: Answer) -> str | None:
    if case["op"] == "allocate" and (twice := handed_out_twice(case, answer)):
        return f"{case['name']}: handed out twice: {', '.join(twice)}"
    return mig_area.AREA.difference(case, answer)


AREA = Area("passthrough", _written, _random, _difference)
