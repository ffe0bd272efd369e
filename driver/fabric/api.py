"""The protocol of the fabric manager over plain values, and the errors of its calls.

In shared NVSwitch mode (FABRIC_MODE=1) the fabric manager keeps a list of fabric partitions: sets of GPUs
whose NVLinks can be connected with each other and with no others. No NVLink of a GPU is up before a
partition with it is active. The binding and the fake implement the protocol and pass the same contract tests.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, Protocol

from driver.errors import DriverError
from driver.nvml.pci_address import PciAddress

SERVICE = "nvidia-fabricmanager"


class FabricCode(IntEnum):
    """fmReturn_t of nv_fm_types.h; others stay plain numbers."""

    SUCCESS = 0
    BADPARAM = -1
    GENERIC_ERROR = -2
    NOT_SUPPORTED = -3
    UNINITIALIZED = -4
    TIMEOUT = -5
    VERSION_MISMATCH = -6
    IN_USE = -7
    NOT_CONFIGURED = -8
    CONNECTION_NOT_VALID = -9
    NVLINK_ERROR = -10


class FabricError(DriverError):
    """The fabric manager did not do what it was asked. ``code`` is its answer, None without one."""

    default_way_out: ClassVar[str] = f"look at the log of {SERVICE} on the node"

    def __init__(self, what: str, way_out: str = "", code: int | None = None) -> None:
        super().__init__(what, way_out or self.default_way_out)
        self.code = code


class NoFabricManager(FabricError):
    """Nobody answers: the fabric manager does not run, or its library is not there."""

    default_way_out = f"see that {SERVICE} runs on the node; it is noticed by itself"


class NotShared(FabricError):
    """The fabric manager runs, and has no partitions to give: it is not in shared NVSwitch mode."""

    retryable = False
    default_way_out = "set FABRIC_MODE=1 in its configuration and start it anew"


class AlreadyActive(FabricError):
    """The partition, or one that shares a GPU with it, is active."""


class NotActive(FabricError):
    """The partition that was to be deactivated is not active."""


class FabricTimeout(FabricError):
    """The fabric manager did not answer in time; what was asked may still be done."""


_ERRORS: dict[int, type[FabricError]] = {
    FabricCode.NOT_SUPPORTED: NotShared,
    FabricCode.CONNECTION_NOT_VALID: NoFabricManager,
    FabricCode.IN_USE: AlreadyActive,
    FabricCode.TIMEOUT: FabricTimeout,
}
_WAYS_OUT: dict[int, str] = {
    FabricCode.NOT_CONFIGURED: "it is still starting: it is asked again",
    FabricCode.VERSION_MISMATCH: "install the fabric manager and the driver in the same version",
    FabricCode.NVLINK_ERROR: f"NVLinks did not come up: look at the log of {SERVICE} and at the kernel's",
}


def fabric_failure(call: str, code: int, subject: str = "") -> FabricError:
    """The error for a return code: the one place where codes become errors.

    ``call`` is the C function, ``subject`` the partition, empty for none. UNINITIALIZED says of a
    deactivation that the partition is not active (nv_fm_agent.h).
    """
    name = FabricCode(code).name if code in FabricCode.__members__.values() else "ERROR"
    what = f"{call}{f' of {subject}' if subject else ''} failed with {name} ({code})"
    if code == FabricCode.UNINITIALIZED and call == CALLS["deactivate"]:
        return NotActive(what, code=code)
    return _ERRORS.get(code, FabricError)(what, _WAYS_OUT.get(code, ""), code)


CALLS: dict[str, str] = {
    "partitions": "fmGetSupportedFabricPartitions",
    "activate": "fmActivateFabricPartition",
    "deactivate": "fmDeactivateFabricPartition",
    "set_activated": "fmSetActivatedFabricPartitions",
}
"""The calls: method of FabricManager -> C function that errors name."""


@dataclass(frozen=True, slots=True)
class FabricGpu:
    """A GPU of a partition. ``physical_id`` is the fabric manager's number of it.

    From Hopper on that is NVML's module id; on HGX A100 it is not. ``uuid`` and ``pci`` are None where the
    fabric manager does not tell, as for a GPU that the NVIDIA driver does not have.
    """

    physical_id: int
    uuid: str | None = None
    pci: PciAddress | None = None


@dataclass(frozen=True, slots=True)
class FabricPartition:
    """A set of GPUs that can be connected; ``number`` is the fabric manager's id of it, which may be 0."""

    number: int
    gpus: tuple[FabricGpu, ...]
    active: bool = False

    @property
    def physical_ids(self) -> frozenset[int]:
        """The GPUs by the fabric manager's numbers."""
        return frozenset(gpu.physical_id for gpu in self.gpus)

    def __str__(self) -> str:
        ids = ", ".join(map(str, sorted(self.physical_ids)))
        return f"fabric partition {self.number} (modules {ids})"


class FabricManager(Protocol):
    """The fabric manager of this node. All calls but ``instance`` may raise FabricError."""

    def instance(self) -> Hashable | None:
        """Identifies the fabric manager that runs now, so that one that is started later differs.

        None where there is none, or no library to ask it with. Costs a few calls of stat.
        """
        ...

    def partitions(self) -> tuple[FabricPartition, ...]:
        """All partitions that the hardware allows, sorted by number (fmGetSupportedFabricPartitions).

        Raises NotShared where it is in another mode.
        """
        ...

    def activate(self, partition: int) -> None:
        """Connect the GPUs (fmActivateFabricPartition).

        Raises AlreadyActive for a partition that is active, and for one that shares a GPU with an active one.
        """
        ...

    def deactivate(self, partition: int) -> None:
        """Disconnect the GPUs (fmDeactivateFabricPartition); raises NotActive."""
        ...

    def set_activated(self, partitions: tuple[int, ...]) -> None:
        """Tell a restarted fabric manager what is active (fmSetActivatedFabricPartitions).

        It waits for this when it was started with FABRIC_MODE_RESTART=1, does nothing else meanwhile, and
        changes no link.
        """
        ...
