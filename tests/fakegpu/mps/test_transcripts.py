"""The pretend daemon answers as real ones did, and the driver reads that, as far as it is written down."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from fakegpu.mps.record import record
from fakegpu.mps.replay import install_replay
from fakegpu.mps.transcript import Run, Transcript, read_transcript, write_transcript
from kubeletplugin.sharing.mps.processes import Control, limit_commands, sort_answers
from tests.fakegpu.programs import Programs
from tests.gpus import ClaimBlocked
from tests.kubeletplugin.fake_kubelet import short_folder
from tests.plugin import DaemonFolder, DriverPrograms, InstalledDriver, MpsDaemon

TRANSCRIPTS = sorted((Path(__file__).resolve().parents[2] / "vectors" / "mps").glob("*.jsonl"))
CONTROL = "usr/bin/nvidia-cuda-mps-control"
START = Run(("-d",), {"CUDA_VISIBLE_DEVICES": "$GPU0"})

each = pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)


def gpus(programs: Programs) -> list[str]:
    return [programs.uuid(index) for index in range(8)]


def asked(programs: Programs, *runs: Run) -> Transcript:
    """What the pretend daemon answers."""
    questions = Transcript("documented", "a test", "", runs)
    return record(programs.root / CONTROL, questions, gpus(programs), "580.65.06")


@each
def test_a_transcript_says_where_it_comes_from(path: Path) -> None:
    transcript = read_transcript(path)
    assert transcript.source
    assert bool(transcript.driver) == (transcript.origin == "recorded")
    assert (path.stem == "documented") == (transcript.origin == "documented")


@each
def test_the_pretend_daemon_answers_as_it_is_written_down(programs: Programs, path: Path) -> None:
    written = read_transcript(path)
    found = asked(programs, *written.runs)
    wrong = [(run, got) for run, got in zip(written.runs, found.runs, strict=True) if not run.fits(got)]
    assert wrong == []


@each
def test_the_driver_tells_each_answer_by_its_shape(path: Path) -> None:
    for run in read_transcript(path).runs:
        if len(run.commands) != 1 or not run.lines:
            continue
        answers = sort_answers(tuple(line.replace("$PID", "17") for line in run.lines))
        (command,) = run.commands
        if "percentage" in command:
            assert (len(answers.percentages), answers.words) == (len(run.lines), ())
        elif "mem_limit" in command:
            assert (len(answers.amounts), answers.words) == (len(run.lines), ())


def test_what_is_recorded_is_read_again_and_names_no_gpu_and_no_process(
    programs: Programs, tmp_path: Path
) -> None:
    commands = (("start_server -uid 0",), ("get_server_list",), ("get_device_client_list",))
    found = asked(programs, START, *(Run(commands=one) for one in commands))
    path = tmp_path / "recorded.jsonl"
    path.write_text(write_transcript(found))
    again = read_transcript(path)
    assert all(
        one.fits(other) and one.is_same_question(other)
        for one, other in zip(again.runs, found.runs, strict=True)
    )
    assert (again.origin, again.driver) == ("recorded", "580.65.06")
    assert again.runs[2].lines == ("$PID",)
    assert "GPU-" not in path.read_text()
    assert again.runs[0].files is not None
    assert again.runs[0].files["control_privileged"] == "srwxr-xr-x"


def limits_replayed(programs: Programs, tmp_path: Path, change: str = "") -> None:
    """Have the driver set limits with the answers that the pretend daemon gave, one line of them changed."""
    daemon = MpsDaemon("gpu", (programs.uuid(0),), False, 25, (6144,))
    batch = Run(commands=(*limit_commands(daemon), "get_server_list"))
    found = asked(programs, START, batch)
    if change:
        lines = (*(found.runs[1].lines or ())[:-1], change)
        found = replace(found, runs=(found.runs[0], replace(found.runs[1], lines=lines)))
    path = tmp_path / "recorded.jsonl"
    path.write_text(write_transcript(found))
    install_replay(programs.root / CONTROL, path, gpus(programs))
    found_programs = DriverPrograms(InstalledDriver.below(programs.root), tmp_path / "libraries")
    with short_folder() as folder:
        control = Control(found_programs, DaemonFolder(folder, "gpu"), 20.0)
        control.set_limits(daemon, time.monotonic() + 20.0)


def test_the_driver_sets_limits_with_the_answers_that_were_recorded(
    programs: Programs, tmp_path: Path
) -> None:
    limits_replayed(programs, tmp_path)


def test_the_driver_sees_an_answer_that_is_not_what_it_set(programs: Programs, tmp_path: Path) -> None:
    with pytest.raises(ClaimBlocked, match="has a pinned memory limit of 7G where 6144M was set"):
        limits_replayed(programs, tmp_path, "7G")
