"""A node for one test."""

from collections.abc import Iterator

import pytest

from tests.processes.node import Node, new_node


@pytest.fixture
def node() -> Iterator[Node]:
    with new_node() as one:
        yield one
