"""The released version's locks keep today's out, and each notices that the other lives: two ways round."""

from __future__ import annotations

import select
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pytest

from envtest.client.shipped import PACKAGE_ROOT
from envtest.former import RELEASED, former_version, python_command, python_environment

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAM = """
import sys
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
locks = import_module(sys.argv[1])
folder = Path(sys.argv[2])
keyed, peers, held = locks.KeyedLocks(folder / "locks"), None, ExitStack()
print("ready", flush=True)
for line in sys.stdin:
    word, _, name = line.strip().partition(" ")
    answer = word
    if word == "take":
        key = locks.gpu_key(name) if name.startswith("0000:") else locks.claim_key(name)
        held.enter_context(keyed.holding([key], 30))
    elif word == "leave":
        held.close()
    elif word == "live":
        peers = import_module(sys.argv[3]).Peers(folder / "instances")
        may_have_written = peers.watch() if hasattr(peers, "watch") else peers.may_have_written
        may_have_written()
    elif word == "look":
        answer = str(may_have_written())
    print(answer, flush=True)
"""
MODULES = {
    "released": ("kubeletplugin.locks", "kubeletplugin.locks"),
    "today": ("kubeletplugin.journal.locks", "kubeletplugin.journal.peers"),
}
BOTH_WAYS = pytest.mark.parametrize(("one", "other"), [("released", "today"), ("today", "released")])
WAIT_SECONDS, SHORTLY_SECONDS = 30.0, 0.1


class Instance:
    """A process with the locks of a version over one folder; killed when the block ends."""

    def __init__(self, version: str, folder: Path) -> None:
        packages = former_version(RELEASED) if version == "released" else PACKAGE_ROOT
        self._process = subprocess.Popen(
            python_command("-c", PROGRAM, MODULES[version][0], str(folder), MODULES[version][1]),
            env=python_environment(packages),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.answers() == "ready"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def tell(self, command: str) -> None:
        """Have it do something, without waiting."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n".encode())
        self._process.stdin.flush()

    def is_busy(self) -> bool:
        """Whether it has not done within a short while what it was told."""
        return not self._has_answered(SHORTLY_SECONDS)

    def answers(self) -> str:
        """What it says once it has done what it was told."""
        assert self._has_answered(WAIT_SECONDS), "it did not answer"
        assert self._process.stdout is not None
        return self._process.stdout.readline().decode().strip()

    def does(self, command: str) -> str:
        """Have it do something and wait for its answer."""
        self.tell(command)
        return self.answers()

    def _has_answered(self, seconds: float) -> bool:
        assert self._process.stdout is not None
        return bool(select.select([self._process.stdout], [], [], seconds)[0])


@pytest.fixture
def started() -> Iterator[ExitStack]:
    with ExitStack() as instances:
        yield instances


@BOTH_WAYS
@pytest.mark.parametrize(
    "key", ["0000:1b:00.0", "29f6d1e8-be70-5341-bb0d-b39d81d75f03"], ids=["GPU", "claim"]
)
def test_what_one_works_on_the_other_waits_for(
    started: ExitStack, tmp_path: Path, one: str, other: str, key: str
) -> None:
    first, second = (started.enter_context(Instance(version, tmp_path)) for version in (one, other))
    assert first.does(f"take {key}") == "take"

    second.tell(f"take {key}")

    assert second.is_busy()
    assert first.does("leave") == "leave"
    assert second.answers() == "take"


@BOTH_WAYS
def test_the_other_is_noticed_while_it_lives_and_once_after(tmp_path: Path, one: str, other: str) -> None:
    with Instance(one, tmp_path) as first:
        first.does("live")
        assert first.does("look") == "False"
        with Instance(other, tmp_path) as second:
            second.does("live")
            assert [first.does("look") for _ in range(2)] == ["True", "True"]
            assert second.does("look") == "True"
        assert [first.does("look") for _ in range(2)] == ["True", "False"]
