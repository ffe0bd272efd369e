"""``nvidia-smi topo -m`` tells how GPUs reach each other, in a container those that it has."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from fakegpu.driver_files.driver_root import build_driver_root
from fakegpu.machine.capabilities import VISIBLE_NODES
from fakegpu.machine.fake_machine import FakeMachine
from fakegpu.machine.spec import load_machine
from fakegpu.smi.topology import matrix_lines

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


def test_a_cube_mesh_is_drawn_with_its_links_and_its_distances(tmp_path: Path) -> None:
    root = build_driver_root(tmp_path, FakeMachine.open("dgx1-v100"))

    assert said(root).startswith(CUBE)


@pytest.mark.parametrize("machine", ["dgx1-v100", "hgx-h100", "l40s-octo", "t4", "a100-vgpu-guest-quad"])
def test_the_program_says_the_same_whether_it_reaches_the_machine_or_not(
    machine: str, tmp_path: Path
) -> None:
    alone = build_driver_root(tmp_path / "alone", FakeMachine.open(machine))
    known = build_driver_root(
        tmp_path / "known", FakeMachine.open(f"fake:{machine}@{tmp_path / 'state.json'}")
    )

    assert (
        said(alone)
        == said(known)
        == "".join(f"{line}\n" for line in matrix_lines(load_machine(machine).slots))
    )
