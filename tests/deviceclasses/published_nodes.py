"""What nodes publish, for every machine and every way to offer it, as classes and claims meet it."""

import json
from functools import cache
from pathlib import Path

from tests.clusters import Object, PlannedNode, SelectorDevice, plan_inventory
from tests.gpus import (
    Code,
    FakeMachine,
    Inventory,
    NvmlCallFailed,
    NvmlDevice,
    Placement,
    known_machines,
    parse_config,
)
from tools.conformance.nodes.mig_nodes import VGPU_HOSTS, inventory, look

DRIVER = "gpu.nvidia.com"
NODE = "node-a"
_SAMPLES = Path(__file__).resolve().parents[2] / "deploy" / "examples" / "node-config"

MIG_MACHINES = (
    *("a30-passthrough-guest", "a30-quad", "dgx-a100", "dgx-a100-80gb", "gb200-tray", "gh200"),
    *("hgx-b200", "hgx-h100", "hgx-h200", "rtx-pro-6000-octo"),
)
SAME_GPUS = frozenset({"hgx-h100-shared-nvswitch", "hgx-a100-quad"})
"""Their GPUs are those of hgx-h100 and dgx-a100-80gb, so the tables of partitions do without them."""

OTHER_MACHINES = tuple(sorted(set(known_machines()) - {*MIG_MACHINES, *VGPU_HOSTS, *SAME_GPUS}))

DYNAMIC = "version: v1\nrules: [{mig: dynamic}]\n"
BALANCED = "version: v1\nrules: [{mig: {layout: all-balanced}}]\n"


def rule(fields: str) -> str:
    """A node configuration with this one rule for every GPU."""
    return f"version: v1\nrules: [{{{fields}}}]\n"


_SLICES, _CLIENTS = "{strategy: TimeSlicing, shares: 4}", "{strategy: MPS, shares: 4}"
TIME_SLICED = rule(f"shared: {_SLICES}")
MPS = rule(f"shared: {_CLIENTS}")
BY_MEMORY = rule("shared: {strategy: MPS, memory: {step: 5Gi}}")
FRACTIONAL = rule("shared: {strategy: MPS, memory: {step: 5Gi}, fractional: true}")
ALL_TIERS = rule(f"offer: whole, mig: dynamic, shared: [{_SLICES}, {_CLIENTS}]")
SHARED_PARTITIONS = rule(
    "mig: {layout: all-balanced}, shared: [{strategy: MPS, shares: 2}, {strategy: TimeSlicing, shares: 2}]"
)
TO_MACHINES = rule("offer: passthrough")
VGPUS = rule(
    "vgpu: {profiles: [L40S-8Q, L40S-24Q, L40S-8A, A100-10C, A100-40C, A100-1-5C, A100-3-20C, A30-12C]}"
)
ALL_KINDS = rule(f"offer: whole, mig: dynamic, shared: [{_SLICES}, {_CLIENTS}], passthrough: true")
SHARED_CONFIGURATIONS = {
    "time-sliced": TIME_SLICED,
    "MPS": MPS,
    "by memory": BY_MEMORY,
    "shares and memory": rule("shared: {strategy: MPS, shares: 4, memory: {step: 5Gi}}"),
    "sliced by memory": rule("shared: {strategy: TimeSlicing, memory: {step: 1Gi}}"),
    "fractional": FRACTIONAL,
    "fractional and sliced": rule("shared: {strategy: TimeSlicing, shares: 10, fractional: true}"),
    "whole or shared": rule(f"offer: whole, mig: off, shared: [{_CLIENTS}, {_SLICES}]"),
    "all tiers": ALL_TIERS,
    "passthrough": TO_MACHINES,
    "all kinds": ALL_KINDS,
    "vGPUs": VGPUS,
    **{file.name: file.read_text() for file in sorted(_SAMPLES.glob("*.yaml"))},
}


def every_profile(inventory: Inventory) -> str:
    """The node configuration that offers each profile of the machine's GPUs."""
    names = {placed.profile.name for gpu in inventory.gpus if gpu.mig for placed in gpu.mig.profiles}
    return f"version: v1\nrules: [{{mig: {{dynamic: {{profiles: [{', '.join(sorted(names))}]}}}}}}]\n"


@cache
def plan(
    machine: str, configuration: str | None = None, *, mode_on: bool = False, cut: bool = False
) -> PlannedNode:
    """What a node with this machine publishes; planned once in a process, so nobody may change it.

    ``mode_on`` has MIG mode on on each GPU that has MIG, after a reset where it takes one; ``cut`` also
    makes partitions there, with compute instances that take only a part of one of them.
    """
    found = _cut_inventory(machine) if cut else inventory(machine, "mode on" if mode_on else "delivered")
    rules = None if configuration is None else parse_config(configuration, "node.yaml")
    return plan_inventory(found, NODE, rules)


@cache
def all_plans(machine: str) -> dict[str, PlannedNode]:
    """Everything that a node with this machine may publish, by a word for it."""
    found = {
        "as it is": plan(machine),
        "dynamic": plan(machine, DYNAMIC),
        "layout": plan(machine, BALANCED),
        **{word: plan(machine, text) for word, text in SHARED_CONFIGURATIONS.items()},
    }
    if machine in MIG_MACHINES:
        each = every_profile(found["as it is"].inventory)
        found |= {
            "static": plan(machine, cut=True),
            "every profile": plan(machine, each, mode_on=True),
            "dynamic, mode on": plan(machine, DYNAMIC, mode_on=True),
            "layout, mode on": plan(machine, BALANCED, mode_on=True),
            "all tiers, mode on": plan(machine, ALL_TIERS, mode_on=True),
            "shared layout": plan(machine, SHARED_PARTITIONS, mode_on=True),
            "shared static": plan(machine, rule(f"offer: partitions, shared: {_SLICES}"), cut=True),
        }
    return found


@cache
def of_machine(machine: str) -> tuple[Object, ...]:
    """All devices that a node with this machine may publish; one of those that differ by place alone."""
    placed = (
        *("uuid", "parentUUID", "index"),
        *("resource.kubernetes.io/pciBusID", "resource.kubernetes.io/pcieRoot"),
    )
    by_content = {}
    for planned in all_plans(machine).values():
        for device in devices(planned):
            content = {key: None if key in placed else value for key, value in device["attributes"].items()}
            by_content[json.dumps((content, device.get("capacity")), sort_keys=True)] = device
    return tuple(by_content.values())


def devices(planned: PlannedNode) -> list[Object]:
    """All devices of all slices of a node."""
    return [device for one in planned.slices for device in one["spec"].get("devices", ())]


def profile_of(device: Object) -> str:
    """The profile of a partition, ``whole`` for a whole GPU, ``passthrough`` for one of a virtual machine,
    ``vgpu``, ``mps share`` or ``mps share of 1g.10gb``.
    """
    attributes = {name: value.get("string") for name, value in device["attributes"].items()}
    profile = attributes.get("profile")
    if attributes["type"] == "shared":
        return f"{attributes['sharing']} share" + (f" of {profile}" if profile else "")
    if attributes["type"] == "vgpu":
        return "vgpu"
    return "passthrough" if attributes["type"] == "vfio" else profile or "whole"


def selectable(device: Object) -> SelectorDevice:
    """The device as a selector sees it."""
    return SelectorDevice(
        DRIVER,
        device.get("attributes", {}),
        device.get("capacity", {}),
        device.get("allowMultipleAllocations", False),
    )


@cache
def _cut_inventory(machine: str) -> Inventory:
    """One instance of each profile that still fits on its GPU, and of the largest only a part in use."""
    fake = FakeMachine.open(machine)
    nvml = fake.nvml()
    nvml.init()
    for pci in fake.state.gpus:
        if nvml.device_by_pci(pci).set_mig_mode(enabled=True) == "reset-required":
            fake.reset(pci)
        _cut(nvml.device_by_pci(pci))
    nvml.shutdown()
    return look(fake)


def _cut(device: NvmlDevice) -> None:
    taken: list[Placement] = []
    for profile in sorted(device.gpu_instance_profiles(), key=lambda one: (one.slices, one.index)):
        free = [
            place
            for place in device.gpu_instance_placements(profile.id)
            if not any(place.overlaps(other) for other in taken)
        ]
        if not free:
            continue
        try:
            instance = device.create_gpu_instance(profile.id, free[-1])
        except NvmlCallFailed as error:
            if error.code != Code.INSUFFICIENT_RESOURCES:
                raise
            continue
        taken.append(instance.placement)
        parts = device.compute_instance_profiles(instance.id)
        part = min(parts, key=lambda one: one.slices)
        device.create_compute_instance(instance.id, part.id)
