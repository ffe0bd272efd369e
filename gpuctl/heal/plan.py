"""What is wrong with a GPU, what is in the way of a reset, and what would be done about both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpuctl.repartition.in_the_way import pods_of

if TYPE_CHECKING:
    from driver.nvml.pci_address import PciAddress
    from gpuctl.heal.remedies import Remedy
    from gpuctl.heal.sick_gpu import SickGpu
    from gpuctl.repartition.in_the_way import ClaimInTheWay, PodInTheWay


@dataclass(frozen=True, slots=True)
class ProcessInTheWay:
    """A process on the node that has a GPU open; ``pod`` is ``namespace/name``, None for one in no pod."""

    process_id: int
    name: str
    pod: str | None = None

    def __str__(self) -> str:
        """As people write it."""
        return f"process {self.process_id} ({self.name}{f' of pod {self.pod}' if self.pod else ''})"

    def as_data(self) -> dict[str, Any]:
        """All of it, for scripts."""
        pod = {"pod": self.pod} if self.pod else {}
        return {"processId": self.process_id, "name": self.name, **pod}


@dataclass(frozen=True, slots=True)
class HealPlan:
    """One look. ``gpus`` are those that are reset together, the one that was asked for first.

    ``unknown`` is why the node did not tell which GPUs these are and which processes use them; empty where it
    did.
    """

    node: str
    gpus: tuple[SickGpu, ...]
    claims: tuple[ClaimInTheWay, ...] = ()
    processes: tuple[ProcessInTheWay, ...] = ()
    unknown: str = ""

    @property
    def gpu(self) -> SickGpu:
        """The one that was asked for."""
        return self.gpus[0]

    @property
    def addresses(self) -> tuple[PciAddress, ...]:
        """All of them."""
        return tuple(one.pci for one in self.gpus)

    @property
    def remedy(self) -> Remedy | None:
        """What makes the GPU well, None where it is."""
        return self.gpu.remedy

    @property
    def pods(self) -> tuple[PodInTheWay, ...]:
        """The pods that have a device of the GPUs."""
        return pods_of(self.claims)

    @property
    def lost_partitions(self) -> tuple[str, ...]:
        """The partitions of an admin that are gone after the reset."""
        return tuple(name for one in self.gpus for name in one.static_partitions)

    def as_data(self) -> dict[str, Any]:
        """All of it, for scripts."""
        return {
            "node": self.node,
            "gpu": str(self.gpu.pci),
            "remedy": self.remedy or "none",
            "taints": [
                {
                    "key": one.taint.key,
                    "value": one.taint.value,
                    "effect": one.taint.effect,
                    "meaning": one.meaning,
                    "devices": list(one.devices),
                }
                for one in self.gpu.illnesses
            ],
            "resetTogether": [str(pci) for pci in self.addresses],
            "claims": [claim.as_data() for claim in self.claims],
            "processes": [one.as_data() for one in self.processes],
            "partitionsLost": list(self.lost_partitions),
            **({"unknown": self.unknown} if self.unknown else {}),
        }
