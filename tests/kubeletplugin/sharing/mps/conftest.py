"""Gives each test a scene whose daemons end with it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubeletplugin.sharing.mps.scene import MpsScene


@pytest.fixture
def mps(tmp_path: Path) -> Iterator[MpsScene]:
    """Four A30, nothing running."""
    scene = MpsScene(tmp_path)
    yield scene
    scene.close()
