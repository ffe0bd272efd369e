"""Machines for tests of what is offered: their inventories, with MIG mode as the test wants it."""

from tests.gpus import FakeMachine, Gpu, GpuMig, NodeConfig, NvmlDevice, load_machine, parse_config
from tools.conformance.nodes.mig_nodes import MIG_MACHINES, look

__all__ = ["MIG_MACHINES", "look"]

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


def rules(text: str) -> NodeConfig:
    """A node configuration with one rule for all GPUs, in flow style: ``mig: dynamic``."""
    return parse_config(f"{{version: v1, rules: [{{{text}}}]}}", "test")


def all_profiles(mig: GpuMig) -> NodeConfig:
    """The rule that offers every profile that a GPU has, beside the whole GPU."""
    names = ", ".join(placed.profile.name for placed in mig.profiles)
    return rules(f"mig: {{dynamic: {{profiles: [{names}]}}}}")


def mig_of(gpu: Gpu) -> GpuMig:
    """What MIG is on a GPU that knows it."""
    assert gpu.mig is not None
    return gpu.mig
