"""The fake nvidia-smi reads and changes the machine that all processes see, in the real one's words."""

import subprocess
from pathlib import Path

import pytest

from fakegpu.machine.capabilities import CAPABILITY_NODES
from fakegpu.smi.topology import matrix_lines
from tests.controller.mig_node import cut
from tests.driver.mig_machines import device
from tests.fakegpu.programs import Programs
from tests.gpus import VISIBLE_NODES, Code, FakeMachine, access_minor, build_driver_root, load_machine


def modes(programs: Programs) -> list[str]:
    return [gpu.compute_mode for gpu in programs.machine.state.gpus.values()]


def test_a_gpu_that_is_not_there_a_lost_one_and_no_driver_have_codes_of_their_own(programs: Programs) -> None:
    assert programs.smi("-i", "8", "-c", "0") == (Code.NOT_FOUND, ["No devices were found"])
    programs.machine.lose(0)
    assert programs.smi("-L")[0] == Code.GPU_IS_LOST
    programs.machine.driver_gone()
    code, lines = programs.smi("-L")
    assert code == Code.DRIVER_NOT_LOADED
    assert "couldn't communicate with the NVIDIA driver" in lines[0]


@pytest.mark.parametrize("machine", ["dgx1-v100", "dgx2"])
def test_linked_gpus_before_ampere_are_only_reset_together(tmp_path: Path, machine: str) -> None:
    programs = Programs(tmp_path, machine)
    programs.smi("-c", "PROHIBITED")
    code, lines = programs.smi("--gpu-reset", "-i", "0")
    assert code == Code.INVALID_ARGUMENT
    assert "have to be reset together" in lines[0]
    assert set(modes(programs)) == {"prohibited"}
    assert programs.smi("--gpu-reset")[0] == 0
    assert set(modes(programs)) == {"default"}


CUBE = """\
\tGPU0\tGPU1\tGPU2\tGPU3\tGPU4\tGPU5\tGPU6\tGPU7\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID
GPU0\t X \tNV1\tNV1\tNV2\tNV2\tSYS\tSYS\tSYS\t0-19,40-59\t0\t\tN/A
GPU1\tNV1\t X \tNV2\tNV1\tSYS\tNV2\tSYS\tSYS\t0-19,40-59\t0\t\tN/A
"""


def said(root: Path, visible: str | None = None) -> str:
    """What the program prints; with ``visible`` in a container that the embedded runtime plays."""
    environment = {} if visible is None else {VISIBLE_NODES: visible}
    words = [str(root / "usr/bin/nvidia-smi"), "topo", "-m"]
    return subprocess.run(words, capture_output=True, text=True, check=True, env=environment).stdout


@pytest.mark.parametrize("machine", ["dgx1-v100", "hgx-h100", "l40s-octo", "t4", "a100-vgpu-guest-quad"])
def test_the_program_says_the_same_whether_it_reaches_the_machine_or_not(
    machine: str, tmp_path: Path
) -> None:
    alone = build_driver_root(tmp_path / "alone", FakeMachine.open(machine))
    known = build_driver_root(
        tmp_path / "known", FakeMachine.open(f"fake:{machine}@{tmp_path / 'state.json'}")
    )

    assert machine != "dgx1-v100" or said(alone).startswith(CUBE)
    assert (
        said(alone)
        == said(known)
        == "".join(f"{line}\n" for line in matrix_lines(load_machine(machine).slots))
    )


def listed(root: Path) -> str:
    """What the program prints where it cannot reach the machine's state, as in a container."""
    program = (root / "usr/bin/nvidia-smi").read_text()
    done = subprocess.run(
        ["/bin/sh", "-c", program, "nvidia-smi", "-L"], capture_output=True, text=True, check=True
    )
    return done.stdout


def test_a_container_lists_its_gpus_from_zero_as_nvml_counts_them(tmp_path: Path) -> None:
    machine = FakeMachine.open("a30-quad")
    root = build_driver_root(tmp_path, machine)
    for minor in (0, 2):
        (root / f"dev/nvidia{minor}").unlink()

    assert listed(root).splitlines() == [
        f"GPU 0: NVIDIA A30 (UUID: {machine.uuid(machine.pci(1))})",
        f"GPU 1: NVIDIA A30 (UUID: {machine.uuid(machine.pci(3))})",
    ]


def test_partitions_are_listed_below_their_gpu_and_in_a_container_its_own_alone(tmp_path: Path) -> None:
    machine = FakeMachine.open("hgx-h100")
    root = build_driver_root(tmp_path, machine)
    cut(machine, 0, slices=2, start=0)
    cut(machine, 0, slices=1, start=2)
    two, one = (partition.uuid for partition in device(machine).mig_devices())
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
