"""``gpuctl verify`` as it is called: exit codes, outputs and files."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fakegpu.machine.fake_machine import FakeMachine
from gpuctl.__main__ import commands
from tests.gpuctl.approved import approve
from tests.gpuctl.documents import read_document

MACHINE = "t4"


def verify(*arguments: str) -> Result:
    return CliRunner().invoke(commands, ["verify", *arguments], catch_exceptions=False)


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    """A machine whose state other processes can open, by its flag."""
    return FakeMachine.open(f"fake:{MACHINE}@{tmp_path / 'state.json'}")


def nvml_of(machine: FakeMachine) -> tuple[str, str]:
    assert machine.flag is not None
    return "--nvml", machine.flag


def by_check(ran: Result) -> dict[str, Any]:
    return {one["check"]: one for one in read_document(ran.stdout, "VerifyReport")["results"]}


@pytest.mark.parametrize("name", ["t4", "gh200", "a100-vgpu-guest", "vgpu-and-passthrough"])
def test_what_is_said_about_a_machine_that_nothing_is_changed_of(name: str) -> None:
    ran = verify("--nvml", f"fake:{name}", "-o", "wide")

    approve(f"verify/{name}", re.sub(rf"{tempfile.gettempdir()}/[\w.-]+/", "/FOLDER/", ran.stdout))


def test_a_healthy_machine_passes_all_checks_and_the_report_is_written(
    machine: FakeMachine, tmp_path: Path
) -> None:
    ran = verify(*nvml_of(machine), "-o", "json", "--to", str(tmp_path / "report.json"))

    assert ran.exit_code == 0, ran.output
    results = by_check(ran)
    assert {one["place"] for one in results.values()} == {"node", "cuda"}
    assert results["cuda-probe"]["status"] == "ok"
    assert read_document((tmp_path / "report.json").read_text(), "VerifyReport")["fake"] is True
    assert machine.uuid(machine.pci(0)) not in ran.stdout


def test_a_fault_is_named(machine: FakeMachine) -> None:
    machine.fail("memory_bytes", gpu=0)

    ran = verify(*nvml_of(machine))

    assert ran.exit_code == 1
    assert "nvmlDeviceGetMemoryInfo" in ran.stdout
    assert "not everything holds on this machine" in ran.stdout


def test_without_a_gpu_or_a_driver_there_is_nothing_to_verify(tmp_path: Path) -> None:
    ran = verify("--nvml", "real", "--driver-root", str(tmp_path), "--sysfs-root", str(tmp_path))

    assert ran.exit_code == 3
    assert "there is nothing to verify" in ran.stderr
    assert not ran.stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--nvml", f"fake:{MACHINE}", "--to", "."), "exists already"),
        (("--nvml", f"fake:{MACHINE}", "--to", "missing/report"), "make it first"),
        (("--restore", "--to", "report"), "--restore only restores"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_checked(
    words: tuple[str, ...], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = verify(*words)

    assert ran.exit_code == 2
    assert says in ran.stderr
