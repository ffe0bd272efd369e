"""GPUs are reset by the node's own nvidia-smi, and its words say why not."""

from pathlib import Path

import pytest

from kubeletplugin.reports.healing.gpu_reset import GpuReset
from tests.fakegpu.programs import Programs
from tests.gpus import NodeIncomplete, PciAddress
from tests.plugin import DriverPrograms, InstalledDriver, ProgramHangs, ResetFailed


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    """Four A30, all of them in another compute mode, which no reset leaves."""
    found = Programs(tmp_path, "a30-quad")
    nvml = found.machine.nvml()
    nvml.init()
    for pci in found.machine.state.gpus:
        nvml.device_by_pci(pci).set_compute_mode("prohibited")
    nvml.shutdown()
    return found


def resets(programs: Programs, timeout_seconds: float = 30.0) -> GpuReset:
    driver = InstalledDriver.below(programs.root)
    return GpuReset(DriverPrograms(driver, programs.root.with_name("libraries")), timeout_seconds)


def was_reset(programs: Programs) -> list[bool]:
    return [gpu.compute_mode == "default" for gpu in programs.machine.state.gpus.values()]


def gpus(programs: Programs, *indexes: int) -> list[PciAddress]:
    return [programs.machine.pci(index) for index in indexes]


def test_those_that_are_named_are_reset(programs: Programs) -> None:
    resets(programs).reset(gpus(programs, 1, 2))
    assert was_reset(programs) == [False, True, True, False]


def test_while_one_of_them_is_open_none_is_reset(programs: Programs) -> None:
    nvml = programs.machine.nvml()
    nvml.init()
    nvml.device_by_index(1)
    try:
        with pytest.raises(ResetFailed, match="In use by another client"):
            resets(programs).reset(gpus(programs, 1, 2))
    finally:
        nvml.shutdown()
    assert was_reset(programs) == [False] * 4


def test_a_program_that_hangs_and_one_that_is_not_there_are_told_apart(programs: Programs) -> None:
    program = programs.root / "usr/bin/nvidia-smi"
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    with pytest.raises(ProgramHangs):
        resets(programs, 0.1).reset(gpus(programs, 0))
    program.unlink()
    with pytest.raises(NodeIncomplete):
        resets(programs).reset(gpus(programs, 0))
