"""Whatever is allocated from what a node publishes can be made on its GPUs, in any order of allocations."""

import random
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driver.kinds.kind import DeviceName
from driver.kinds.registry import KINDS
from driver.kinds.whole import WHOLE
from tests.clusters import Allocator
from tests.driver.mig_machines import MIG_MACHINES, all_profiles, look, mig_of, rules, with_mode_on
from tests.examples import examples
from tests.gpus import (
    DRIVER_NAME,
    FakeMachine,
    GpuInstance,
    Inventory,
    Offers,
    PciAddress,
    Placement,
    node_offers,
    parse_partition_name,
    profile_slug,
)
from tools.conformance.allocation.objects import Json, claim, device_class, exactly, node
from tools.conformance.nodes.mig_nodes import NODE, slices

CLASS = device_class("any", [f"device.driver == '{DRIVER_NAME}'"])
GPUS = 2


@cache
def inventory(machine: str) -> Inventory:
    """The first GPUs of a machine, in MIG mode where that needed a reset."""
    fake = FakeMachine.open(machine)
    found = look(fake)
    if not mig_of(found.gpus[0]).without_reset:
        found = look(with_mode_on(machine, GPUS))
    return replace(found, gpus=found.gpus[:GPUS])


@cache
def offers(machine: str, profiles: str) -> Offers:
    found = inventory(machine)
    config = rules("mig: dynamic") if profiles == "default" else all_profiles(mig_of(found.gpus[0]))
    return node_offers(found, config)


def shuffled(offered: Offers, order: random.Random) -> Offers:
    """The devices in some order: safety must not hang on it."""
    devices = list(offered.devices)
    order.shuffle(devices)
    return replace(offered, devices=tuple(devices))


def claim_of(name: str, profile: str | None, count: int) -> Json:
    """A claim for so many devices of a profile; None asks for whole GPUs."""
    mine = f"device.attributes['{DRIVER_NAME}']"
    of_profile = f"{mine}.type == 'mig' && {mine}.profile == '{profile}'"
    expression = f"{mine}.type == 'gpu'" if profile is None else of_profile
    return claim(exactly("r", expression, deviceClassName="any", count=count), name=name)


def named(device: str) -> tuple[DeviceName, PciAddress]:
    """What the name of a device of one GPU says, and its address."""
    name = KINDS.parse(device)
    assert name is not None
    assert name.pci is not None
    return name, name.pci


class Hardware:
    """The GPUs of a fake machine, on which every allocation is carried out."""

    def __init__(self, machine: str) -> None:
        fake = FakeMachine.open(machine) if _without_reset(machine) else with_mode_on(machine, GPUS)
        self._nvml = fake.nvml()
        self._nvml.init()
        self._made: dict[str, GpuInstance] = {}
        self._whole: set[PciAddress] = set()
        self._profiles = {
            profile_slug(placed.profile.name): placed.profile.id
            for placed in mig_of(inventory(machine).gpus[0]).profiles
        }

    def take(self, device: str, span: Placement | None) -> None:
        """Make the device; NVML refuses what the GPU has no room for."""
        name, pci = named(device)
        gpu = self._nvml.device_by_pci(pci)
        assert pci not in self._whole
        partition = parse_partition_name(name.unshared)
        if span is None or partition is None:
            assert not gpu.mig_mode().enabled or gpu.gpu_instances() == ()
            self._whole.add(pci)
            return
        if not gpu.mig_mode().enabled:
            assert gpu.set_mig_mode(True) == "done"
        self._made[device] = gpu.create_gpu_instance(self._profiles[partition.profile], span)

    def give_back(self, device: str) -> None:
        """Undo ``take``."""
        _, pci = named(device)
        self._whole.discard(pci)
        if device in self._made:
            self._nvml.device_by_pci(pci).destroy_gpu_instance(self._made.pop(device).id)


def _without_reset(machine: str) -> bool:
    return mig_of(inventory(machine).gpus[0]).without_reset


@pytest.mark.parametrize("profiles", ["default", "all"])
@pytest.mark.parametrize("machine", MIG_MACHINES)
@settings(max_examples=examples(12))
@given(data=st.data())
def test_no_sequence_of_allocations_and_releases_over_commits_a_gpu(
    machine: str, profiles: str, data: st.DataObject
) -> None:
    offered = offers(machine, profiles)
    spans = {device.name: device.span for device in offered.devices}
    kinds = sorted({str(device.attributes["profile"]) for device in offered.devices if device.span})
    allocator = Allocator(
        slices(shuffled(offered, data.draw(st.randoms(use_true_random=False)))), [CLASS], []
    )
    hardware = Hardware(machine)
    held: dict[str, Json] = {}
    for number in range(data.draw(st.integers(5, 25))):
        if held and data.draw(st.integers(0, 2)) == 0:
            released = held.pop(data.draw(st.sampled_from(sorted(held))))
            allocator.release(released)
            for result in released["status"]["allocation"]["devices"]["results"]:
                hardware.give_back(result["device"])
            continue
        kind = data.draw(st.sampled_from([None, *kinds]))
        wanted = claim_of(f"c{number}", kind, data.draw(st.integers(1, 3)))
        found = allocator.allocate(node(NODE), [wanted])
        if found is None:
            continue
        taken = {**wanted, "status": {"allocation": found[0]}}
        allocator.assume(taken)
        held[f"c{number}"] = taken
        for result in found[0]["devices"]["results"]:
            hardware.take(result["device"], spans[result["device"]])


@pytest.mark.parametrize("machine", MIG_MACHINES)
def test_a_full_gpu_of_the_smallest_profile_leaves_the_next_whole(machine: str) -> None:
    offered = offers(machine, "default")
    allocator = Allocator(slices(offered), [CLASS], [])
    smallest = str(offered.devices[0].attributes["profile"])
    most = next(
        placed.profile.most_instances
        for placed in mig_of(inventory(machine).gpus[0]).profiles
        if placed.profile.name == smallest
    )
    gpus = set()
    for number in range(most):
        wanted = claim_of(f"c{number}", smallest, 1)
        found = allocator.allocate(node(NODE), [wanted])
        assert found is not None
        allocator.assume({**wanted, "status": {"allocation": found[0]}})
        [result] = found[0]["devices"]["results"]
        gpus.add(named(result["device"])[1])

    assert gpus == {inventory(machine).gpus[0].pci}
    if _without_reset(machine) and len(inventory(machine).gpus) > 1:
        whole = allocator.allocate(node(NODE), [claim_of("whole", None, 1)])
        assert whole is not None
        [result] = whole[0]["devices"]["results"]
        name, pci = named(result["device"])
        assert name.kind is WHOLE
        assert pci not in gpus
