"""Nodes whose use is told."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubeletplugin.reports.use.use_node import UseNode


@pytest.fixture
def h100(tmp_path: Path) -> Iterator[UseNode]:
    """Eight H100."""
    node = UseNode(tmp_path, "hgx-h100")
    yield node
    node.end()
