"""What the plugin relies on when it asks for MPS daemons: the supervisor and the tests' fake do the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from driver.errors import ClaimBlocked, ClaimRefused
from kubeletplugin.kubelet.wire.mps_daemon import SOCKET, MpsDaemon, MpsState
from kubeletplugin.kubelet.wire.server import SocketServer
from kubeletplugin.sharing.mps.supervisor import handlers
from kubeletplugin.sharing.mps_client import MpsClient
from tests.kubeletplugin.fake_sharing import FakeMps
from tests.kubeletplugin.sharing.mps.scene import MpsScene

FIRST, SECOND = "gpu-0000-01-00-0", "gpu-0000-02-00-0"
GPUS = ("GPU-1", "GPU-2")
DAEMON = MpsDaemon(FIRST, (GPUS[0],), active_thread_percentage=25, pinned_memory_mib=(6144,))


@dataclass(frozen=True, slots=True)
class Subject:
    """One of the two: how it is asked, and what tests look at.

    ``identity(name)`` differs from one start of a daemon to the next, and is None while none runs.
    ``refuse_once()`` has the next start or change of limits fail; ``go_silent()`` ends the supervisor.
    """

    client: MpsClient
    identity: Callable[[str], object]
    limits: Callable[[str], tuple[float, int]]
    refuse_once: Callable[[], None]
    go_silent: Callable[[], None]


@contextmanager
def the_fake(_folder: Path) -> Iterator[Subject]:
    fake = FakeMps()

    def limits(name: str) -> tuple[float, int]:
        daemon = fake.running[name]
        return float(daemon.active_thread_percentage), (daemon.pinned_memory_mib or (0,))[0]

    yield Subject(
        fake,
        lambda name: fake.starts[name] if name in fake.running else None,
        limits,
        lambda: fake.failures.append(ClaimBlocked("not now", "wait")),
        lambda: setattr(fake, "silent", True),
    )


@contextmanager
def the_supervisor(folder: Path) -> Iterator[Subject]:
    """The supervisor behind its socket, with the programs of a pretend machine."""
    scene = MpsScene(folder)
    client = MpsClient(scene.mps_dir / SOCKET)
    with ThreadPoolExecutor(4) as pool:
        supervisor = scene.supervisor()
        server = SocketServer(scene.mps_dir / SOCKET, handlers(supervisor), pool)
        server.start()

        def limits(name: str) -> tuple[float, int]:
            percentage, memory = scene.limits(name)
            return float(percentage), int(memory[:-1]) * (1024 if memory.endswith("G") else 1)

        def refuse_once() -> None:
            for command in ("start", "set_default_active_thread_percentage"):
                scene.machine.spoil_mps("refuse", command, "not now", times=1)

        try:
            yield Subject(RealNames(client, scene), scene.pid, limits, refuse_once, server.stop)
        finally:
            client.close()
            supervisor.close()
            server.stop()
            scene.close()


class RealNames(MpsClient):
    """A client whose ``GPU-1`` and ``GPU-2`` are the first GPUs of the scene's machine."""

    def __init__(self, client: MpsClient, scene: MpsScene) -> None:
        super().__init__(Path("/nowhere"))
        self._client = client
        self._uuids = {name: scene.uuid(index) for index, name in enumerate(GPUS)}

    def ensure(self, daemon: MpsDaemon) -> None:
        self._client.ensure(
            replace(daemon, devices=tuple(self._uuids.get(one, one) for one in daemon.devices))
        )

    def stop(self, name: str) -> None:
        self._client.stop(name)

    def follow(self, update: Callable[[tuple[MpsState, ...] | None], object]) -> None:
        """Until the first states are told."""

        def once(states: tuple[MpsState, ...] | None) -> None:
            update(states)
            self._client.close()

        self._client.follow(once)


@pytest.fixture(params=[the_fake, the_supervisor], ids=["fake", "supervisor"])
def mps(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Subject]:
    with request.param(tmp_path) as subject:
        yield subject


def told(mps: Subject) -> tuple[MpsState, ...] | None:
    """What is told of the daemons at first."""
    heard: list[tuple[MpsState, ...] | None] = []
    mps.client.follow(heard.append)
    return heard[0]


def test_a_daemon_that_was_asked_for_runs_with_its_limits(mps: Subject) -> None:
    mps.client.ensure(DAEMON)
    assert mps.identity(FIRST) is not None
    assert mps.limits(FIRST) == (25.0, 6144)
    assert told(mps) == (MpsState(FIRST, running=True),)


@pytest.mark.parametrize(
    ("change", "restarts"),
    [
        ({}, False),
        ({"active_thread_percentage": 50}, False),
        ({"pinned_memory_mib": (512,)}, False),
        ({"pinned_memory_mib": (8192,)}, False),
        ({"pinned_memory_mib": (0,)}, True),
        ({"pinned_memory_mib": ()}, True),
        ({"multi_user": True}, True),
        ({"devices": (GPUS[1],)}, True),
        ({"devices": GPUS, "pinned_memory_mib": (6144, 1024)}, True),
    ],
)
def test_a_daemon_is_started_anew_only_where_no_command_makes_it_what_it_shall_be(
    mps: Subject, change: dict[str, object], *, restarts: bool
) -> None:
    mps.client.ensure(DAEMON)
    before = mps.identity(FIRST)
    wanted = replace(DAEMON, **change)  # type: ignore[arg-type]  # names and values as the cases have them
    mps.client.ensure(wanted)
    assert (mps.identity(FIRST) != before) is restarts
    assert mps.limits(FIRST) == (wanted.active_thread_percentage, (wanted.pinned_memory_mib or (0,))[0])


def test_a_limit_can_be_added_to_a_daemon_that_has_none(mps: Subject) -> None:
    mps.client.ensure(replace(DAEMON, pinned_memory_mib=()))
    before = mps.identity(FIRST)
    mps.client.ensure(DAEMON)
    assert (mps.identity(FIRST), mps.limits(FIRST)) == (before, (25.0, 6144))


def test_a_daemon_that_is_stopped_is_gone_and_stopping_it_again_is_fine(mps: Subject) -> None:
    mps.client.ensure(DAEMON)
    before = mps.identity(FIRST)
    for _ in range(2):
        mps.client.stop(FIRST)
        assert mps.identity(FIRST) is None
    mps.client.ensure(DAEMON)
    assert mps.identity(FIRST) not in (None, before)


def test_daemons_stand_beside_each_other(mps: Subject) -> None:
    other = MpsDaemon(SECOND, (GPUS[1],), active_thread_percentage=50, pinned_memory_mib=(1024,))
    mps.client.ensure(DAEMON)
    mps.client.ensure(other)
    assert (mps.limits(FIRST), mps.limits(SECOND)) == ((25.0, 6144), (50.0, 1024))
    mps.client.stop(FIRST)
    assert told(mps) == (MpsState(SECOND, running=True),)


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "../etc"},
        {"name": ""},
        {"devices": ()},
        {"devices": ("0",)},
        {"active_thread_percentage": 0},
        {"active_thread_percentage": 101},
        {"pinned_memory_mib": (1, 2)},
    ],
)
def test_what_can_never_run_is_refused_for_good(mps: Subject, wrong: dict[str, object]) -> None:
    with pytest.raises(ClaimRefused):
        mps.client.ensure(replace(DAEMON, **wrong))  # type: ignore[arg-type]  # wrong on purpose
    assert mps.identity(FIRST) is None
    assert told(mps) == ()


def test_the_name_of_no_daemon_cannot_be_stopped(mps: Subject) -> None:
    with pytest.raises(ClaimRefused):
        mps.client.stop("../etc")


def test_a_start_that_fails_leaves_nothing_and_may_be_tried_again(mps: Subject) -> None:
    mps.refuse_once()
    with pytest.raises(ClaimBlocked, match="not now"):
        mps.client.ensure(DAEMON)
    assert mps.identity(FIRST) is None


def test_limits_that_cannot_be_changed_now_end_no_daemon(mps: Subject) -> None:
    mps.client.ensure(DAEMON)
    before = mps.identity(FIRST)
    mps.refuse_once()
    with pytest.raises(ClaimBlocked, match="not now"):
        mps.client.ensure(replace(DAEMON, active_thread_percentage=50))
    assert mps.identity(FIRST) == before
    mps.client.ensure(replace(DAEMON, active_thread_percentage=50))
    assert (mps.identity(FIRST), mps.limits(FIRST)[0]) == (before, 50.0)


def test_without_a_supervisor_every_call_waits_and_nobody_knows_how_daemons_are(mps: Subject) -> None:
    mps.client.ensure(DAEMON)
    before = mps.identity(FIRST)
    mps.go_silent()
    with pytest.raises(ClaimBlocked, match="no MPS supervisor answers"):
        mps.client.ensure(replace(DAEMON, active_thread_percentage=50))
    with pytest.raises(ClaimBlocked, match="no MPS supervisor answers"):
        mps.client.stop(FIRST)
    assert told(mps) is None
    assert mps.identity(FIRST) == before
