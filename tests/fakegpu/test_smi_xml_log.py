"""The fake nvidia-smi prints the XML log of the machine as it is, whatever its NVML answers."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from driver.nvml.api import Code
from fakegpu.driver_files.driver_root import build_device_nodes
from fakegpu.machine.capabilities import VISIBLE_NODES
from fakegpu.machine.fake_machine import FakeMachine
from fakegpu.smi.program import main


class Log:
    """A machine, and its log."""

    def __init__(self, folder: Path, name: str, capture: pytest.CaptureFixture[str]) -> None:
        self._folder, self._capture = folder, capture
        self.machine = FakeMachine.open(f"fake:{name}@{folder / 'state.json'}")
        build_device_nodes(folder / "root", self.machine)

    def print(self, *words: str) -> tuple[int, str]:
        arguments = [str(self.machine.flag), str(self._folder / "root"), "nvidia-smi", *words]
        code = main(arguments)
        return code, self._capture.readouterr().out

    def gpus(self, *words: str) -> list[ET.Element]:
        code, text = self.print("-q", "-x", *words)
        assert code == 0
        return ET.fromstring(text).findall("gpu")  # noqa: S314 - the text of the fake


@pytest.fixture
def log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Log:
    return Log(tmp_path, "dgx-a100", capsys)


def test_faults_of_nvml_do_not_change_the_log(log: Log) -> None:
    log.machine.fail("minor")
    log.machine.fail("memory_bytes")
    found = log.gpus()
    assert [gpu.findtext("minor_number") for gpu in found] == list("01234567")
    assert {gpu.findtext("fb_memory_usage/total") for gpu in found} == {"40960 MiB"}


def test_a_container_sees_its_gpus_alone_and_words_choose_among_them(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VISIBLE_NODES, "/dev/nvidia2:/dev/nvidia5")
    assert [gpu.findtext("minor_number") for gpu in log.gpus()] == ["2", "5"]
    monkeypatch.delenv(VISIBLE_NODES)
    assert [gpu.findtext("minor_number") for gpu in log.gpus("-i", "3")] == ["3"]
    assert log.print("-q", "-x", "-i", "8") == (Code.NOT_FOUND, "No devices were found\n")


def test_a_lost_gpu_and_half_a_command_end_without_a_log(log: Log) -> None:
    assert log.print("-q")[0] == log.print("-x")[0] == Code.INVALID_ARGUMENT
    log.machine.lose(3)
    code, text = log.print("-q", "-x")
    assert code == Code.GPU_IS_LOST
    assert text.startswith("Unable to determine the device handle for GPU")
