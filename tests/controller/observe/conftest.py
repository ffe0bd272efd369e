"""What gives the calls of a look their time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from driver.nvml.deadline import Guard


@pytest.fixture
def guard() -> Iterator[Guard]:
    made = Guard()
    yield made
    made.close()
