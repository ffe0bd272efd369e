"""One node for all tests of memory: each leaves nothing on it, which is part of what each test shows."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.guest.inside.memory.built import BUILT, Built
from tests.guest.inside.memory.scene import Scene


@pytest.fixture(scope="session")
def built() -> Built:
    """What was built for the guest before it started."""
    return Built(Path(os.environ[BUILT]))


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory, built: Built) -> Iterator[Scene]:
    """The node with one instance of the plugin."""
    scene = Scene(tmp_path_factory.mktemp("node"), built)
    scene.start_plugin()
    yield scene
    scene.stop_plugins()
    assert scene.left() == [], "sockets that nobody answers"


@pytest.fixture
def scene(node: Scene) -> Iterator[Scene]:
    """The node with nothing on it; the plugin lives when a test begins."""
    node.begin()
    yield node
    node.end()
