"""How much of a GPU's memory the processes of one cgroup may have, as NVML holds it since R615."""

from __future__ import annotations

from dataclasses import dataclass

NO_LIMIT_BYTES = 2**64 - 1
"""The hard limit that means none; with a soft limit of 0 it clears both (nvml.h)."""


@dataclass(frozen=True, slots=True)
class MemoryLimits:
    """The limits of one cgroup on one GPU, in bytes.

    ``soft_bytes`` is guaranteed before allocations may fail under pressure, ``hard_bytes`` is the most that
    can be allocated, ``used_bytes`` is what is allocated now (nvmlGetMemoryLimits_v1_t).
    """

    soft_bytes: int
    hard_bytes: int
    used_bytes: int = 0
