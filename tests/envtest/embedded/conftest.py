"""Fixtures of the tests of the embedded cluster."""

from collections.abc import Iterator

import pytest

from tests.clusters import EmbeddedApiServer


@pytest.fixture
def server() -> Iterator[EmbeddedApiServer]:
    with EmbeddedApiServer() as running:
        yield running
