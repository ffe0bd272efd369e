"""Asks one GPU how well it is, and names the problems that follow from its answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from driver.errors import NvmlError
from driver.hardware.gpu import Condition, Problem, Reason, unheard
from driver.nvml.api import DriverNotLoaded, GpuLost, NotSupported, NvmlDevice, SessionLost
from driver.nvml.deadline import Watch
from driver.nvml.health.calls import HEALTH_CALLS, FabricHealth, RecoveryAction, RemappedRows

T = TypeVar("T")


class ConditionReading:
    """One reading, under the deadlines of ``watch``.

    ``former`` is what this board answered before: a fault stays while the call that reported it fails.
    ``failed`` is called with each error. ``in_fabric``: the GPU is in a fabric that is up; only there the
    health of its fabric means anything.
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


def problems_of(condition: Condition) -> Iterator[Problem]:
    """What is wrong with a GPU in this condition; nothing where NVML says nothing."""
    if condition.recovery_action is not None and condition.recovery_action in _ACTIONS:
        reason, message = _ACTIONS[condition.recovery_action]
        yield _problem("recovery_action", reason, condition.recovery_action, message)
    if condition.unrepairable:
        message = "the GPU's memory has errors that no reset repairs: have the board replaced"
        yield _problem("unrepairable_memory", "memory-broken", "unrepairable", message)
    yield from _of_rows(condition.rows)
    if condition.page_pending:
        message = "a bad page of the GPU's memory stays in use until a reset: reset it when it is free"
        yield _problem("retired_pages_pending", "memory-suspect", "page-pending", message)
    yield from _of_fabric(condition.fabric)


_ACTIONS: Mapping[RecoveryAction, tuple[Reason, str]] = {
    "reset": ("reset-required", "NVML says that the GPU has to be reset: end its pods and reset it"),
    "bus-reset": (
        "reset-required",
        "NVML says that the GPU has to be reset over its bus: end its pods and reset it",
    ),
    "drain-and-reset": (
        "reset-when-free",
        "NVML says that the GPU wants a reset once the work on it has ended: reset it when it is free",
    ),
    "node-reboot": (
        "reboot-required",
        "NVML says that the node has to be restarted: drain it and restart the machine",
    ),
    "system-reboot": (
        "reboot-required",
        "NVML says that the machine has to be restarted: drain the node and restart it",
    ),
    "drain-p2p": (
        "fabric",
        "NVML says that work between this GPU and others has to end: end the pods that use several GPUs",
    ),
    "recover-imex": (
        "fabric",
        "NVML says that the IMEX domain has to be recovered: restart nvidia-imex on its nodes",
    ),
}
"""What each recovery action means (nvml.h, nvmlDeviceGpuRecoveryAction_t); ``none`` means nothing."""


def _of_rows(rows: RemappedRows | None) -> Iterator[Problem]:
    if rows is None:
        return
    if rows.failed:
        message = "a bad row of the GPU's memory could not be replaced: have the board looked at"
        yield _problem("remapped_rows", "memory-broken", "rows-failed", message)
    elif rows.pending:
        message = "a bad row of the GPU's memory is replaced at the next reset: reset it when it is free"
        yield _problem("remapped_rows", "memory-repairable", "rows-pending", message)


def _of_fabric(fabric: FabricHealth | None) -> Iterator[Problem]:
    if fabric is None:
        return
    faults = f" ({', '.join(fabric.faults)})" if fabric.faults else ""
    if fabric.summary == "unhealthy":
        message = f"the GPU's part of the NVLink fabric is not well{faults}: see the fabric manager's log"
        yield _problem("fabric_health", "fabric", "unhealthy", message)
    elif fabric.summary == "limited-capacity" or fabric.faults:
        value = fabric.faults[0] if fabric.faults else fabric.summary
        message = f"the NVLink fabric works with less than it has{faults}: see the fabric manager's log"
        yield _problem("fabric_health", "fabric-degraded", value, message)


def _problem(call: str, reason: Reason, value: str, message: str) -> Problem:
    return Problem(HEALTH_CALLS[call], reason, message, value)
