"""The slices that shipped machines publish, in each state of MIG and with any node configuration."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Literal

from driver.devices.names import DRIVER_NAME, pool_name
from driver.hardware.gpu import Gpu, Inventory
from driver.hardware.inventory import Discovery
from driver.kinds.partition.layouts import layout_profiles, place
from driver.nvml.api import NvmlDevice
from driver.nvml.deadline import Guard
from driver.policy.config import load_config, parse_config
from driver.policy.offers import Offers, tainted_offers
from driver.policy.rules import NodeConfig
from driver.slices.specs import lay_out
from fakegpu.driver_files.driver_root import build_sysfs
from fakegpu.machine.fake_machine import FakeMachine
from fakegpu.machine.spec import known_machines, load_machine
from tools.conformance.allocation.objects import Json

State = Literal["delivered", "mode on", "cut"]
"""The state of a machine's GPUs: as delivered, in MIG mode, or with partitions made by an admin."""

STATES: tuple[State, ...] = ("delivered", "mode on", "cut")

NODE = "node-1"
SAMPLES = tuple(
    sorted((Path(__file__).resolve().parents[3] / "deploy" / "examples" / "node-config").glob("*.yaml"))
)
"""The shipped examples of node configurations."""

MIG_SAMPLES = tuple(path for path in SAMPLES if "mig" in path.stem)
"""The examples with MIG and without shares."""

VM_SAMPLES = tuple(
    path for path in SAMPLES if path.stem == "all-kinds" or path.stem.startswith(("passthrough", "vgpu"))
)
"""The examples that offer GPUs to virtual machines."""

VGPU_HOSTS = tuple(name for name in known_machines() if load_machine(name).product.vgpu is not None)
"""Machines whose GPUs are only for virtual machines."""

CONTAINER_MACHINES = tuple(name for name in known_machines() if name not in VGPU_HOSTS)
"""Machines whose GPUs containers can use."""

MIG_MACHINES = tuple(
    name for name in known_machines() if load_machine(name).product.mig is not None and name not in VGPU_HOSTS
)


def look(machine: FakeMachine) -> Inventory:
    """The current inventory of a machine."""
    with tempfile.TemporaryDirectory() as folder:
        guard = Guard()
        discovery = Discovery(
            machine.nvml(), build_sysfs(Path(folder), machine), guard, machine.fabric.manager()
        )
        try:
            return discovery.snapshot()
        finally:
            discovery.close()
            guard.close()


@cache
def inventory(name: str, state: State) -> Inventory:
    """The inventory of a shipped machine after its GPUs were put into a state."""
    machine = FakeMachine.open(name)
    nvml = machine.nvml()
    nvml.init()
    before = look(machine)
    if state == "delivered":
        return before
    for gpu in before.gpus:
        handle = nvml.device_by_index(gpu.index)
        # Ampere GPUs change their MIG mode only at a reset.
        if handle.set_mig_mode(True) == "reset-required":
            machine.reset(gpu.index)
        if state == "cut":
            _cut(handle, gpu)
    return look(machine)


def _cut(handle: NvmlDevice, gpu: Gpu) -> None:
    """Make the partitions of the layout all-balanced, as an admin would do."""
    if gpu.mig is None:
        raise ValueError(f"{gpu.pci} does not tell what MIG can make of it")
    for profile, placement in place(layout_profiles("all-balanced", gpu.mig), gpu.mig) or ():
        made = handle.create_gpu_instance(profile.id, placement)
        largest = handle.compute_instance_profiles(made.id)[-1]
        handle.create_compute_instance(made.id, largest.id)


def sample(path: Path) -> NodeConfig:
    """A shipped node configuration."""
    return load_config(path)


def one_rule(fields: str) -> NodeConfig:
    """A node configuration with one rule for all GPUs; ``fields`` are the rule's, in YAML's flow style."""
    return parse_config(f"{{version: v1, rules: [{{{fields}}}]}}", "one rule")


def offers(name: str, config: NodeConfig | None, state: State, gpus: int | None = None) -> Offers:
    """What a machine offers; ``gpus`` limits its GPUs."""
    found = inventory(name, state)
    return tainted_offers(replace(found, gpus=found.gpus[:gpus]), config)


def slices(offered: Offers) -> list[Json]:
    """The ResourceSlices of a node with these offers, as the API serves them.

    Raises ValueError if a device would be left out.
    """
    layout = lay_out(offered.devices, counter_sets=offered.counter_sets, pool=pool_name(NODE), node=NODE)
    if layout.rejected:
        raise ValueError(f"left out: {layout.rejected}")
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"{index:05x}-{DRIVER_NAME}-{NODE}"},
            "spec": {**spec, "pool": {**spec["pool"], "generation": 1}},
        }
        for index, spec in enumerate(layout.specs)
    ]
