"""How much of a GPU's memory the processes of one control group may have, as NVML holds it since R615."""

from __future__ import annotations

from dataclasses import dataclass

NO_LIMIT_BYTES = 2**64 - 1
"""The hard limit that means none; with a soft limit of 0 it clears both (nvml.h)."""


@dataclass(frozen=True, slots=True)
class MemoryLimits:
    """The limits of one control group on one GPU, in bytes.

    ``hard_bytes`` is the most that can be allocated. ``soft_bytes`` may be kept under pressure: who has more
    than that loses memory first, and only where an MPS server takes it. ``used_bytes`` is what is allocated
    now (nvmlGetMemoryLimits_v1_t).
    """

    soft_bytes: int
    hard_bytes: int
    used_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Cgroup:
    """One control group of a container.

    ``path`` is its folder as NVML takes it, ``/sys/fs/cgroup/…``. ``inode`` is that of the folder, by which
    a later group at the same path is told from it.
    """

    path: str
    inode: int
