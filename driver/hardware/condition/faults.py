"""Which problems a GPU has in a condition: pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driver.hardware.gpu import Problem
from driver.nvml.health.calls import HEALTH_CALLS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from driver.hardware.condition.condition import Condition
    from driver.hardware.gpu import Reason
    from driver.nvml.health.values import FabricHealth, RecoveryAction, RemappedRows


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
