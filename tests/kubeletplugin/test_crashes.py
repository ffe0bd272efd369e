"""The process may end at any moment: the call is replayed, and nothing is lost, doubled or left over."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.kubeletplugin.fake_node import STEPS_OF_PREPARE, STEPS_OF_UNPREPARE, Crash, FakeNode

SCRIPT = Path(__file__).with_name("crashing_process.py")
UID = "0f5b2a52-6b35-4d0e-9d4d-6d0d8d2f6c11"
ENDED = 70


@pytest.mark.parametrize("step", STEPS_OF_PREPARE)
def test_a_prepare_that_ended_after_a_step_is_finished_by_its_replay(tmp_path: Path, step: str) -> None:
    node = FakeNode(tmp_path)
    ref = node.claim("train", 0, 1)
    node.crash_after = step
    with pytest.raises(Crash):
        node.prepare(ref)

    node.restart()

    assert len(node.prepare(ref)) == 2
    assert node.spec_path(ref).exists()
    node.unprepare(ref)
    assert list(node.cdi.iterdir()) == []
    node.prepare(node.claim("next", 0, 1))
    node.stop()


@pytest.mark.parametrize("step", STEPS_OF_PREPARE)
def test_a_prepare_that_ended_after_a_step_can_be_unprepared_instead(tmp_path: Path, step: str) -> None:
    node = FakeNode(tmp_path)
    ref = node.claim("train", 0)
    node.crash_after = step
    with pytest.raises(Crash):
        node.prepare(ref)

    node.restart()
    node.unprepare(ref)

    assert list(node.cdi.iterdir()) == []
    node.prepare(node.claim("next", 0))
    node.stop()


@pytest.mark.parametrize("step", STEPS_OF_UNPREPARE)
def test_an_unprepare_that_ended_after_a_step_is_finished_by_its_replay(tmp_path: Path, step: str) -> None:
    node = FakeNode(tmp_path)
    ref = node.claim("train", 0)
    node.prepare(ref)
    node.crash_after = step
    with pytest.raises(Crash):
        node.unprepare(ref)

    node.restart()
    node.unprepare(ref)

    assert list(node.cdi.iterdir()) == []
    node.prepare(node.claim("next", 0))
    node.stop()


def _run(folder: Path, operation: str, changes: int) -> int:
    """Run one operation in a process that ends before its n-th change of the disk; its exit code."""
    command = [sys.executable, str(SCRIPT), str(folder), operation, UID, str(changes)]
    return subprocess.run(command, check=False, timeout=60).returncode


@pytest.mark.parametrize("operation", ["prepare", "unprepare"])
def test_a_real_process_may_end_before_any_change_of_the_disk(tmp_path: Path, operation: str) -> None:
    """The kernel sees the process end between two system calls, so no cleanup of Python's runs."""
    ends = 0
    for changes in range(1, 40):
        folder = tmp_path / f"{operation}-{changes}"
        folder.mkdir()
        node = FakeNode(folder)
        ref = node.claim("train", 0, uid=UID)
        if operation == "unprepare":
            node.prepare(ref)
        node.stop()

        code = _run(folder, operation, changes)

        node.restart()
        assert len(node.prepare(ref)) == 1
        assert node.spec_path(ref).exists()
        node.unprepare(ref)
        assert list(node.cdi.glob("*.json")) == []
        node.prepare(node.claim("next", 0))
        node.stop()
        if code == 0:
            break
        assert code == ENDED
        ends += 1
    assert ends >= {"prepare": 6, "unprepare": 3}[operation], "every write, rename and removal is one end"
