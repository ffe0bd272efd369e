"""Fixtures of the tests of the embedded cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from envtest.embedded.server import EmbeddedApiServer


@pytest.fixture
def server() -> Iterator[EmbeddedApiServer]:
    with EmbeddedApiServer() as running:
        yield running
