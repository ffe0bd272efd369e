"""A GPU of a node: its forms, what claims have of it, what is wrong with it. Pure values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from gpuctl.fleet.devices import Kind, Place, Taint, attributes

Object = Mapping[str, Any]

Use = Kind | Literal["free", "several"]
"""How a GPU is used: the kind of what claims have of it, ``several`` kinds, or not at all."""


@dataclass(frozen=True, slots=True)
class Holding:
    """A device that a claim has: all of a GPU, or a part of it.

    ``claim`` is the claim's namespace and name, ``pods`` are the pods that it is reserved for,
    ``device_class`` is the class of its request, None if that is unknown. ``part`` is how much of the GPU it
    has, from 0 to 1. ``memory_bytes`` is its part of the GPU's memory, None if that is unknown or unlimited.
    ``start`` and ``size`` are its place in memory slices, None outside of partitions. ``taken`` is what it
    has of a shared device, in words. A claim with ``admin_access`` takes nothing. ``trouble`` is the reason
    and message of a Ready condition that is not True.
    """

    claim: str
    pods: tuple[str, ...]
    device: str
    tier: str
    kind: Kind
    part: float
    request: str = ""
    device_class: str | None = None
    start: int | None = None
    size: int | None = None
    taken: str = ""
    share_id: str | None = None
    admin_access: bool = False
    trouble: str | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Form:
    """Devices of a GPU that are alike: their tier, how many there are, and their places in memory slices."""

    tier: str
    kind: Kind
    devices: int
    places: tuple[Place, ...] = ()


@dataclass(frozen=True, slots=True)
class GpuTaint:
    """A taint that ``devices`` of the GPU's ``of_gpu`` devices have, and since when, as the slice says."""

    taint: Taint
    devices: int
    of_gpu: int
    since: str | None = None


@dataclass(frozen=True, slots=True)
class GpuState:
    """A physical GPU of a node as it is published; None for what its slices do not say.

    ``device`` is the name of the whole GPU, whether or not it is offered whole. ``memory_slices`` is 0 if the
    GPU is never partitioned. It is published as so many ``devices``, of which ``tainted`` have a taint.
    ``blocked``: none of them takes a new claim. ``leading`` is the device that says most about the GPU.
    """

    node: str
    device: str
    index: int | None
    pci: str | None
    uuid: str | None
    product: str | None
    memory_bytes: int | None
    memory_slices: int
    forms: tuple[Form, ...]
    taints: tuple[GpuTaint, ...]
    devices: int
    tainted: int
    blocked: bool
    leading: Object = field(hash=False)
    holdings: tuple[Holding, ...] = ()

    @property
    def attributes(self) -> Mapping[str, Any]:
        """The attributes of the device that says most about the GPU."""
        return attributes(self.leading)

    @property
    def label(self) -> str:
        """The index that nvidia-smi shows, else the device's name."""
        return self.device if self.index is None else str(self.index)

    @property
    def title(self) -> str:
        """``GPU 3 (0000:1b:00.0)``, or the address or the device's name alone."""
        address = self.pci or self.device
        return address if self.index is None else f"GPU {self.index} ({address})"

    @property
    def takers(self) -> tuple[Holding, ...]:
        """The holdings without those of admin access, which take nothing of the GPU."""
        return tuple(one for one in self.holdings if not one.admin_access)

    @property
    def used(self) -> float:
        """How much of it claims have, from 0 to 1."""
        return min(1.0, sum(one.part for one in self.takers))

    @property
    def use(self) -> Use:
        """In which form claims have it; a share of a partition counts as a partition."""
        kinds: set[Use] = {"partition" if one.size is not None else one.kind for one in self.takers}
        return "several" if len(kinds) > 1 else kinds.pop() if kinds else "free"

    @property
    def claims(self) -> int:
        """How many claims have something of it, without those of admin access."""
        return len({one.claim for one in self.takers})

    @property
    def is_sick(self) -> bool:
        """Whether a taint keeps pods away from one of its devices."""
        return any(one.taint.effect != "None" for one in self.taints)

    @property
    def since(self) -> str:
        """When the first of its taints was added, RFC 3339; empty if no slice says."""
        return min((one.since for one in self.taints if one.since), default="")
