"""An admin on a node in tests: runs the commands that gpuctl prints, on the fake machine."""

from __future__ import annotations

import shlex

from driver.nvml.mig import Placement
from fakegpu.machine.fake_machine import FakeMachine


def run_commands(machine: FakeMachine, text: str) -> int:
    """Do what the ``nvidia-smi`` lines of a text say, as nvidia-smi does it; how many there were.

    The options are those of ``nvidia-smi mig --help``: ``-cgi`` takes ``profile id:placement start``.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip().startswith("nvidia-smi ")]
    for line in lines:
        _run(machine, shlex.split(line)[1:])
    return len(lines)


def _run(machine: FakeMachine, arguments: list[str]) -> None:
    about_mig = arguments[0] == "mig"
    rest = arguments[1:] if about_mig else arguments
    assert rest[0] == "-i", rest
    pci = machine.pci(rest[1])
    options = rest[2:]
    nvml = machine.nvml()
    nvml.init()
    gpu = nvml.device_by_pci(pci)
    match options:
        case ["-mig", mode] if not about_mig:
            gpu.set_mig_mode(mode == "1")
        case ["--gpu-reset"] if not about_mig:
            machine.reset(pci)
        case ["-dci"]:
            for instance in gpu.gpu_instances():
                for compute in gpu.compute_instances(instance.id):
                    gpu.destroy_compute_instance(instance.id, compute.id)
        case ["-dgi"]:
            for instance in gpu.gpu_instances():
                gpu.destroy_gpu_instance(instance.id)
        case ["-cgi", places, "-C"]:
            for place in places.split(","):
                profile_id, start = map(int, place.split(":"))
                sizes = {one.start: one for one in gpu.gpu_instance_placements(profile_id)}
                made = gpu.create_gpu_instance(profile_id, Placement(start, sizes[start].size))
                offered = gpu.compute_instance_profiles(made.id)
                gpu.create_compute_instance(made.id, max(offered, key=lambda one: one.slices).id)
        case _:
            raise AssertionError(f"nvidia-smi knows no {options}")
