"""A node for one test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.processes.node import new_node

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.processes.node import Node


@pytest.fixture
def node() -> Iterator[Node]:
    with new_node() as one:
        yield one
