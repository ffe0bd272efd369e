"""``gpuctl verify`` as it is called: exit codes, outputs and files."""

import re
import tempfile
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.clusters import commands
from tests.gpuctl.approved import approve
from tests.gpuctl.documents import read_document
from tests.gpus import FakeMachine

MACHINE = "t4"


def verify(*arguments: str) -> Result:
    return CliRunner().invoke(commands, ["verify", *arguments], catch_exceptions=False)


@pytest.mark.parametrize("name", ["t4", "gh200", "a100-vgpu-guest", "vgpu-and-passthrough"])
def test_what_is_said_about_a_machine_that_nothing_is_changed_of(name: str) -> None:
    ran = verify("--nvml", f"fake:{name}", "-o", "wide")

    approve(f"verify/{name}", re.sub(rf"{tempfile.gettempdir()}/[\w.-]+/", "/FOLDER/", ran.stdout))


def test_the_report_of_a_healthy_machine_is_written_without_its_uuids(tmp_path: Path) -> None:
    machine = FakeMachine.open(MACHINE)
    ran = verify("--nvml", f"fake:{MACHINE}", "-o", "json", "--to", str(tmp_path / "report.json"))

    assert ran.exit_code == 0, ran.output
    read_document(ran.stdout, "VerifyReport")
    assert read_document((tmp_path / "report.json").read_text(), "VerifyReport")["fake"] is True
    assert machine.uuid(machine.pci(0)) not in ran.stdout


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
