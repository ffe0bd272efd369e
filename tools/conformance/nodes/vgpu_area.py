"""Compares vGPU hosts: Kubernetes accepts what they publish, and does not mix profiles that must not mix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import combinations
from random import Random

from driver.devices.device import Device
from driver.hardware.gpu import Inventory
from driver.hardware.vgpu_places import VgpuHost, VgpuPlace
from driver.nvml.mig import Placement
from driver.nvml.pci_address import PciAddress
from driver.policy.config import parse_config
from driver.policy.offers import Offers, tainted_offers
from driver.policy.rules import NodeConfig
from driver.slices.specs import read_devices
from fakegpu.machine.fake_machine import FakeMachine
from kubernetes_rules.allocator.allocate import Allocator
from tools.conformance.allocation.objects import Json, claim, exactly, node
from tools.conformance.area import Answer, Area, Case
from tools.conformance.nodes import mig_area, passthrough_area
from tools.conformance.nodes.mig_nodes import NODE, VGPU_HOSTS, VM_SAMPLES, look, one_rule, sample, slices
from tools.conformance.nodes.shares_area import kind_of

PROFILES: dict[str, tuple[str, ...]] = {
    "vgpu-host-l40s": ("L40S-1Q", "L40S-8Q", "L40S-8A", "L40S-24Q", "L40S-48Q"),
    "vgpu-host-a100-mdev": ("A100-4C", "A100-10C", "A100-40C", "A100-1-5C", "A100-1-5CME", "A100-3-20C"),
    "vgpu-and-passthrough": ("A30-6C", "A30-12C", "A30-24C"),
}
"""The profiles that are offered, by machine."""

BESIDE = """
version: v1
rules:
  - {when: gpu.pciBusID == "0000:81:00.0", offer: passthrough}
  - vgpu: {profiles: [A30-6C, A30-12C]}
"""
"""One GPU of a host for passthrough, the other for vGPUs."""

BOTH = "vgpu: {profiles: [A30-6C, A30-12C]}, passthrough: true"
"""The same GPU for vGPUs or for passthrough; it must not have virtual functions."""


@cache
def host(machine: str) -> Inventory:
    """A host; GPUs in MIG mode have GPU instances as an admin makes them."""
    fake = FakeMachine.open(machine)
    nvml = fake.nvml()
    nvml.init()
    for pci in fake.state.listed():
        device = nvml.device_by_pci(pci)
        if fake.state.gpus[pci].mig.enabled:
            by_name = {one.name: one.id for one in device.gpu_instance_profiles()}
            for name, start in (("3g.20gb", 4), ("1g.5gb", 0), ("1g.5gb+me", 1)):
                size = next(
                    one.size for one in device.gpu_instance_placements(by_name[name]) if one.start == start
                )
                device.create_gpu_instance(by_name[name], Placement(start, size))
    nvml.shutdown()
    return look(fake)


def without_sriov(found: Inventory) -> Inventory:
    """The same host without SR-IOV, like older hosts: mediated devices belong to the GPUs themselves."""

    def older(vgpu: VgpuHost | None, pci: PciAddress) -> VgpuHost | None:
        return None if vgpu is None else VgpuHost(vgpu.types, "mdev", (VgpuPlace(pci),))

    gpus = tuple(replace(gpu, vgpu=older(gpu.vgpu, gpu.pci)) for gpu in found.gpus)
    functions = tuple(replace(one, virtual=()) for one in found.pci.functions if one.physical is None)
    return replace(found, gpus=gpus, pci=replace(found.pci, functions=functions))


def offered_by(machine: str, config: NodeConfig, *, older: bool = False) -> Offers:
    """What a host offers."""
    found = host(machine)
    return tainted_offers(without_sriov(found) if older else found, config)


def _configs(machine: str) -> Iterator[tuple[str, NodeConfig, bool]]:
    names = PROFILES[machine]
    yield "all", one_rule(f"vgpu: {{profiles: [{', '.join(names)}]}}"), False
    yield "one", one_rule(f"vgpu: {{profiles: [{names[0]}]}}"), False
    if machine == "vgpu-and-passthrough":
        yield "beside passthrough", parse_config(BESIDE, "beside"), False
        yield "or passthrough", one_rule(BOTH), True
    for path in VM_SAMPLES:
        yield path.stem, sample(path), False


def questions(name: str, offered: Offers) -> list[Case]:
    """Cases: each slice is valid, vGPUs can be allocated, and nothing that cannot exist beside them."""
    published = slices(offered)
    cases: list[Case] = [{"op": "validate", "object": one} for one in published]
    kinds = list(dict.fromkeys(map(kind_of, offered.devices)))
    for kind in kinds:
        cases.append(mig_area.ask(f"{name}: two of {kind}", published, claim(exactly("r", kind, count=2))))
        # The devices of the kind are allocated before. In one question with the other claim the oracle would
        # try every order of equal devices.
        held = _all_of(kind, published)
        cases += [
            mig_area.ask(
                f"{name}: {other} beside all of {kind}", published, claim(exactly("r", other)), allocated=held
            )
            for other in kinds
        ]
    return cases


def _all_of(kind: str, published: list[Json]) -> list[Json]:
    """Allocated claims for as many devices of a kind as a node can have at once."""
    allocator = Allocator(published, mig_area.CLASSES, [])
    held: list[Json] = []
    while True:
        wanted = claim(exactly("r", kind), name=f"held-{len(held)}")
        found = allocator.allocate(node(NODE), [wanted])
        if found is None:
            return held
        held.append({**wanted, "status": {"allocation": found[0]}})
        allocator.assume(held[-1])


@cache
def _written() -> Sequence[Case]:
    return [
        case
        for machine in VGPU_HOSTS
        for word, config, older in _configs(machine)
        for case in questions(f"{machine} {word}", offered_by(machine, config, older=older))
    ]


def _random(rng: Random) -> Case:
    """A host with some profiles, some of its devices allocated, and one more claim."""
    machine, older = rng.choice(VGPU_HOSTS), rng.random() < 0.2
    some = rng.sample(PROFILES[machine], rng.randint(1, 3))
    rule = f"vgpu: {{profiles: [{', '.join(some)}]}}, passthrough: {str(older).lower()}"
    offered = offered_by(machine, one_rule(rule), older=older)
    published, kinds = slices(offered), sorted(set(map(kind_of, offered.devices))) or ["true"]
    held = mig_area.held_claims(rng, published, kinds, _one_device)
    wanted = claim(exactly("r", rng.choice(kinds), count=rng.choice((1, 1, 2))), name="next")
    return mig_area.ask(f"{machine} {rule} {older}", published, wanted, allocated=held)


def _one_device(rng: Random, name: str, kinds: Sequence[str]) -> Json:
    return claim(exactly("r", rng.choice(kinds)), name=name)


def mixed(case: Case, answer: Answer) -> list[str]:
    """The pairs of allocated vGPUs with different profiles on one time-sliced GPU, which cannot exist."""
    devices, _ = read_devices([one["spec"] for one in case["slices"]])
    by_name = {device.name: device for device in devices}
    given = [by_name[name] for name in dict.fromkeys(passthrough_area.given(case["allocated"], answer))]
    return [f"{one.name} and {other.name}" for one, other in combinations(given, 2) if _are_mixed(one, other)]


def _are_mixed(one: Device, other: Device) -> bool:
    by_time = all(device.attributes.get("vgpuKind") == "time-sliced" for device in (one, other))
    return by_time and one.pci == other.pci and one.attributes["profile"] != other.attributes["profile"]


def _difference(case: Case, answer: Answer) -> str | None:
    if case["op"] == "allocate":
        wrong = mixed(case, answer) + passthrough_area.handed_out_twice(case, answer)
        if wrong:
            return f"{case['name']}: handed out together: {', '.join(wrong)}"
    return mig_area.AREA.difference(case, answer)


AREA = Area("vgpu", _written, _random, _difference)
