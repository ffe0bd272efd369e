"""What nodes publish, for every machine and every way to offer MIG, as classes and claims meet it."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from driver.cel.selector import SelectorDevice
from driver.model import Inventory
from driver.nvml.fake_machine import FakeMachine
from driver.nvml.fake_spec import known_machines
from gpuctl.planned_node import PlannedNode, plan_node

Object = dict[str, Any]

DRIVER = "gpu.nvidia.com"
NODE = "node-a"

MIG_MACHINES = (
    *("a30-quad", "dgx-a100", "dgx-a100-80gb", "gb200-tray", "gh200"),
    *("hgx-b200", "hgx-h100", "hgx-h200", "rtx-pro-6000-octo"),
)
OTHER_MACHINES = tuple(sorted(set(known_machines()) - set(MIG_MACHINES)))

DYNAMIC = "version: v1\nrules: [{mig: dynamic}]\n"
BALANCED = "version: v1\nrules: [{mig: {layout: all-balanced}}]\n"
SMALLEST = "version: v1\nrules: [{mig: {layout: all-1g}}]\n"


def every_profile(inventory: Inventory) -> str:
    """The node configuration that offers each profile of the machine's GPUs."""
    names = {placed.profile.name for gpu in inventory.gpus if gpu.mig for placed in gpu.mig.profiles}
    return f"version: v1\nrules: [{{mig: {{dynamic: {{profiles: [{', '.join(sorted(names))}]}}}}}}]\n"


@cache
def plan(
    machine: str, configuration: str | None = None, *, mode_on: bool = False, cut: bool = False
) -> PlannedNode:
    """What a node with this machine publishes.

    ``mode_on`` has MIG mode on on each GPU that has MIG, after a reset where it takes one; ``cut`` also
    makes partitions there, with compute instances that take only a part of one of them.
    """
    with tempfile.TemporaryDirectory(prefix="classes-") as name:
        folder = Path(name)
        text = f"{machine}@{folder / 'state.json'}"
        fake = FakeMachine.open(text)
        if mode_on or cut:
            _turn_on(fake)
        if cut:
            _cut(fake)
        config = folder / "node.yaml"
        if configuration is not None:
            config.write_text(configuration)
        return plan_node(text, NODE, None if configuration is None else config)


@cache
def all_plans(machine: str) -> dict[str, PlannedNode]:
    """Everything that a node with this machine may publish, by a word for it."""
    found = {
        "as it is": plan(machine),
        "dynamic": plan(machine, DYNAMIC),
        "layout": plan(machine, BALANCED),
    }
    if machine in MIG_MACHINES:
        each = every_profile(found["as it is"].inventory)
        found |= {
            "static": plan(machine, cut=True),
            "every profile": plan(machine, each, mode_on=True),
            "dynamic, mode on": plan(machine, DYNAMIC, mode_on=True),
            "layout, mode on": plan(machine, BALANCED, mode_on=True),
        }
    return found


def devices(planned: PlannedNode) -> list[Object]:
    """All devices of all slices of a node."""
    return [device for one in planned.slices for device in one["spec"].get("devices", ())]


def profile_of(device: Object) -> str:
    """The profile of a partition, ``whole`` for a whole GPU."""
    return str(device["attributes"].get("profile", {"string": "whole"})["string"])


def selectable(device: Object, driver: str = DRIVER) -> SelectorDevice:
    """The device as a selector sees it."""
    return SelectorDevice(driver, device.get("attributes", {}), device.get("capacity", {}))


def _turn_on(fake: FakeMachine) -> None:
    nvml = fake.nvml()
    nvml.init()
    for pci in fake.state.gpus:
        activation = nvml.device_by_pci(pci).set_mig_mode(enabled=True)
        if activation == "reset-required":
            fake.reset(pci)
    nvml.shutdown()


def _cut(fake: FakeMachine) -> None:
    """One instance of each profile that still fits on its GPU, and of the largest only a part in use."""
    nvml = fake.nvml()
    nvml.init()
    for pci in fake.state.gpus:
        device = nvml.device_by_pci(pci)
        taken: list[Any] = []
        for profile in sorted(device.gpu_instance_profiles(), key=lambda one: (one.slices, one.index)):
            free = [
                place
                for place in device.gpu_instance_placements(profile.id)
                if not any(place.overlaps(other) for other in taken)
            ]
            if not free or device.gpu_instance_capacity(profile.id) < 1:
                continue
            instance = device.create_gpu_instance(profile.id, free[-1])
            taken.append(instance.placement)
            parts = device.compute_instance_profiles(instance.id)
            part = min(parts, key=lambda one: one.slices)
            device.create_compute_instance(instance.id, part.id)
    nvml.shutdown()
