"""A namespace that is deleted is emptied, its pods first, and goes when nothing is left in it."""

from collections.abc import Iterator

import pytest

from tests.clusters import Object
from tests.envtest.embedded.api.api_calls import pod
from tests.envtest.embedded.control.control_plane import ControlPlane, control_plane

NAMESPACES = "/api/v1/namespaces"
TEAM = f"{NAMESPACES}/team"


@pytest.fixture
def cluster() -> Iterator[ControlPlane]:
    with control_plane() as found:
        found.server.create(NAMESPACES, {"metadata": {"name": "team"}})
        yield found


def team(cluster: ControlPlane) -> Object | None:
    found = [one for one in cluster.server.objects("namespaces") if one["metadata"]["name"] == "team"]
    return found[0] if found else None


def test_pods_have_their_grace_and_everything_else_waits_for_them(cluster: ControlPlane) -> None:
    cluster.server.create(f"{TEAM}/configmaps", {"metadata": {"name": "settings"}})
    cluster.server.create(f"{TEAM}/pods", pod("runs", nodeName="node-a", terminationGracePeriodSeconds=7))

    cluster.server.delete(TEAM)
    cluster.wait(lambda: "deletionTimestamp" in cluster.pod("runs")["metadata"])

    assert cluster.pod("runs")["metadata"]["deletionGracePeriodSeconds"] == 7
    assert [one["metadata"]["name"] for one in cluster.server.objects("configmaps")] == ["settings"]
    cluster.server.delete(f"{TEAM}/pods/runs?gracePeriodSeconds=0")
    cluster.wait(lambda: team(cluster) is None)
    assert cluster.server.objects("configmaps") == []
