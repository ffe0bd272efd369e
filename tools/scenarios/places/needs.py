"""What a scenario can ask for in ``needs``, beside what is always there: the driver, its classes and MPS."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from envtest.cluster import Cluster
from gpuctl.demo.driver_node import DriverNode
from tools.scenarios.places import metrics, upgrades
from tools.scenarios.places.network_cards.cards import begin_cards


@dataclass(frozen=True, slots=True)
class Need:
    """Something more in a cluster.

    ``plugin_flags`` are what the plugin of a node is started with besides; ``begin`` is called when all nodes
    have published, and puts into the stack what ends it.
    """

    plugin_flags: Callable[[DriverNode], tuple[str, ...]]
    begin: Callable[[Cluster, Sequence[DriverNode], ExitStack], None]


def _no_flags(_driver: DriverNode) -> tuple[str, ...]:
    return ()


NEEDS: Mapping[str, Need] = {
    "metrics": Need(metrics.plugin_flags, metrics.begin),
    "nic": Need(_no_flags, begin_cards),
    "upgrades": Need(_no_flags, upgrades.begin),
}
