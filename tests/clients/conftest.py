"""A cluster for the clients of others."""

import gc
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusters import EmbeddedCluster


@pytest.fixture(autouse=True)
def _connections_closed() -> Iterator[None]:
    """Close what the clients have left open: they leave it to the garbage collector, at any time."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    """An embedded cluster with one node."""
    with EmbeddedCluster() as started:
        yield started


@pytest.fixture
def kubeconfig(cluster: EmbeddedCluster) -> Path:
    """The kubeconfig of its administrator."""
    return cluster.admin
