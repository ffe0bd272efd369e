"""Time-slices are set with the node's own nvidia-smi, and a GPU that cannot says why."""

import time
from pathlib import Path

import pytest

from kubeletplugin.devices.host.driver_programs import KILL_SECONDS
from kubeletplugin.kubelet.wire.claim_call import answered_by
from kubeletplugin.sharing.time_slices import Interval, TimeSlices
from tests.fakegpu.programs import Programs
from tests.plugin import DriverPrograms, InstalledDriver, ProgramHangs


def found(programs: Programs) -> DriverPrograms:
    return DriverPrograms(InstalledDriver.below(programs.root), programs.root.with_name("libraries"))


@pytest.mark.parametrize(("number", "interval"), [(0, "Default"), (3, "Long")])
def test_an_interval_is_set_on_one_gpu_and_read_back(tmp_path: Path, number: int, interval: Interval) -> None:
    programs = Programs(tmp_path, "a30-quad")
    slices = TimeSlices(found(programs))
    assert slices.set(programs.uuid(1), "Medium") is None
    assert slices.set(programs.uuid(1), interval) is None
    assert [gpu.time_slice for gpu in programs.machine.state.gpus.values()] == [0, number, 0, 0]
    assert slices.get(programs.uuid(1)) == interval
    assert slices.get(programs.uuid(0)) == "Default"
    assert slices.get("GPU-none") is None


def test_words_that_are_not_understood_say_nothing_of_the_interval(tmp_path: Path) -> None:
    programs = Programs(tmp_path, "a30-quad")
    (programs.root / "usr/bin/nvidia-smi").write_text("#!/bin/sh\necho '| 0 Timeslice Endless |'\n")
    assert TimeSlices(found(programs)).get(programs.uuid(0)) is None
    (tmp_path / "guest").mkdir()
    guest = Programs(tmp_path / "guest", "a100-vgpu-guest")
    assert TimeSlices(found(guest)).get(guest.uuid(0)) is None
    reason = TimeSlices(found(guest)).set(guest.uuid(0), "Short")
    assert reason is not None
    assert "Not Supported" in reason


def test_an_nvidia_smi_that_hangs_is_killed(tmp_path: Path) -> None:
    programs = Programs(tmp_path, "a30-quad")
    (programs.root / "usr/bin/nvidia-smi").write_text("#!/bin/sh\nexec tail -f /dev/null\n")
    # What is left of the kubelet's call, without the time that it takes to kill it.
    left = answered_by(time.monotonic() + KILL_SECONDS + 0.2)
    with left, pytest.raises(ProgramHangs, match="nvidia-smi did not end within 0 s"):
        TimeSlices(found(programs)).set(programs.uuid(0), "Short")
