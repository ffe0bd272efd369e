"""Hosts of vGPUs: what they publish under a rule, and what their kernel makes of it."""

from collections import Counter
from dataclasses import replace
from functools import cache

from fakegpu.sysfs.vgpu_rules import HostedGpu
from tests.gpus import FakeMachine, Gpu, Inventory, Offers, Placement, load_machine, node_offers
from tools.conformance.nodes.mig_nodes import look, one_rule

L40S, A100, A30 = "vgpu-host-l40s", "vgpu-host-a100-mdev", "vgpu-and-passthrough"


@cache
def inventory(machine: str, *profiles: int) -> Inventory:
    """A host as it is; on its last GPU an admin has made GPU instances of these profiles."""
    fake = FakeMachine.open(machine)
    nvml = fake.nvml()
    nvml.init()
    device = nvml.device_by_index(nvml.device_count() - 1)
    taken: list[Placement] = []
    for profile in profiles:
        free = [
            one
            for one in device.gpu_instance_placements(profile)
            if not any(one.overlaps(other) for other in taken)
        ]
        taken.append(device.create_gpu_instance(profile, free[0]).placement)
    nvml.shutdown()
    return look(fake)


def offers(found: Inventory, fields: str) -> Offers:
    """What a host offers under one rule for all of its GPUs."""
    return node_offers(found, one_rule(fields))


def alone(found: Inventory, index: int) -> Inventory:
    """The host with one GPU."""
    return replace(found, gpus=(found.gpus[index],))


def hosted(machine: str, gpu: Gpu) -> HostedGpu:
    """The GPU as its kernel has it, without any vGPU."""
    host = load_machine(machine).product.vgpu
    assert host is not None
    assert gpu.vgpu is not None
    instances = Counter(one.profile_id for one in gpu.mig.instances) if gpu.mig and gpu.mig.enabled else None
    return HostedGpu(host, tuple(one.pci for one in gpu.vgpu.places), (), instances)
