"""What a node configuration says of one GPU: its form, what MIG makes of it, and how it is shared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from driver.devices.sharing import SharedForm, Strategy

MigMode = Literal["off", "static", "dynamic", "layout"]


@dataclass(frozen=True, slots=True)
class MigOffer:
    """What MIG should make of a GPU.

    ``off``: nothing. ``static``: what an admin made is published. ``dynamic``: partitions of ``profiles``
    beside the whole GPU; none named means those that make sense on most GPUs. ``layout``: the partitions
    of ``layout`` and nothing else: a name of mig-parted's, or profiles, one for each partition. Profiles
    are as they were written, full (``1g.10gb+me``) or short (``1g+me``).
    """

    mode: MigMode = "static"
    profiles: tuple[str, ...] = ()
    layout: str | tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SharedOffer:
    """How a GPU or its partitions are shared; at least one of ``shares`` and ``step_bytes`` is given.

    ``shares`` is how many equal shares there are, None where memory alone measures. ``step_bytes`` is the
    step in which claims ask for memory, None where they cannot: a share then has its part. ``fractional``:
    a claim that asks for no amount takes all of it.
    """

    strategy: Strategy
    shares: int | None = None
    step_bytes: int | None = None
    fractional: bool = False

    @property
    def form(self) -> SharedForm:
        """The part of it that the device's name tells."""
        return SharedForm(self.strategy, self.shares, self.step_bytes is not None, self.fractional)


HIDDEN = "hidden"
"""The form of a GPU of which nothing is offered."""


@dataclass(frozen=True, slots=True)
class GpuPolicy:
    """What a rule offers of one GPU.

    ``form`` is ``hidden``, or that of a kind or a layer (driver.kinds.kind): ``whole`` offers the whole GPU
    where MIG allows it, partitions as ``mig`` says, and the GPU as ``shared`` says; ``shared`` only the
    latter; ``partitions`` only partitions, each as ``shared`` says where that says anything. ``shared`` has
    at most one offer for each strategy. ``more`` has what the fields of further kinds say, by their names.
    """

    form: str = "whole"
    mig: MigOffer = MigOffer()
    shared: tuple[SharedOffer, ...] = ()
    more: Mapping[str, Any] = field(default_factory=dict)
