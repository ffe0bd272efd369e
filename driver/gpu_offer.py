"""What a node configuration says of one GPU: in which form it is offered, and what MIG makes of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Form = Literal["whole", "partitions", "hidden"]
MigMode = Literal["off", "static", "dynamic", "layout"]


@dataclass(frozen=True, slots=True)
class MigOffer:
    """What MIG shall make of a GPU.

    ``off``: nothing. ``static``: what an admin made is published. ``dynamic``: partitions of ``profiles``
    beside the whole GPU; none named means those that make sense on most GPUs. ``layout``: the partitions
    of ``layout`` and nothing else: a name of mig-parted's, or profiles, one for each partition. Profiles
    stand as they were written, full (``1g.10gb+me``) or short (``1g+me``).
    """

    mode: MigMode = "static"
    profiles: tuple[str, ...] = ()
    layout: str | tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GpuOffer:
    """What is offered of one GPU.

    ``whole`` offers the whole GPU where MIG allows it, and partitions as ``mig`` says; ``partitions``
    only these; ``hidden`` nothing.
    """

    form: Form = "whole"
    mig: MigOffer = MigOffer()
