"""One bash session runs the blocks of a page: what they set stays, and one that fails ends it."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.scenarios.session import Session, SessionOver

LONG_SECONDS = 30.0


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    folder = tmp_path / "session"
    folder.mkdir()
    environment = {"PATH": os.environ["PATH"], "GIVEN": "from outside"}
    with Session(folder, tmp_path, environment) as made:
        yield made


def test_a_block_prints_to_both_streams_in_one(session: Session) -> None:
    ran = session.run("echo one\necho two >&2\necho three", LONG_SECONDS)
    assert (ran.exits, ran.printed) == (0, "one\ntwo\nthree\n")


def test_variables_functions_and_the_folder_stay(session: Session, tmp_path: Path) -> None:
    session.run("name=five\nsay() { echo said $1; }\nmkdir below\ncd below", LONG_SECONDS)
    ran = session.run('say "$name"\npwd', LONG_SECONDS)
    assert ran.printed == f"said five\n{tmp_path}/below\n"


def test_it_has_the_environment_that_it_is_given_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OURS", "1")
    with Session(tmp_path, tmp_path, {"PATH": os.environ["PATH"], "GIVEN": "2"}) as session:
        assert session.run('echo "${OURS-none} $GIVEN"', LONG_SECONDS).printed == "none 2\n"


def test_stdin_is_empty(session: Session) -> None:
    assert session.run("cat", LONG_SECONDS).printed == ""
    assert session.run("echo still here", LONG_SECONDS).printed == "still here\n"


@pytest.mark.parametrize(
    ("script", "exits", "line"),
    [
        ("true\nfalse\necho no", 1, 2),
        ("false | cat\necho no", 1, 1),
        ("\nls /there/is/no/such\necho no", 2, 2),
        ("exit 7\necho no", 7, None),
        ("say() {\n  false\n}\nsay\necho no", 1, 2),
        ('echo "$undefined"\necho no', 1, None),
    ],
)
def test_a_block_that_fails_ends_the_session_at_that_line(
    session: Session, script: str, exits: int, line: int | None
) -> None:
    ran = session.run(script, LONG_SECONDS)
    assert (ran.exits, ran.failed_at) == (exits, line)
    assert "no\n" not in ran.printed
    with pytest.raises(SessionOver):
        session.run("echo more", LONG_SECONDS)


def test_what_a_block_turned_off_is_on_again_for_the_next(session: Session) -> None:
    assert session.run("set +eu\nfalse\necho on", LONG_SECONDS).printed == "on\n"
    assert session.run("false\necho no", LONG_SECONDS).exits == 1


def test_a_block_apart_may_fail_and_leaves_nothing(session: Session) -> None:
    session.run("name=five", LONG_SECONDS)
    ran = session.run('echo "$name"\nname=six\ncd /\nfalse\necho no', LONG_SECONDS, apart=True)
    assert (ran.exits, ran.printed, ran.failed_at) == (1, "five\n", 4)
    assert session.run('echo "$name"', LONG_SECONDS).printed == "five\n"


def test_a_block_that_takes_too_long_is_ended_with_all_that_it_started(
    session: Session, tmp_path: Path
) -> None:
    ran = session.run(f"sleep 1000 &\necho $! > {tmp_path}/pid\necho so far\nsleep 1000", 1.0)
    assert (ran.exits, ran.printed) == (None, "so far\n")
    assert is_gone((tmp_path / "pid").read_text())
    with pytest.raises(SessionOver):
        session.run("echo more", LONG_SECONDS)


def test_what_a_block_leaves_running_ends_with_the_session(tmp_path: Path) -> None:
    with Session(tmp_path, tmp_path, {"PATH": os.environ["PATH"]}) as session:
        session.run(f"sleep 1000 &\necho $! > {tmp_path}/pid", LONG_SECONDS)
        assert not is_gone((tmp_path / "pid").read_text(), 0)
    assert is_gone((tmp_path / "pid").read_text())


def test_the_end_is_noticed_while_something_it_started_lives(session: Session) -> None:
    ran = session.run("(sleep 1000; true) &\nexit 4", LONG_SECONDS)
    assert (ran.exits, ran.seconds < LONG_SECONDS) == (4, True)


def is_gone(pid: str, wait_seconds: float = LONG_SECONDS) -> bool:
    """Whether a process ends within this time; its parent may not have asked for its status yet."""
    try:
        handle = os.pidfd_open(int(pid))
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], wait_seconds)[0])
    finally:
        os.close(handle)
