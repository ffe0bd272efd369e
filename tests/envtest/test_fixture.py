"""The fixture that envtest ships starts a cluster with the arguments that a test gives."""

from __future__ import annotations

import pytest

from envtest.client.api import ApiClient
from envtest.client.errors import ApiRefused
from envtest.embedded.cluster import EmbeddedCluster
from envtest.pytest_plugin import embedded_cluster

__all__ = ["embedded_cluster"]


@pytest.mark.parametrize("embedded_cluster", [{"node_count": 2}], indirect=True)
def test_a_cluster_with_two_nodes_refuses_strangers(embedded_cluster: EmbeddedCluster) -> None:  # the fixture
    assert len(embedded_cluster.api.list_objects("/api/v1/nodes")) == 2
    with pytest.raises(ApiRefused, match="401 Unauthorized"):
        ApiClient(embedded_cluster.server, None, "").list_objects("/api/v1/nodes")
