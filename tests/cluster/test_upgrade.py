"""A node's driver is replaced by another instance and taken back, while pods run on its GPUs.

``tests/cluster/test_installed.py`` does the same with another image under another version.
"""

from collections.abc import Callable

from tests.cluster.upgrade_scene import Upgraded
from tests.clusters import DriverNode, RealCluster, fresh_namespace

POD_UID = "3c1f8e52-61f5-4b7d-9d07-2f0a5f3f9c11"
ENDED_BETWEEN = ("static", "dynamic", "time-sliced", "mps")
"""The forms whose first pods the second instance ends; the others' last until the first one is back."""


def test_pods_outlive_an_upgrade_and_the_way_back(
    start_cluster: Callable[[int], RealCluster], driver_launcher: tuple[str, ...]
) -> None:
    cluster = start_cluster(1)
    with fresh_namespace(cluster.api) as namespace:
        node = Upgraded(DriverNode.install(cluster, launcher=driver_launcher), namespace)
        try:
            first = node.start("first")
            node.connect_client()
            unchanged(node, first, lambda: node.hand_over(POD_UID))
            second = node.start("second")
            ended = [f"first-{form}" for form in ENDED_BETWEEN]
            node.end(ended)
            left = [pod for pod in (*first, *second) if pod not in ended]
            unchanged(node, left, node.hand_over)
            third = node.start("third", ENDED_BETWEEN)
            node.end([*left, *third])
            node.wait_put_back()
        finally:
            node.close()


def unchanged(node: Upgraded, pods: list[str], change: Callable[[], None]) -> None:
    """Do something that neither the pods nor the hardware and the daemons below them may notice."""

    def look() -> tuple[object, ...]:
        return node.containers(pods), node.specs(pods), node.gpus(), node.daemons()

    before = look()
    change()
    assert look() == before
    assert {(phase, restarts) for phase, _, restarts in node.containers(pods).values()} == {("Running", 0)}
    assert node.client_is_connected()
