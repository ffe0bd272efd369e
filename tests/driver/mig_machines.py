"""Machines for tests of what is offered: their inventories, with MIG mode as the test wants it."""

from dataclasses import replace

from tests.gpus import (
    Device,
    FakeMachine,
    Gpu,
    GpuMig,
    Inventory,
    NodeConfig,
    NvmlDevice,
    Offers,
    Placement,
    gpu_device_name,
    load_machine,
)
from tools.conformance.nodes.mig_nodes import MIG_MACHINES, look
from tools.conformance.nodes.mig_nodes import one_rule as rules

__all__ = ["MIG_MACHINES", "look", "rules"]

Instances = tuple[tuple[int, int, tuple[int, ...]], ...]
"""What an admin makes of a GPU in MIG mode: profile id, start, and the compute profiles inside."""

UNLIKE = tuple({repr(load_machine(name).product.mig): name for name in reversed(MIG_MACHINES)}.values())
"""One machine of each table of MIG profiles."""

AMPERE = ("a30-passthrough-guest", "a30-quad", "dgx-a100", "dgx-a100-80gb", "hgx-a100-quad")
"""Those whose GPUs get another MIG mode by a reset alone."""


def device(machine: FakeMachine, index: int = 0) -> NvmlDevice:
    """A handle to a GPU of a machine."""
    nvml = machine.nvml()
    nvml.init()
    return nvml.device_by_index(index)


def with_mode_on(name: str, gpus: int = 1) -> FakeMachine:
    """A machine with MIG mode on on its first GPUs, reset where that needs it."""
    machine = FakeMachine.open(name)
    for index in range(gpus):
        if device(machine, index).set_mig_mode(True) == "reset-required":
            machine.reset(index)
    return machine


def make_instances(gpu: NvmlDevice, instances: Instances) -> None:
    """Do what an admin does."""
    for profile_id, start, inside in instances:
        size = gpu.gpu_instance_placements(profile_id)[0].size
        made = gpu.create_gpu_instance(profile_id, Placement(start, size))
        for compute_profile in inside:
            gpu.create_compute_instance(made.id, compute_profile)


def of_first(inventory: Inventory, **changes: object) -> Inventory:
    """The inventory with its first GPU alone, of which something is otherwise."""
    return replace(inventory, gpus=(replace(inventory.gpus[0], **changes),))  # type: ignore[arg-type] # fields


def only(offers: Offers) -> Device:
    """The one device that is offered, and nothing is withheld."""
    assert offers.withheld == ()
    [device] = offers.devices
    return device


def shapes(offers: Offers) -> list[str]:
    """The names of the devices without what says the GPU: ``whole``, ``mig-1g-10gb-6``, ``ts-4``."""
    return [
        one.name.removeprefix(gpu_device_name(one.pci)).removeprefix("-") or "whole"
        for one in offers.devices
        if one.pci is not None
    ]


def all_profiles(mig: GpuMig) -> NodeConfig:
    """The rule that offers every profile that a GPU has, beside the whole GPU."""
    names = ", ".join(placed.profile.name for placed in mig.profiles)
    return rules(f"mig: {{dynamic: {{profiles: [{names}]}}}}")


def mig_of(gpu: Gpu) -> GpuMig:
    """What MIG is on a GPU that knows it."""
    assert gpu.mig is not None
    return gpu.mig
