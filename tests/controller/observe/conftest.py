"""What gives the calls of a look their time."""

from collections.abc import Iterator

import pytest

from tests.gpus import Guard


@pytest.fixture
def guard() -> Iterator[Guard]:
    made = Guard()
    yield made
    made.close()
