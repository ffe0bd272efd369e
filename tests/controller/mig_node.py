"""What a machine of the fake offers under different node configurations, and its slices."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from tests.gpus import (
    Device,
    Discovery,
    FakeMachine,
    GpuPolicy,
    Guard,
    Inventory,
    MigOffer,
    NodeConfig,
    Offers,
    Rule,
    SharedOffer,
    lay_out,
    node_offers,
)

POOL = "node-a/gpu.nvidia.com"

WHOLE = GpuPolicy()
OFF = GpuPolicy(mig=MigOffer("off"))
HIDDEN = GpuPolicy("hidden")
DYNAMIC = GpuPolicy(mig=MigOffer("dynamic", ("1g", "3g")))
BALANCED = GpuPolicy("partitions", MigOffer("layout", layout="all-balanced"))
SMALL = GpuPolicy("partitions", MigOffer("layout", layout=("1g", "1g", "1g")))

SLICED = SharedOffer("TimeSlicing", 4)
SERVED = SharedOffer("MPS", 4)
SHARED = GpuPolicy("shared", shared=(SLICED,))


@cache
def inventory(machine: str = "hgx-h100", gpus: int = 2) -> Inventory:
    """The first GPUs of a machine as nobody has changed them."""
    return seen(FakeMachine.open(machine), gpus)


def seen(machine: FakeMachine, gpus: int = 2) -> Inventory:
    """The first GPUs of a machine as they are now."""
    guard = Guard()
    try:
        found = Discovery(machine.nvml(), Path("/no-sysfs"), guard).snapshot()
    finally:
        guard.close()
    return replace(found, gpus=found.gpus[:gpus])


def offers(*forms: GpuPolicy, of: Inventory | None = None) -> Offers:
    """What the node offers when its n-th GPU is offered in the n-th form, the last for all that remain."""
    rules = [Rule(f"gpu.index == {index}", one) for index, one in enumerate(forms[:-1])]
    rules.append(Rule(None, forms[-1]))
    return node_offers(of or inventory(), NodeConfig(tuple(rules)))


def slices(published: Offers, generation: int = 1) -> list[dict[str, Any]]:
    """The slices of the offers as the API server would hand them out."""
    layout = lay_out(published.devices, counter_sets=published.counter_sets, pool=POOL, node="node-a")
    assert layout.rejected == ()
    return [
        {
            "metadata": {"name": f"{index:05x}-slice", "uid": f"uid-{index}"},
            "spec": {**spec, "pool": {**spec["pool"], "generation": generation}},
        }
        for index, spec in enumerate(layout.specs)
    ]


def names(devices: tuple[Device, ...]) -> list[str]:
    """The names of the devices in their order."""
    return [device.name for device in devices]


def taint_keys(devices: tuple[Device, ...]) -> set[tuple[str, ...]]:
    """The different lists of taint keys that the devices have."""
    return {tuple(taint.key for taint in device.taints) for device in devices}


def cut(machine: FakeMachine, gpu: int, slices: int, start: int) -> None:
    """Make a partition as an admin does: MIG mode on, a GPU instance, a compute instance over all of it."""
    nvml = machine.nvml()
    nvml.init()
    device = nvml.device_by_index(gpu)
    if not device.mig_mode().enabled:
        device.set_mig_mode(enabled=True)
    profile = next(
        one for one in device.gpu_instance_profiles() if one.slices == slices and not one.attributes
    )
    place = next(one for one in device.gpu_instance_placements(profile.id) if one.start == start)
    instance = device.create_gpu_instance(profile.id, place)
    [whole] = [one for one in device.compute_instance_profiles(instance.id) if one.slices == slices][:1]
    device.create_compute_instance(instance.id, whole.id)
    nvml.shutdown()
