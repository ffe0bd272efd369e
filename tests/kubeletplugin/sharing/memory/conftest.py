"""Nodes whose GPUs take memory limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kubeletplugin.sharing.memory.memory_node import MemoryNode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def l4s(tmp_path: Path) -> Iterator[MemoryNode]:
    """A node of four L4, with a driver that holds limits."""
    node = MemoryNode(tmp_path)
    yield node
    node.machine.heal()
    node.stop()
