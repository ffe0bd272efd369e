"""What the node configuration says about one GPU: its form, what MIG makes of it, and how it is shared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from driver.devices.sharing import SharedForm, Strategy

MigMode = Literal["off", "static", "dynamic", "layout"]


@dataclass(frozen=True, slots=True)
class MigOffer:
    """What MIG should make of a GPU.

    ``off``: nothing. ``static``: the partitions that an admin made are published. ``dynamic``: partitions of
    ``profiles`` are published beside the whole GPU; without profiles, those that make sense on most GPUs.
    ``layout``: only the partitions of ``layout``, which is a layout name of mig-parted, or one profile for
    each partition. Profiles are as they were written, full (``1g.10gb+me``) or short (``1g+me``).
    """

    mode: MigMode = "static"
    profiles: tuple[str, ...] = ()
    layout: str | tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SharedOffer:
    """How a GPU or its partitions are shared; at least one of ``shares`` and ``step_bytes`` is given.

    ``shares`` is the number of equal shares, None if claims ask for memory alone. ``step_bytes`` is the step
    in which claims ask for memory; if it is None, each share has an equal part. ``fractional``: a claim that
    asks for no amount takes the whole device.
    """

    strategy: Strategy
    shares: int | None = None
    step_bytes: int | None = None
    fractional: bool = False

    @property
    def form(self) -> SharedForm:
        """The part of it that is in the device's name."""
        return SharedForm(self.strategy, self.shares, self.step_bytes is not None, self.fractional)


HIDDEN = "hidden"
"""The form of a GPU that is not offered at all."""


@dataclass(frozen=True, slots=True)
class GpuPolicy:
    """What a rule offers of one GPU.

    ``form`` is ``hidden`` or that of a kind or a layer (driver.kinds.kind):

    * ``whole``: the whole GPU if MIG allows it, partitions by ``mig``, and the shared GPU by ``shared``.
    * ``shared``: only the shared GPU.
    * ``partitions``: only partitions, shared if ``shared`` is given.

    ``shared`` has at most one offer for each strategy. ``more`` has the values of the fields of other kinds,
    by field name.
    """

    form: str = "whole"
    mig: MigOffer = MigOffer()
    shared: tuple[SharedOffer, ...] = ()
    more: Mapping[str, Any] = field(default_factory=dict)
