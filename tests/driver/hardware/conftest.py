"""Nodes of eight H100 that a Discovery looks at."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.driver.hardware.looked_at import SHORT_SECONDS, Node


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """Eight H100."""
    with Node.looking("hgx-h100", tmp_path) as node:
        yield node


@pytest.fixture
def hasty(tmp_path: Path) -> Iterator[Node]:
    """Eight H100 whose calls have little time."""
    with Node.looking("hgx-h100", tmp_path, SHORT_SECONDS) as node:
        yield node
