"""Nodes whose GPUs take memory limits."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubeletplugin.sharing.memory.memory_node import MemoryNode


@pytest.fixture
def l4s(tmp_path: Path) -> Iterator[MemoryNode]:
    """A node of four L4, with a driver that holds limits."""
    node = MemoryNode(tmp_path)
    yield node
    node.machine.heal()
    node.stop()
