"""Every recording of a real node is a test: its fake machine is what the node was."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from fakegpu.mps.record import record
from fakegpu.mps.transcript import read_transcript
from tests.clusters import commands
from tests.fakegpu.programs import Programs
from tests.fakegpu.recorded.comparing import differences
from tests.gpuctl.verify.subjects import machine_in, subject_of
from tests.gpus import FakeMachine
from tools.hardware.recording import MACHINE, MPS, write_recording

RECORDED = sorted(path.parent for path in Path(__file__).parent.glob(f"*/{MACHINE}"))


def check_recording(folder: Path, tmp_path: Path) -> None:
    """A recording's machine opens, is planned, and answers as the node did."""
    file = str(folder / MACHINE)
    assert FakeMachine.open(f"fake:{file}").spec.slots
    for words in (["plan", "--machines", file], ["plan", "--machine", file]):
        done = CliRunner().invoke(commands, words)
        assert done.exit_code == 0, done.output
    assert list(differences(folder)) == []
    if (folder / MPS).exists():
        check_transcript(folder, tmp_path)


def check_transcript(folder: Path, tmp_path: Path) -> None:
    """The fake daemon answers the recorded questions as the real one did."""
    written = read_transcript(folder / MPS)
    tmp_path.mkdir()
    programs = Programs(tmp_path, str(folder / MACHINE))
    try:
        uuids = [programs.uuid(number) for number in range(len(programs.machine.spec.slots))]
        control = programs.root / "usr/bin/nvidia-cuda-mps-control"
        found = record(control, written, uuids, written.driver)
    finally:
        programs.end()
    wrong = [(run, got) for run, got in zip(written.runs, found.runs, strict=True) if not run.fits(got)]
    assert wrong == []


@pytest.mark.parametrize("folder", [*RECORDED, None], ids=lambda folder: folder.name if folder else "fake")
def test_a_recorded_machine_is_what_the_node_was(folder: Path | None, tmp_path: Path) -> None:
    if folder is None:
        # So that the test is right when the first real recording comes.
        folder = tmp_path / "recorded"
        write_recording(subject_of(tmp_path, machine_in(tmp_path, "a30-quad")), folder, may_change=True)
        assert (folder / MPS).exists()
    check_recording(folder, tmp_path / "again")
