"""A GPU of a node: its forms, what claims have of it, what is wrong with it. Pure values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from gpuctl.fleet.devices import Kind, Place, Taint, attribute

Object = Mapping[str, Any]

Use = Kind | Literal["free", "several"]
"""How a GPU is used: the kind of all that claims have of it, ``several`` kinds, or not at all."""


@dataclass(frozen=True, slots=True)
class Holding:
    """A device that a claim has: all of a GPU, or a part of it.

    ``claim`` is its namespace and name, ``pods`` are those that it is reserved for, ``device_class`` is that
    of its request, None where that is unknown. ``part`` is how much of the GPU it has, from 0 to 1.
    ``memory_bytes`` is what it has of the GPU's memory, None where that is not told, or has no bound.
    ``start`` and ``size`` are its place in memory slices, None outside of partitions. ``taken`` says in words
    what it has of a shared device. ``looks_on`` is set for admin access, which takes nothing. ``trouble`` is
    the reason and message of a Ready condition that is not True.
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
    looks_on: bool = False
    trouble: str | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Form:
    """Devices of a GPU that are alike: their tier, how many there are, and their places in memory slices.

    ``shares`` is into how many shares each of them can be divided, 0 where shares are not counted by number.
    """

    tier: str
    kind: Kind
    devices: int
    places: tuple[Place, ...] = ()
    shares: int = 0


@dataclass(frozen=True, slots=True)
class GpuTaint:
    """A taint, on how many of the GPU's devices it is, and since when, by the slice."""

    taint: Taint
    devices: int
    of_gpu: int
    since: str | None = None


@dataclass(frozen=True, slots=True)
class GpuState:
    """A physical GPU of a node as it is published; what its slices do not say is None.

    ``device`` is the name of the GPU as a whole, whether it is offered so or not. ``memory_slices`` is 0
    where it is never cut. It is published as so many ``devices``; ``tainted`` of them have a taint.
    ``blocked``: none of them takes a new claim. ``leading`` is the device that says most of the GPU.
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
        """The attributes of the device that says most."""
        return {key: attribute(self.leading, key) for key in self.leading.get("attributes") or {}}

    @property
    def label(self) -> str:
        """The index as people know it from nvidia-smi, else the device's name."""
        return self.device if self.index is None else str(self.index)

    @property
    def title(self) -> str:
        """``GPU 3 (0000:1b:00.0)``, or the address or the device's name alone."""
        address = self.pci or self.device
        return address if self.index is None else f"GPU {self.index} ({address})"

    @property
    def used(self) -> float:
        """How much of it claims have, from 0 to 1."""
        return min(1.0, sum(one.part for one in self.holdings if not one.looks_on))

    @property
    def use(self) -> Use:
        """In which form claims have it; a share of a partition counts as a partition."""
        kinds: set[Use] = {
            "partition" if one.size is not None else one.kind for one in self.holdings if not one.looks_on
        }
        return "several" if len(kinds) > 1 else kinds.pop() if kinds else "free"

    @property
    def claims(self) -> int:
        """How many claims have something of it; those that only look on are left out."""
        return len({one.claim for one in self.holdings if not one.looks_on})

    @property
    def is_sick(self) -> bool:
        """Whether a taint keeps pods away from one of its devices."""
        return any(one.taint.effect != "None" for one in self.taints)

    @property
    def since(self) -> str:
        """When the first of its taints was added, RFC 3339; empty where no slice says so."""
        return min((one.since for one in self.taints if one.since), default="")
