"""A node whose claims are in an API server, and what writes their status."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kubeletplugin.reports.claim_status import ClaimStatuses, StatusWriter
from kubeletplugin.reports.device_status import Observed
from tests.clusters import EmbeddedApiServer, KubeClient
from tests.kubeletplugin.fake_node import FakeNode
from tests.kubeletplugin.reports.claim_cluster import Cluster, Start
from tests.plugin import HealthTracker
from tests.running import running


@pytest.fixture
def cluster(node: FakeNode) -> Iterator[Cluster]:
    """The node and its claims."""
    with EmbeddedApiServer() as server:
        yield Cluster(node, server)


@pytest.fixture
def start(cluster: Cluster, tmp_path: Path) -> Iterator[Start]:
    """Starts the writing, as the plugin does when it starts; it ends with the test."""
    client = KubeClient.connect(cluster.server.write_kubeconfig(tmp_path / "kubeconfig"))
    writing = ExitStack()

    def started() -> ClaimStatuses:
        writing.close()
        node = cluster.node

        def changed() -> None:
            statuses.changed()

        def now() -> Observed:
            return Observed(node.kinds, cluster.memory, cluster.healths.known(), node.fabric.number_of)

        cluster.healths = HealthTracker(changed)
        cluster.writer = StatusWriter(client, cluster.post)
        statuses = ClaimStatuses(cluster.writer, node.journal, now, 0.01)
        node.on_prepared = lambda _entry: statuses.changed()
        cluster.look()
        writing.enter_context(running(statuses.run, statuses.stop))
        return statuses

    yield started
    writing.close()
    client.close()
