"""The protocol of the fabric manager over plain values, and the errors of its calls.

In shared NVSwitch mode (FABRIC_MODE=1) the fabric manager keeps a list of fabric partitions: sets of GPUs
whose NVLinks can be connected with each other and with no others. The NVLinks of a GPU are down until a
partition with that GPU is active. The binding and the fake implement the protocol and pass the same contract
tests.
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
    """fmReturn_t of nv_fm_types.h; a code that is not here stays a plain number."""

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
    """A call of the fabric manager failed. ``code`` is its return code, None if it did not answer."""

    default_way_out: ClassVar[str] = f"see the log of {SERVICE} on the node"

    def __init__(self, what: str, way_out: str = "", code: int | None = None) -> None:
        super().__init__(what, way_out or self.default_way_out)
        self.code = code


class NoFabricManager(FabricError):
    """The fabric manager does not run, or its library is not installed."""

    default_way_out = f"check that {SERVICE} runs on the node; no restart of the driver is needed"


class NotShared(FabricError):
    """The fabric manager runs but is not in shared NVSwitch mode, so it has no partitions."""

    retryable = False
    default_way_out = "set FABRIC_MODE=1 in its configuration and restart it"


class AlreadyActive(FabricError):
    """The partition, or one that shares a GPU with it, is active."""


class NotActive(FabricError):
    """The partition that was to be deactivated is not active."""


class FabricTimeout(FabricError):
    """The fabric manager did not answer in time; it may still carry out the call."""


_ERRORS: dict[int, type[FabricError]] = {
    FabricCode.NOT_SUPPORTED: NotShared,
    FabricCode.CONNECTION_NOT_VALID: NoFabricManager,
    FabricCode.IN_USE: AlreadyActive,
    FabricCode.TIMEOUT: FabricTimeout,
}
_WAYS_OUT: dict[int, str] = {
    FabricCode.NOT_CONFIGURED: "it is still starting, and is asked again",
    FabricCode.VERSION_MISMATCH: "install the fabric manager and the driver in the same version",
    FabricCode.NVLINK_ERROR: f"NVLinks did not come up: see the log of {SERVICE} and the kernel log",
}


def fabric_failure(call: str, code: int, subject: str = "") -> FabricError:
    """The error for a return code; no other place makes errors of codes.

    ``call`` is the C function, ``subject`` the partition, empty for none.
    """
    name = FabricCode(code).name if code in FabricCode.__members__.values() else "ERROR"
    what = f"{call}{f' of {subject}' if subject else ''} failed with {name} ({code})"
    # As the answer to a deactivation this code means that the partition is not active (nv_fm_agent.h).
    if code == FabricCode.UNINITIALIZED and call == CALLS["deactivate"]:
        return NotActive(what, code=code)
    return _ERRORS.get(code, FabricError)(what, _WAYS_OUT.get(code, ""), code)


CALLS: dict[str, str] = {
    "partitions": "fmGetSupportedFabricPartitions",
    "activate": "fmActivateFabricPartition",
    "deactivate": "fmDeactivateFabricPartition",
    "set_activated": "fmSetActivatedFabricPartitions",
}
"""Methods of FabricManager, each with the C function that it calls and that errors name."""


@dataclass(frozen=True, slots=True)
class FabricGpu:
    """A GPU of a partition. ``physical_id`` is the fabric manager's number of it.

    ``uuid`` and ``pci`` are None if the fabric manager does not give them, as for a GPU that is not bound to
    the NVIDIA driver.
    """

    # From Hopper on it is the module id that NVML gives; on HGX A100 it is not.
    physical_id: int
    uuid: str | None = None
    pci: PciAddress | None = None


@dataclass(frozen=True, slots=True)
class FabricPartition:
    """A set of GPUs that can be connected; ``number`` is the fabric manager's id, which may be 0."""

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
        """A value that changes when the fabric manager is started again.

        None if no fabric manager or no library is there. Costs a few calls of stat.
        """
        ...

    def partitions(self) -> tuple[FabricPartition, ...]:
        """All partitions that the hardware allows, sorted by number (fmGetSupportedFabricPartitions).

        Raises NotShared if the fabric manager is in another mode.
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
        """Tell a restarted fabric manager which partitions are active (fmSetActivatedFabricPartitions).

        One that was started with FABRIC_MODE_RESTART=1 waits for this call and serves no other call before.
        The call changes no link.
        """
        ...
