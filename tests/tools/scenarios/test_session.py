"""One bash session runs the blocks of a page: what they set stays, and one that fails ends it."""

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


def test_a_block_that_takes_too_long_is_ended_with_all_that_it_started(
    session: Session, tmp_path: Path
) -> None:
    ran = session.run(f"sleep 1000 &\necho $! > {tmp_path}/pid\necho so far\nsleep 1000", 1.0)
    assert (ran.exits, ran.printed) == (None, "so far\n")
    assert is_gone((tmp_path / "pid").read_text())
    with pytest.raises(SessionOver):
        session.run("echo more", LONG_SECONDS)


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
