"""Nodes of eight H100 that a Discovery looks at."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.driver.hardware.looked_at import SHORT_SECONDS, Node


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """Eight H100."""
    node = Node("hgx-h100", tmp_path)
    yield node
    node.machine.heal()
    node.guard.close()


@pytest.fixture
def hasty(tmp_path: Path) -> Iterator[Node]:
    """Eight H100 whose calls have little time."""
    node = Node("hgx-h100", tmp_path, SHORT_SECONDS)
    yield node
    node.machine.heal()
    node.guard.close()
