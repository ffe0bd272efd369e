"""What the plugin relies on when it asks for MPS daemons: the supervisor and the tests' fake do the same."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.gpus import ClaimBlocked, ClaimRefused
from tests.kubeletplugin.fake_sharing import FakeMps
from tests.kubeletplugin.sharing.mps.scene import MpsScene, served
from tests.plugin import MpsClient, MpsDaemon, MpsState

FIRST, SECOND = "gpu-0000-01-00-0", "gpu-0000-02-00-0"
PLAIN = MpsDaemon(FIRST, ("GPU-1",), active_thread_percentage=25, pinned_memory_mib=(6144,))


@dataclass(frozen=True, slots=True)
class Subject:
    """One of the two: how it is asked, and what tests look at.

    ``identity(name)`` differs from one start of a daemon to the next, and is None while none runs.
    ``refuse_once()`` has the next start or change of limits fail; ``go_silent()`` ends the supervisor.
    """

    client: MpsClient
    gpus: tuple[str, str]
    identity: Callable[[str], object]
    limits: Callable[[str], tuple[float, int]]
    refuse_once: Callable[[], None]
    go_silent: Callable[[], None]

    def daemon(self, **changed: Any) -> MpsDaemon:
        """The one of the first GPU, changed so."""
        return replace(PLAIN, devices=self.gpus[:1], **changed)

    def told(self) -> tuple[MpsState, ...] | None:
        """What is told of the daemons at first; the client ends with it."""
        heard: list[tuple[MpsState, ...] | None] = []

        def once(states: tuple[MpsState, ...] | None) -> None:
            heard.append(states)
            self.client.close()

        self.client.follow(once)
        return heard[0]


@contextmanager
def the_fake(_folder: Path) -> Iterator[Subject]:
    fake = FakeMps()

    def limits(name: str) -> tuple[float, int]:
        daemon = fake.running[name]
        return float(daemon.active_thread_percentage), (daemon.pinned_memory_mib or (0,))[0]

    yield Subject(
        fake,
        ("GPU-1", "GPU-2"),
        lambda name: fake.starts[name] if name in fake.running else None,
        limits,
        lambda: fake.failures.append(ClaimBlocked("not now", "wait")),
        lambda: setattr(fake, "silent", True),
    )


@contextmanager
def the_supervisor(folder: Path) -> Iterator[Subject]:
    """The supervisor behind its socket, with the programs of a pretend machine."""
    with closing(MpsScene(folder)) as scene, served(scene, scene.supervisor()) as server:

        def limits(name: str) -> tuple[float, int]:
            percentage, memory = scene.limits(name)
            return float(percentage), int(memory[:-1]) * (1024 if memory.endswith("G") else 1)

        def refuse_once() -> None:
            for command in ("start", "set_default_active_thread_percentage"):
                scene.machine.spoil_mps("refuse", command, "not now", times=1)

        gpus = scene.uuid(0), scene.uuid(1)
        with closing(MpsClient(server.path)) as client:
            yield Subject(client, gpus, scene.pid, limits, refuse_once, server.stop)


@pytest.fixture(params=[the_fake, the_supervisor], ids=["fake", "supervisor"])
def mps(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Subject]:
    with request.param(tmp_path) as subject:
        yield subject


def test_daemons_run_beside_each_other_until_they_are_stopped(mps: Subject) -> None:
    mps.client.ensure(mps.daemon())
    before = mps.identity(FIRST)
    assert before is not None
    other = MpsDaemon(SECOND, mps.gpus[1:], active_thread_percentage=50, pinned_memory_mib=(1024,))
    mps.client.ensure(other)
    assert (mps.limits(FIRST), mps.limits(SECOND)) == ((25.0, 6144), (50.0, 1024))
    for _ in range(2):
        mps.client.stop(FIRST)
        assert mps.identity(FIRST) is None
    mps.client.ensure(mps.daemon())
    assert mps.identity(FIRST) not in (None, before)
    mps.client.stop(FIRST)
    assert mps.told() == (MpsState(SECOND, running=True),)


def test_a_daemon_is_started_anew_only_where_no_command_makes_it_what_it_shall_be(mps: Subject) -> None:
    """Each wish follows the one before it."""
    wishes: tuple[tuple[dict[str, Any], bool], ...] = (
        ({"pinned_memory_mib": ()}, True),
        ({"pinned_memory_mib": (6144,)}, False),
        ({}, False),
        ({"active_thread_percentage": 50}, False),
        ({"pinned_memory_mib": (512,)}, False),
        ({"pinned_memory_mib": (8192,)}, False),
        ({"pinned_memory_mib": (0,)}, True),
        ({"multi_user": True}, True),
        ({"devices": mps.gpus, "pinned_memory_mib": (6144, 1024)}, True),
        ({"devices": mps.gpus[1:], "pinned_memory_mib": ()}, True),
    )
    wanted, before = mps.daemon(), None
    for change, restarts in wishes:
        wanted = replace(wanted, **change)
        mps.client.ensure(wanted)
        assert (mps.identity(FIRST) != before) is restarts, change
        assert mps.limits(FIRST) == (wanted.active_thread_percentage, (wanted.pinned_memory_mib or (0,))[0])
        before = mps.identity(FIRST)


def test_what_can_never_run_is_refused_for_good(mps: Subject) -> None:
    for wrong in ({"name": "../etc"}, {"active_thread_percentage": 0}, {"pinned_memory_mib": (1, 2)}):
        with pytest.raises(ClaimRefused):
            mps.client.ensure(mps.daemon(**wrong))
    with pytest.raises(ClaimRefused):
        mps.client.stop("../etc")
    assert mps.identity(FIRST) is None
    assert mps.told() == ()


def test_a_start_that_fails_leaves_nothing(mps: Subject) -> None:
    mps.refuse_once()
    with pytest.raises(ClaimBlocked, match="not now"):
        mps.client.ensure(mps.daemon())
    assert mps.identity(FIRST) is None


def test_limits_that_cannot_be_changed_now_end_no_daemon(mps: Subject) -> None:
    mps.client.ensure(mps.daemon())
    before = mps.identity(FIRST)
    mps.refuse_once()
    with pytest.raises(ClaimBlocked, match="not now"):
        mps.client.ensure(mps.daemon(active_thread_percentage=50))
    assert mps.identity(FIRST) == before
    mps.client.ensure(mps.daemon(active_thread_percentage=50))
    assert (mps.identity(FIRST), mps.limits(FIRST)[0]) == (before, 50.0)


def test_without_a_supervisor_every_call_waits_and_nobody_knows_how_daemons_are(mps: Subject) -> None:
    mps.client.ensure(mps.daemon())
    before = mps.identity(FIRST)
    mps.go_silent()
    with pytest.raises(ClaimBlocked, match="no MPS supervisor answers"):
        mps.client.ensure(mps.daemon(active_thread_percentage=50))
    with pytest.raises(ClaimBlocked, match="no MPS supervisor answers"):
        mps.client.stop(FIRST)
    assert mps.told() is None
    assert mps.identity(FIRST) == before
