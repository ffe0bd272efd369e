"""The nvidia-smi that a container gets lists its GPUs, whatever has happened to them before."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from fakegpu.driver_root import build_driver_root, build_sysfs
from fakegpu.machine import FakeMachine
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


def test_programs_that_several_machines_share_stay_as_they_are(tmp_path: Path) -> None:
    machine = FakeMachine.open("a30-quad")
    shared = build_driver_root(tmp_path / "shared", FakeMachine.open("a30-quad")) / "usr"
    root = build_driver_root(tmp_path / "driver", machine)
    shutil.rmtree(root / "usr")
    (root / "usr").symlink_to(shared)
    before = (shared / "bin/nvidia-smi").read_text()
    kernel = FakeKernel(build_sysfs(tmp_path, machine), machine)
    first = min(machine.state.gpus)

    kernel.write(tmp_path / "sys/bus/pci/drivers/nvidia/unbind", str(first), SECONDS)

    assert not (root / "dev/nvidia0").exists()
    assert (shared / "bin/nvidia-smi").read_text() == before
