"""Asks one GPU how well it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from driver.errors import NvmlError
from driver.hardware.condition.condition import Condition, unheard
from driver.nvml.api import DriverNotLoaded, GpuLost, NotSupported, SessionLost

if TYPE_CHECKING:
    from collections.abc import Callable

    from driver.nvml.api import NvmlDevice
    from driver.nvml.deadline import Watch

T = TypeVar("T")


class ConditionReading:
    """One reading, under the deadlines of ``watch``.

    ``former`` is what this board answered before: a fault counts on while the call that told of it fails.
    ``failed`` hears of each call that fails. Whether the GPU is in a fabric that is up, ``in_fabric`` tells:
    only there its health means anything.
    """

    def __init__(
        self,
        device: NvmlDevice,
        watch: Watch,
        former: Condition,
        failed: Callable[[NvmlError], None],
        *,
        in_fabric: bool,
    ) -> None:
        self._device = device
        self._watch = watch
        self._former = unheard(former)
        self._failed = failed
        self._in_fabric = in_fabric
        self._unsupported = set(former.unsupported)

    def run(self) -> Condition:
        """Ask all; raises GpuLost, SessionLost and DriverNotLoaded."""
        device, former = self._device, self._former
        return Condition(
            recovery_action=self._ask("recovery_action", device.recovery_action, former.recovery_action),
            rows=self._ask("remapped_rows", device.remapped_rows, former.rows),
            page_pending=self._ask(
                "retired_pages_pending", device.retired_pages_pending, former.page_pending
            ),
            unrepairable=self._ask("unrepairable_memory", device.unrepairable_memory, former.unrepairable),
            fabric=self._ask("fabric_health", device.fabric_health, former.fabric)
            if self._in_fabric
            else None,
            unsupported=frozenset(self._unsupported),
        )

    def _ask(self, name: str, call: Callable[[], T | None], former: T | None) -> T | None:
        if name in self._unsupported:
            return None
        try:
            return self._watch(name, call)
        except (GpuLost, SessionLost, DriverNotLoaded):
            raise
        except NotSupported:
            self._unsupported.add(name)
            return None
        except NvmlError as error:
            self._failed(error)
            return former
