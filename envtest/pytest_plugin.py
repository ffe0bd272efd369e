"""For pytest: a fixture with an embedded cluster, and tests fail with the clusters that they use.

``pytest_plugins = ["envtest.pytest_plugin"]``
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from envtest.embedded.cluster import EmbeddedCluster, KubeletTimes
from envtest.embedded.server import Noted

TIMES = KubeletTimes(scan=0.1, prepare_retry=(0.5, 1.0), unprepare_retry=0.3, create_retry=0.5)
"""Short, so that a driver that is not ready yet costs a test no minute."""


_noted = Noted()


@pytest.fixture(autouse=True)
def _no_fault_of_the_embedded_cluster() -> Iterator[None]:
    """Fail a test when a part of an embedded cluster had an unexpected error meanwhile."""
    yield
    if faults := _noted.take():
        listed = "\n".join(map(str, faults))
        pytest.fail(f"{len(faults)} faults of the embedded cluster itself:\n{listed}", pytrace=False)


@pytest.fixture
def embedded_cluster(request: pytest.FixtureRequest) -> Iterator[EmbeddedCluster]:
    """A cluster with one node, for one test; its processes end with it.

    ``parametrize("embedded_cluster", [{"node_count": 2}], indirect=True)`` starts it with other arguments of
    EmbeddedCluster.
    """
    with EmbeddedCluster(**{"times": TIMES, **getattr(request, "param", {})}) as cluster:
        yield cluster
