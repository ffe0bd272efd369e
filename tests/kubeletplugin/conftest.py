"""Scenes and nodes whose NVML threads end with the test, and processes that crash."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kubeletplugin.crashes import Crashes
from tests.kubeletplugin.fake_node import FakeNode
from tests.kubeletplugin.fake_roots import changed_files
from tests.kubeletplugin.partition_scene import Scene

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


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
def node(tmp_path: Path) -> Iterator[FakeNode]:
    """A node of eight H100."""
    node = FakeNode(tmp_path, "hgx-h100")
    yield node
    node.stop()


@pytest.fixture(scope="session")
def crashes() -> Iterator[Crashes]:
    """Processes that end between two changes of the disk."""
    with Crashes() as crashes:
        yield crashes


@pytest.fixture(scope="session", autouse=True)
def _shared_files_stay() -> Iterator[None]:
    """No test changes the files that it shares with others."""
    yield
    assert changed_files() == [], "a test that changes them builds its own"
