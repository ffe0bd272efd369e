"""Fixtures of the tests on a real cluster; ``make cluster-test`` runs them, as root."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusters import DriverNode, find_assets
from tests.flow.claims import restored
from tools.conformance.oracle import Oracle

pytest_plugins = ["tools.testbed.fixtures"]

PROJECT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def oracle(kubernetes: str) -> Iterator[Oracle]:
    """Kubernetes' validation and allocator behind a pipe."""
    binary = find_assets(kubernetes).binary("oracle")
    if not binary.exists():
        pytest.skip(f"{binary.parent} holds no oracle: it comes with binaries that are built here")
    with Oracle(binary) as asked:
        yield asked


@pytest.fixture
def driver(real_driver: DriverNode) -> Iterator[DriverNode]:
    """The driver on the node of ``real_cluster``, running and publishing, with all its GPUs healthy."""
    restored(real_driver)
    yield real_driver
    restored(real_driver)
