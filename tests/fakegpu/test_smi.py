"""The fake nvidia-smi reads and changes the machine that all processes see, in the real one's words."""

from __future__ import annotations

from pathlib import Path

import pytest

from driver.nvml.api import Code
from tests.fakegpu.programs import Programs


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    """Eight A100."""
    return Programs(tmp_path, "dgx-a100")


def modes(programs: Programs) -> list[str]:
    return [gpu.compute_mode for gpu in programs.machine.state.gpus.values()]


def time_slices(programs: Programs) -> list[int]:
    return [gpu.time_slice for gpu in programs.machine.state.gpus.values()]


@pytest.mark.parametrize("words", [("--set-timeslice=2",), ("--set-timeslice", "2")])
def test_sets_the_time_slice_of_the_gpu_that_is_named(programs: Programs, words: tuple[str, ...]) -> None:
    code, _ = programs.smi("compute-policy", "-i", programs.uuid(3), *words)
    assert code == 0
    assert time_slices(programs) == [0, 0, 0, 2, 0, 0, 0, 0]
    code, lines = programs.smi("compute-policy", "-l")
    assert code == 0
    assert [line.split()[1:4] for line in lines if "Timeslice" in line][2:4] == [
        ["2", "Timeslice", "Default"],
        ["3", "Timeslice", "Medium"],
    ]


def test_a_guest_has_no_time_slice(tmp_path: Path) -> None:
    guest = Programs(tmp_path, "a100-vgpu-guest")
    said = [
        "Failed to set timeslice policy with value Long for GPU 0 : Not Supported",
        "Failed to set timeslice for requested devices : Not Supported",
    ]
    assert guest.smi("compute-policy", "-i", "0", "--set-timeslice=3") == (3, said)
    assert any("N/A" in line for line in guest.smi("compute-policy", "-l")[1])


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
