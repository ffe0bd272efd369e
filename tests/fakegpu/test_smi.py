"""The fake nvidia-smi reads and changes the machine that all processes see, in the real one's words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from driver.nvml.api import Code
from fakegpu.machine.spec import MACHINES
from fakegpu.smi.program import OTHER_ERROR
from tests.fakegpu.programs import Programs

if TYPE_CHECKING:
    from pathlib import Path

FIRST = "00000000:07:00.0"


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    """Eight A100."""
    return Programs(tmp_path, "dgx-a100")


def modes(programs: Programs) -> list[str]:
    return [gpu.compute_mode for gpu in programs.machine.state.gpus.values()]


def time_slices(programs: Programs) -> list[int]:
    return [gpu.time_slice for gpu in programs.machine.state.gpus.values()]


def test_lists_the_gpus_whose_nodes_it_sees(programs: Programs) -> None:
    (programs.root / "dev/nvidia0").unlink()
    code, lines = programs.smi("-L")
    assert (code, len(lines)) == (0, 7)
    assert lines[0] == f"GPU 1: NVIDIA A100-SXM4-40GB (UUID: {programs.uuid(1)})"


def test_lists_mig_devices_below_their_gpu(programs: Programs) -> None:
    nvml = programs.machine.nvml()
    nvml.init()
    nvml.device_by_index(0).set_mig_mode(True)
    programs.machine.reset(0)
    device = nvml.device_by_index(0)
    profile = next(profile for profile in device.gpu_instance_profiles() if profile.name == "3g.20gb")
    instance = device.create_gpu_instance(profile.id, device.gpu_instance_placements(profile.id)[0])
    for _ in range(2):
        device.create_compute_instance(instance.id, 0)
    code, lines = programs.smi()
    first, second = device.mig_devices()
    assert code == 0
    assert lines[1:3] == [
        f"  MIG 1c.3g.20gb  Device  0: (UUID: {first.uuid})",
        f"  MIG 1c.3g.20gb  Device  1: (UUID: {second.uuid})",
    ]
    assert lines[3].startswith("GPU 1: ")


def test_tells_its_versions(programs: Programs) -> None:
    code, lines = programs.smi("--version")
    assert code == 0
    assert lines[0] == f"NVIDIA-SMI version  : {programs.machine.state.driver_version}"
    assert lines[-1] == f"CUDA Version        : {programs.machine.state.cuda_driver_version}"


@pytest.mark.parametrize("by", ["0", "uuid", FIRST, "0000:07:00.0"])
@pytest.mark.parametrize("word", ["EXCLUSIVE_PROCESS", "3"])
def test_sets_the_compute_mode_of_the_gpu_that_is_named(programs: Programs, by: str, word: str) -> None:
    name = programs.uuid(0) if by == "uuid" else by
    said = [f"Set compute mode to EXCLUSIVE_PROCESS for GPU {FIRST}.", "All done."]
    assert programs.smi("-i", name, "-c", word) == (0, said)
    assert modes(programs) == ["exclusive-process"] + ["default"] * 7


def test_a_mode_that_a_guest_cannot_have_is_only_warned_about(tmp_path: Path) -> None:
    guest = Programs(tmp_path, "a100-vgpu-guest")
    code, lines = guest.smi("-c", "EXCLUSIVE_PROCESS")
    assert code == 0
    assert lines[0].startswith("Setting compute mode to EXCLUSIVE_PROCESS is not supported for GPU ")
    assert lines[1:] == ["Treating as warning and moving on.", "All done."]
    assert set(modes(guest)) == {"default"}


def test_a_mode_without_the_right_to_it_ends_early_with_the_code_of_nvml(programs: Programs) -> None:
    programs.machine.fail("set_compute_mode", gpu=1, code=Code.NO_PERMISSION)
    code, lines = programs.smi("-c", "EXCLUSIVE_PROCESS")
    assert code == Code.NO_PERMISSION
    assert lines[1].endswith(": Insufficient Permissions")
    assert modes(programs) == ["exclusive-process"] + ["default"] * 7


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


def test_a_gpu_before_volta_has_no_time_slice(tmp_path: Path) -> None:
    text = (MACHINES / "t4.yaml").read_text()
    old = text.replace("Turing", "Pascal").replace('"7.5"', '"6.1"')
    assert old.count("Pascal") == 1
    assert old.count('"6.1"') == 1
    (tmp_path / "p4.yaml").write_text(old)
    code, _ = Programs(tmp_path, str(tmp_path / "p4.yaml")).smi("compute-policy", "--set-timeslice=0")
    assert code == Code.NOT_SUPPORTED


def test_a_time_slice_that_fails_after_its_work_is_set_all_the_same(programs: Programs) -> None:
    programs.machine.fail_after("set_time_slice", gpu=0, code=Code.UNKNOWN, times=1)
    assert programs.smi("compute-policy", "-i", "0", "--set-timeslice=1")[0] == OTHER_ERROR
    assert time_slices(programs)[0] == 1


@pytest.mark.parametrize(
    "words",
    [
        ("-c", "EXCLUSIVE_THREAD"),
        ("--no-such",),
        ("compute-policy", "--set-timeslice=4"),
        ("compute-policy",),
    ],
)
def test_arguments_that_make_no_sense_end_with_2(programs: Programs, words: tuple[str, ...]) -> None:
    before = programs.machine.state
    assert programs.smi(*words)[0] == Code.INVALID_ARGUMENT
    assert programs.machine.state == before


def test_a_gpu_that_is_not_there_a_lost_one_and_no_driver_have_codes_of_their_own(programs: Programs) -> None:
    assert programs.smi("-i", "8", "-c", "0") == (Code.NOT_FOUND, ["No devices were found"])
    programs.machine.lose(0)
    assert programs.smi("-L")[0] == Code.GPU_IS_LOST
    programs.machine.driver_gone()
    code, lines = programs.smi("-L")
    assert code == Code.DRIVER_NOT_LOADED
    assert "couldn't communicate with the NVIDIA driver" in lines[0]


def test_a_lost_gpu_one_that_is_not_there_and_one_with_a_process_are_not_reset(programs: Programs) -> None:
    programs.machine.lose(0)
    assert programs.smi("--gpu-reset", "-i", "0")[0] == Code.GPU_IS_LOST
    assert programs.smi("--gpu-reset", "-i", "8") == (Code.NOT_FOUND, ["No devices were found"])
    programs.machine.set_processes(1, (4711,))
    assert programs.smi("--gpu-reset", "-i", "1")[0] == Code.IN_USE
    programs.machine.driver_gone()
    assert programs.smi("--gpu-reset", "-i", "2")[0] == Code.DRIVER_NOT_LOADED


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
