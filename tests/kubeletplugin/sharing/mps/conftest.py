"""Gives each test a scene whose daemons end with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kubeletplugin.sharing.mps.scene import MpsScene

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def mps(tmp_path: Path) -> Iterator[MpsScene]:
    """Four A30, nothing running."""
    scene = MpsScene(tmp_path)
    yield scene
    scene.close()
