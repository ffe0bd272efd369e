"""Scenes and nodes whose NVML threads end with the test, and processes that crash."""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.kubeletplugin.crashes import Crashes
from tests.kubeletplugin.fake_node import FakeNode
from tests.kubeletplugin.fake_roots import changed_files
from tests.kubeletplugin.partition_scene import Scene
from tests.plugin import KeyedLocks


@pytest.fixture
def open_scene(tmp_path: Path) -> Iterator[Callable[..., Scene]]:
    """Opens a machine by its name."""
    scenes = []

    def opened(machine: str = "hgx-h100", deadline_seconds: float = 5.0) -> Scene:
        scenes.append(Scene(tmp_path, machine, deadline_seconds))
        return scenes[-1]

    yield opened
    for scene in scenes:
        scene.machine.heal()
        scene.guard.close()


@pytest.fixture
def scene(open_scene: Callable[..., Scene]) -> Scene:
    """Eight H100, whose MIG mode changes without a reset."""
    return open_scene()


@pytest.fixture
def node(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[FakeNode]:
    """A node of eight H100, or the ``MACHINE`` that the file of the test names."""
    node = FakeNode(tmp_path, getattr(request.module, "MACHINE", "hgx-h100"))
    yield node
    node.stop()


@pytest.fixture(scope="session")
def crashes() -> Iterator[Crashes]:
    """Processes that end between two changes of the disk."""
    with Crashes() as crashes:
        yield crashes


@pytest.fixture(autouse=True)
def _keys_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail where a thread takes a key that comes before one that it has: two threads could wait for ever."""
    holding, of_thread = KeyedLocks.holding, threading.local()
    kinds = ["claim", "GPU", "memory"]

    def place(key: str) -> tuple[int, str]:
        return kinds.index(key.partition(" ")[0]), key

    @contextmanager
    def checked(locks: KeyedLocks, keys: Iterable[str], timeout_seconds: float) -> Iterator[None]:
        had, more = getattr(of_thread, "keys", ()), tuple(keys)
        with holding(locks, more, timeout_seconds):
            assert all(place(key) < place(next_key) for key in had for next_key in more), (had, more)
            of_thread.keys = had + more
            try:
                yield
            finally:
                of_thread.keys = had

    monkeypatch.setattr(KeyedLocks, "holding", checked)


@pytest.fixture(scope="session", autouse=True)
def _shared_files_stay() -> Iterator[None]:
    """No test changes the files that it shares with others."""
    yield
    assert changed_files() == [], "a test that changes them builds its own"
