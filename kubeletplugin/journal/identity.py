"""Who the plugin is: its driver, the node's pool, the boot that is running, and the clock of that boot."""

from __future__ import annotations

import time
from dataclasses import dataclass


def boottime_ns() -> int:
    """Nanoseconds since the machine started, suspend included: the same clock in every process."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose claims these are: the driver, the pool of this node, and the boot that is running."""

    driver: str
    pool: str
    boot_id: str
