"""The nodes of the tests of vGPU hosts."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kubeletplugin.devices.kinds.vgpu.vgpu_node import opened
from tests.kubeletplugin.fake_node import FakeNode


@pytest.fixture
def open_node(tmp_path: Path) -> Iterator[Callable[[str], FakeNode]]:
    """Opens a host by the name of its machine."""
    nodes: list[FakeNode] = []

    def opening(machine: str) -> FakeNode:
        nodes.append(opened(tmp_path, machine))
        return nodes[-1]

    yield opening
    for node in nodes:
        node.stop()
