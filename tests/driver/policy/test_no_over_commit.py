"""Whatever is allocated from what a node publishes can be made on its GPUs, in any order of allocations."""

import random
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
    NvmlDevice,
    Offers,
    PciAddress,
    Placement,
    lay_out,
    node_offers,
    parse_partition_name,
    profile_slug,
)

NODE = "node-a"
POOL = f"{NODE}/{DRIVER_NAME}"
CLASS = {
    "metadata": {"name": "any"},
    "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{DRIVER_NAME}'"}}]},
}
GPUS = 2

Json = dict[str, Any]


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


def slices(offered: Offers, order: random.Random) -> list[Json]:
    """The slices of a node, with the devices in some order: safety must not hang on it."""
    devices = list(offered.devices)
    order.shuffle(devices)
    layout = lay_out(devices, pool=POOL, node=NODE, counter_sets=offered.counter_sets)
    assert layout.rejected == ()
    return [
        {"metadata": {"name": f"s{index}"}, "spec": {**spec, "pool": {**spec["pool"], "generation": 1}}}
        for index, spec in enumerate(layout.specs)
    ]


def claim(name: str, profile: str | None, count: int) -> Json:
    """A claim for so many devices of a profile; None asks for whole GPUs."""
    mine = f"device.attributes['{DRIVER_NAME}']"
    wanted = f"{mine}.type == 'gpu'" if profile is None else f"{mine}.profile == '{profile}'"
    if profile is not None:
        wanted = f"{mine}.type == 'mig' && {wanted}"
    request = {
        "deviceClassName": "any",
        "allocationMode": "ExactCount",
        "count": count,
        "selectors": [{"cel": {"expression": wanted}}],
    }
    return {
        "metadata": {"name": name, "namespace": "ns", "uid": name},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": request}]}},
    }


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

    def _gpu(self, pci: PciAddress) -> NvmlDevice:
        return next(
            gpu
            for gpu in map(self._nvml.device_by_index, range(self._nvml.device_count()))
            if gpu.pci() == pci
        )

    def take(self, device: str, span: Placement | None) -> None:
        """Make the device; NVML refuses what the GPU has no room for."""
        name = KINDS.parse(device)
        assert name is not None
        assert name.pci is not None
        gpu = self._gpu(name.pci)
        assert name.pci not in self._whole
        partition = parse_partition_name(name.unshared)
        if span is None or partition is None:
            assert not gpu.mig_mode().enabled or gpu.gpu_instances() == ()
            self._whole.add(name.pci)
            return
        if not gpu.mig_mode().enabled:
            assert gpu.set_mig_mode(True) == "done"
        self._made[device] = gpu.create_gpu_instance(self._profiles[partition.profile], span)

    def give_back(self, device: str) -> None:
        """Undo ``take``."""
        name = KINDS.parse(device)
        assert name is not None
        assert name.pci is not None
        self._whole.discard(name.pci)
        if device in self._made:
            self._gpu(name.pci).destroy_gpu_instance(self._made.pop(device).id)


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
    allocator = Allocator(slices(offered, data.draw(st.randoms(use_true_random=False))), [CLASS], [])
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
        wanted = claim(f"c{number}", kind, data.draw(st.integers(1, 3)))
        found = allocator.allocate({"metadata": {"name": NODE}}, [wanted])
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
    layout = lay_out(offered.devices, pool=POOL, node=NODE, counter_sets=offered.counter_sets)
    published = [
        {"metadata": {"name": f"s{index}"}, "spec": {**spec, "pool": {**spec["pool"], "generation": 1}}}
        for index, spec in enumerate(layout.specs)
    ]
    allocator = Allocator(published, [CLASS], [])
    smallest = str(offered.devices[0].attributes["profile"])
    most = next(
        placed.profile.most_instances
        for placed in mig_of(inventory(machine).gpus[0]).profiles
        if placed.profile.name == smallest
    )
    gpus = set()
    for number in range(most):
        wanted = claim(f"c{number}", smallest, 1)
        found = allocator.allocate({"metadata": {"name": NODE}}, [wanted])
        assert found is not None
        allocator.assume({**wanted, "status": {"allocation": found[0]}})
        [result] = found[0]["devices"]["results"]
        name = KINDS.parse(result["device"])
        assert name is not None
        gpus.add(name.pci)

    assert gpus == {inventory(machine).gpus[0].pci}
    if _without_reset(machine) and len(inventory(machine).gpus) > 1:
        whole = allocator.allocate({"metadata": {"name": NODE}}, [claim("whole", None, 1)])
        assert whole is not None
        [result] = whole[0]["devices"]["results"]
        name = KINDS.parse(result["device"])
        assert name is not None
        assert name.kind is WHOLE
        assert name.pci not in gpus
