"""A pytest fixture with an embedded cluster: ``pytest_plugins = ["envtest.pytest_plugin"]``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from envtest.embedded.cluster import EmbeddedCluster
from envtest.embedded.node.kubelet import KubeletTimes

TIMES = KubeletTimes(scan=0.1, prepare_retry=(0.5, 1.0), unprepare_retry=0.3, create_retry=0.5)
"""Short, so that a driver that is not ready yet costs a test no minute."""


@pytest.fixture
def embedded_cluster(request: pytest.FixtureRequest) -> Iterator[EmbeddedCluster]:
    """A cluster with one node, for one test; its processes end with it.

    ``parametrize("embedded_cluster", [{"rbac": True}], indirect=True)`` starts it with other arguments of
    EmbeddedCluster.
    """
    with EmbeddedCluster(**{"times": TIMES, **getattr(request, "param", {})}) as cluster:
        yield cluster
