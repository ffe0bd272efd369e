"""Asks one GPU about its health, and names the problems that follow from its answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from driver.errors import NvmlError
from driver.hardware.gpu import Condition, Problem, Reason, without_answers
from driver.nvml.api import DriverNotLoaded, GpuLost, NotSupported, NvmlDevice, SessionLost
from driver.nvml.deadline import Watch
from driver.nvml.health.calls import HEALTH_CALLS, FabricHealth, RecoveryAction, RemappedRows

T = TypeVar("T")


class ConditionReading:
    """One reading of a GPU's health, under the deadlines of ``watch``.

    ``former`` is what this board answered before: a fault stays while the call that reported it fails.
    ``failed`` is called with each error. ``in_fabric``: the GPU is in an NVLink fabric that is up; the health
    of a fabric means nothing otherwise.
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
        self._former = without_answers(former)
        self._failed = failed
        self._in_fabric = in_fabric
        self._unsupported = set(former.unsupported)

    def run(self) -> Condition:
        """Make all calls; raises GpuLost, SessionLost and DriverNotLoaded."""
        device, former = self._device, self._former
        rows = self._ask("remapped_rows", device.remapped_rows, former.rows)
        return Condition(
            recovery_action=self._ask("recovery_action", device.recovery_action, former.recovery_action),
            rows=rows,
            page_pending=self._pages_pending(rows),
            unrepairable=self._ask("unrepairable_memory", device.unrepairable_memory, former.unrepairable),
            fabric=self._ask("fabric_health", device.fabric_health, former.fabric)
            if self._in_fabric
            else None,
            unsupported=frozenset(self._unsupported),
        )

    def _pages_pending(self, rows: RemappedRows | None) -> bool | None:
        # Volta and Turing retire pages. Ampere and newer remap rows instead, so they are not asked for pages.
        if rows is not None:
            return None
        call = self._device.retired_pages_pending
        return self._ask("retired_pages_pending", call, self._former.page_pending)

    def _ask(self, name: str, call: Callable[[], T | None], former: T | None) -> T | None:
        # A board never learns to answer a call while the driver stays, so each check saves the calls that
        # cannot work.
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
            # The call failed, so there is no news: keep the former answer, above all a former fault.
            self._failed(error)
            return former


def problems_of(condition: Condition) -> Iterator[Problem]:
    """The problems of a GPU in this condition; none where NVML gave no answer."""
    if condition.recovery_action is not None and condition.recovery_action in _ACTIONS:
        reason, message = _ACTIONS[condition.recovery_action]
        yield _problem("recovery_action", reason, condition.recovery_action, message)
    # Hopper and newer report this, since driver R615.
    if condition.unrepairable:
        message = "the GPU's memory has errors that no reset repairs: have the board replaced"
        yield _problem("unrepairable_memory", "memory-broken", "unrepairable", message)
    yield from _of_rows(condition.rows)
    # Volta and Turing retire pages, which Ampere and newer do not report: they remap rows.
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
        "NVML says that the GPU should be reset when the work on it has ended: reset it when it is free",
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
    # Rows that could not be replaced are worse than rows that wait, and both can be true at once.
    if rows.failed:
        message = "a bad row of the GPU's memory could not be replaced: have the board checked"
        yield _problem("remapped_rows", "memory-broken", "rows-failed", message)
    elif rows.pending:
        message = "a bad row of the GPU's memory is replaced at the next reset: reset it when it is free"
        yield _problem("remapped_rows", "memory-repairable", "rows-pending", message)


def _of_fabric(fabric: FabricHealth | None) -> Iterator[Problem]:
    if fabric is None:
        return
    faults = f" ({', '.join(fabric.faults)})" if fabric.faults else ""
    if fabric.summary == "unhealthy":
        message = f"the GPU's part of the NVLink fabric is not healthy{faults}: see the fabric manager's log"
        yield _problem("fabric_health", "fabric", "unhealthy", message)
    # A fault without an unhealthy summary: jobs run, but slower.
    elif fabric.summary == "limited-capacity" or fabric.faults:
        value = fabric.faults[0] if fabric.faults else fabric.summary
        message = f"the NVLink fabric works with reduced capacity{faults}: see the fabric manager's log"
        yield _problem("fabric_health", "fabric-degraded", value, message)


def _problem(call: str, reason: Reason, value: str, message: str) -> Problem:
    return Problem(HEALTH_CALLS[call], reason, message, value)
