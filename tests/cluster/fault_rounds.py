"""Faults of GPUs, and what is to be seen of each: a table that a test injects, eight at a time."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tests.gpus import Code, FabricHealth, FakeMachine, PciAddress, RemappedRows

Deed = Callable[[FakeMachine, PciAddress], None]


@dataclass(frozen=True, slots=True)
class SickGpu:
    """A fault: what brings it about, and what has to be seen.

    ``taints`` are key without its domain, value and effect. ``pod`` is what the kubelet says of the pod that
    has the GPU. ``alert`` is the one that fires, empty for none. ``event`` is the reason of the node's event.
    """

    what: str
    inject: Deed
    taints: tuple[str, ...]
    pod: Literal["Healthy", "Unhealthy", "Unknown"]
    alert: str
    event: str = "GpuSick"


def xid(code: int) -> Deed:
    """An XID in the old form; it lasts until the machine is healed."""

    def inject(machine: FakeMachine, pci: PciAddress) -> None:
        # While NVML recommends no action, a check after a second would end the fault.
        machine.recovery_action(pci, None)
        machine.xid(pci, code)

    return inject


def _action(word: str) -> Deed:
    return lambda machine, pci: machine.recovery_action(pci, word)  # type: ignore[arg-type] # words of the table


def _fail(call: str, code: Code = Code.UNKNOWN) -> Deed:
    return lambda machine, pci: machine.fail(call, gpu=pci, code=code)


def _contained(code: int) -> SickGpu:
    return SickGpu(f"XID {code}", xid(code), (f"xid={code}:NoSchedule",), "Healthy", "GpuXidReported")


def _reset(code: int) -> SickGpu:
    taints = (f"xid={code}:NoSchedule", f"needs-reset=xid-{code}:NoSchedule")
    return SickGpu(f"XID {code}", xid(code), taints, "Unhealthy", "GpuNeedsReset")


def _reboot(code: int) -> SickGpu:
    taints = (f"xid={code}:NoSchedule", f"needs-reboot=xid-{code}:NoSchedule")
    return SickGpu(f"XID {code}", xid(code), taints, "Unhealthy", "GpuNeedsReboot")


def _of_a_program(code: int) -> SickGpu:
    return SickGpu(f"XID {code}, of a program", xid(code), (), "Healthy", "", "GpuFault")


def _asks(word: str, key: str, pod: Literal["Healthy", "Unhealthy"], alert: str) -> SickGpu:
    return SickGpu(f"recovery action {word}", _action(word), (f"{key}={word}:NoSchedule",), pod, alert)


ROUNDS: dict[str, tuple[SickGpu, ...]] = {
    "XIDs that ask for a reset": (*map(_reset, (48, 62, 64, 74, 95, 119, 120, 140)),),
    "XIDs of other classes": (
        *map(_contained, (94, 145, 999)),
        *map(_reboot, (151, 167, 168)),
        *map(_of_a_program, (13, 31)),
    ),
    "what NVML recommends": (
        _asks("reset", "needs-reset", "Unhealthy", "GpuNeedsReset"),
        _asks("bus-reset", "needs-reset", "Unhealthy", "GpuNeedsReset"),
        _asks("drain-and-reset", "needs-reset", "Healthy", "GpuNeedsReset"),
        _asks("node-reboot", "needs-reboot", "Unhealthy", "GpuNeedsReboot"),
        _asks("system-reboot", "needs-reboot", "Unhealthy", "GpuNeedsReboot"),
        _asks("drain-p2p", "fabric", "Unhealthy", "GpuFabricNotReady"),
        _asks("recover-imex", "fabric", "Unhealthy", "GpuFabricNotReady"),
        SickGpu(
            "the fabric is not well",
            lambda machine, pci: machine.fabric_health(pci, FabricHealth("unhealthy", ("route-unhealthy",))),
            ("fabric=unhealthy:NoSchedule",),
            "Unhealthy",
            "GpuFabricNotReady",
        ),
    ),
    "memory, links, and calls that fail": (
        SickGpu(
            "the fabric has less than it could have",
            lambda machine, pci: machine.fabric_health(pci, FabricHealth("limited-capacity")),
            ("fabric=limited-capacity:None",),
            "Healthy",
            "GpuFabricDegraded",
        ),
        SickGpu(
            "a row that was not replaced",
            lambda machine, pci: machine.rows(pci, RemappedRows(0, 1, pending=False, failed=True)),
            ("memory=rows-failed:NoSchedule",),
            "Unhealthy",
            "GpuMemoryFaulty",
        ),
        SickGpu(
            "a row that waits for a reset",
            lambda machine, pci: machine.rows(pci, RemappedRows(0, 1, pending=True, failed=False)),
            ("memory=rows-pending:None",),
            "Healthy",
            "GpuMemoryRepairable",
        ),
        SickGpu(
            "XID 79, off the bus",
            xid(79),
            (
                "gpu-lost=nvmlDeviceGetHandleByIndex_v2:NoSchedule",
                "xid=79:NoSchedule",
                "needs-reboot=xid-79:NoSchedule",
            ),
            "Unhealthy",
            "GpuLost",
        ),
        SickGpu(
            "off the bus without a word",
            lambda machine, pci: machine.lose(pci),
            ("gpu-lost=nvmlDeviceGetHandleByIndex_v2:NoSchedule",),
            "Unhealthy",
            "GpuLost",
        ),
        SickGpu(
            "a call says that it needs a reset",
            _fail("memory_bytes", Code.RESET_REQUIRED),
            ("needs-reset=nvmlDeviceGetMemoryInfo:NoSchedule",),
            "Unhealthy",
            "GpuNeedsReset",
        ),
        SickGpu(
            "a call fails",
            _fail("memory_bytes"),
            ("failing=nvmlDeviceGetMemoryInfo:NoSchedule",),
            "Unknown",
            "GpuFails",
        ),
        SickGpu(
            "a call hangs",
            lambda machine, pci: machine.hang("memory_bytes", gpu=pci),
            ("unresponsive=nvmlDeviceGetMemoryInfo:NoSchedule",),
            "Unhealthy",
            "GpuHangs",
        ),
    ),
}
"""By round, a fault for each GPU of the node: 32 in all."""
