"""The node of the tests of fabric partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kubeletplugin.devices.fabric.fabric_node import fabric_node

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.kubeletplugin.fake_node import FakeNode


@pytest.fixture
def node(tmp_path: Path) -> Iterator[FakeNode]:
    """Eight H100 in shared NVSwitch mode."""
    node = fabric_node(tmp_path)
    yield node
    node.stop()
