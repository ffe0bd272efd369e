"""What a repartition of a node would do: its GPUs, what is in the way, and the commands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpuctl.repartition.in_the_way import pods_of

if TYPE_CHECKING:
    from gpuctl.repartition.in_the_way import ClaimInTheWay, PodInTheWay
    from gpuctl.repartition.node_gpus import NodeGpu
    from gpuctl.repartition.wanted import Wanted


@dataclass(frozen=True, slots=True)
class Plan:
    """All that is known before the first step.

    ``by_driver`` are GPUs whose partitions the driver makes, so nothing is done to them; ``wanted`` those
    that are to change, without those that are as wanted already; ``claims`` have devices of them.
    """

    node: str
    cordoned: bool
    by_driver: tuple[NodeGpu, ...]
    wanted: tuple[Wanted, ...]
    claims: tuple[ClaimInTheWay, ...]
    commands: str

    @property
    def pods(self) -> tuple[PodInTheWay, ...]:
        """The pods that have the claims, each once."""
        return pods_of(self.claims)

    @property
    def daemons(self) -> tuple[PodInTheWay, ...]:
        """Those that would come back to a cordoned node."""
        return tuple(pod for pod in self.pods if pod.of_daemon_set)

    def as_data(self) -> dict[str, Any]:
        """The plan for scripts."""
        return {
            "node": self.node,
            "cordoned": self.cordoned,
            "gpus": [one.as_data() for one in self.wanted],
            "madeByDriver": [{"gpu": str(gpu.pci), "mode": gpu.mode} for gpu in self.by_driver],
            "inTheWay": [claim.as_data() for claim in self.claims],
        }
