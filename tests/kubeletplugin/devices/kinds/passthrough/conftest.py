"""Nodes whose GPUs can be passed through."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubeletplugin.devices.kinds.passthrough.scene import PassthroughNode


@pytest.fixture
def vms(tmp_path: Path) -> Iterator[PassthroughNode]:
    """Four L40S."""
    node = PassthroughNode(tmp_path)
    yield node
    node.machine.heal_kernel()
    node.stop()
