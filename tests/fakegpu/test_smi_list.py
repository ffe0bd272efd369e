"""The nvidia-smi that a container gets lists its GPUs, whatever has happened to them before."""

from __future__ import annotations

import subprocess
from pathlib import Path

from fakegpu.driver_files.driver_root import build_driver_root, build_sysfs
from fakegpu.machine.capabilities import CAPABILITY_NODES, access_minor
from fakegpu.machine.fake_machine import FakeMachine
from fakegpu.sysfs.kernel import FakeKernel

SECONDS = 5.0


def listed(root: Path) -> str:
    """What the program prints where it cannot reach the machine's state, as in a container."""
    program = (root / "usr/bin/nvidia-smi").read_text()
    done = subprocess.run(
        ["/bin/sh", "-c", program, "nvidia-smi", "-L"], capture_output=True, text=True, check=True
    )
    return done.stdout


def test_a_gpu_that_was_with_vfio_is_listed_by_the_minor_that_it_has_now(tmp_path: Path) -> None:
    machine = FakeMachine.open("a30-quad")
    root = build_driver_root(tmp_path / "driver", machine)
    kernel = FakeKernel(build_sysfs(tmp_path, machine), machine)
    first = min(machine.state.gpus)
    before = machine.state.gpus[first].minor
    assert machine.uuid(first) in listed(root)

    drivers = tmp_path / "sys/bus/pci/drivers/nvidia"
    kernel.write(drivers / "unbind", str(first), SECONDS)
    assert machine.uuid(first) not in listed(root)
    kernel.write(drivers / "bind", str(first), SECONDS)

    assert machine.state.gpus[first].minor != before
    assert machine.uuid(first) in listed(root)


def test_a_container_lists_its_gpus_from_zero_as_nvml_counts_them(tmp_path: Path) -> None:
    machine = FakeMachine.open("a30-quad")
    root = build_driver_root(tmp_path, machine)
    for minor in (0, 2):
        (root / f"dev/nvidia{minor}").unlink()

    assert listed(root).splitlines() == [
        f"GPU 0: NVIDIA A30 (UUID: {machine.uuid(machine.pci(1))})",
        f"GPU 1: NVIDIA A30 (UUID: {machine.uuid(machine.pci(3))})",
    ]


def cut_in_two(machine: FakeMachine) -> tuple[str, str]:
    """Make a 2g and a 1g of the first GPU; the UUIDs of both."""
    nvml = machine.nvml()
    nvml.init()
    gpu = nvml.device_by_index(0)
    gpu.set_mig_mode(enabled=True)
    profiles = {profile.name: profile.id for profile in gpu.gpu_instance_profiles()}
    for name, start in (("2g.20gb", 0), ("1g.10gb", 2)):
        place = next(one for one in gpu.gpu_instance_placements(profiles[name]) if one.start == start)
        made = gpu.create_gpu_instance(profiles[name], place)
        widest = max(gpu.compute_instance_profiles(made.id), key=lambda profile: profile.slices)
        gpu.create_compute_instance(made.id, widest.id)
    first, second = gpu.mig_devices()
    return first.uuid, second.uuid


def test_partitions_are_listed_below_their_gpu_and_in_a_container_its_own_alone(tmp_path: Path) -> None:
    machine = FakeMachine.open("hgx-h100")
    root = build_driver_root(tmp_path, machine)
    two, one = cut_in_two(machine)
    lines = listed(root).splitlines()

    assert lines[1:3] == [
        f"  MIG 2g.20gb     Device  0: (UUID: {two})",
        f"  MIG 1g.10gb     Device  1: (UUID: {one})",
    ]

    instance = next(
        gi.id for gi in machine.state.gpus[machine.pci(0)].mig.instances if gi.placement.size == 2
    )
    (root / CAPABILITY_NODES / f"nvidia-cap{access_minor(0, instance)}").unlink()

    assert listed(root).splitlines()[1] == f"  MIG 1g.10gb     Device  0: (UUID: {one})"
