"""Who the plugin is, the clock of the boot, and how long lasts what is made on the hardware."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


def boottime_ns() -> int:
    """Nanoseconds since the machine started, suspend included: the same clock in every process."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def unknown_generation() -> str:
    """What is said of the NVIDIA driver's load where nobody can tell."""
    return ""


@dataclass(frozen=True, slots=True)
class Era:
    """How long lasts what is made on the hardware: a boot, and in it one load of the NVIDIA driver.

    ``driver_generation`` tells one load from the next, empty where that is not known: without a driver.
    """

    boot_id: str
    driver_generation: str = ""

    def covers(self, boot_id: str, driver_generation: str) -> bool:
        """Whether what was noted in that boot, by that load of the driver, means anything now.

        Where one of the two loads is not known, they count as the same: who looks at the hardware finds out.
        """
        if boot_id != self.boot_id:
            return False
        return (
            not (driver_generation and self.driver_generation) or driver_generation == self.driver_generation
        )


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose claims these are: the driver, the pool of this node, and the boot that is running.

    ``driver_generation()`` tells the loads of the NVIDIA driver within the boot apart.
    """

    driver: str
    pool: str
    boot_id: str
    driver_generation: Callable[[], str] = unknown_generation

    def era(self) -> Era:
        """The era that is now."""
        return Era(self.boot_id, self.driver_generation())
