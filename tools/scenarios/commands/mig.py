"""The program ``scenario-mig``: cuts a GPU of a node of fakes into partitions, as an administrator does."""

from __future__ import annotations

import click

from driver.errors import NodeIncomplete
from driver.nvml.api import NvmlDevice
from tools.scenarios.commands.machines import GPU, machine_of, run_program


@click.command()
@click.argument("node")
@GPU
@click.argument("profiles", nargs=-1)
def mig(node: str, gpu: int, profiles: tuple[str, ...]) -> None:
    """Cut a GPU of a NODE of fakes into partitions of these PROFILES; without any, MIG mode goes off.

    Partitions that are there are destroyed before. On hardware it is `nvidia-smi -i GPU -mig 1` and
    `nvidia-smi mig -i GPU -cgi PROFILES -C`.
    """
    machine = machine_of(node)
    nvml = machine.nvml()
    nvml.init()
    try:
        device = nvml.device_by_pci(machine.pci(gpu))
        if device.mig_mode().enabled:
            _clear(device)
        device.set_mig_mode(enabled=bool(profiles))
        for name in profiles:
            _make(device, name)
    finally:
        nvml.shutdown()
    click.echo(f"GPU {gpu} of {node} has {', '.join(profiles) or 'no partitions'}")


def _clear(device: NvmlDevice) -> None:
    """Destroy all instances; raises what NVML raises, where one is in use."""
    for instance in device.gpu_instances():
        for inside in device.compute_instances(instance.id):
            device.destroy_compute_instance(instance.id, inside.id)
        device.destroy_gpu_instance(instance.id)


def _make(device: NvmlDevice, name: str) -> None:
    """Make a GPU instance where there is room, with a compute instance all over it."""
    known = {profile.name: profile for profile in device.gpu_instance_profiles()}
    if name not in known:
        raise click.UsageError(f"{name} is no profile of this GPU: {', '.join(known)}")
    taken = [instance.placement for instance in device.gpu_instances()]
    for placement in device.gpu_instance_placements(known[name].id):
        if not any(map(placement.overlaps, taken)):
            made = device.create_gpu_instance(known[name].id, placement)
            widest = max(device.compute_instance_profiles(made.id), key=lambda profile: profile.slices)
            device.create_compute_instance(made.id, widest.id)
            return
    raise NodeIncomplete(f"no room is left for {name}", "name fewer or smaller profiles")


if __name__ == "__main__":
    run_program(mig, "scenario-mig")
