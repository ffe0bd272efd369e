"""The tree of errors that the driver raises. Each says what happened and whether a retry can help.

    DriverError
    ├── ConfigError            permanent   a flag, a file or the node configuration is wrong
    │   ├── FieldsDropped      permanent   the API server drops fields of slices (controller.publish)
    │   └── NotUnderstood      permanent   a damaged checkpoint of NVIDIA's driver (kubeletplugin.migration)
    ├── NvmlError              retryable   an NVML call failed (driver.nvml.api knows the kinds)
    ├── FabricError            retryable   the fabric manager did not do what it was asked (driver.fabric)
    │   └── NotShared          permanent   it is not in shared NVSwitch mode (likewise)
    ├── ApiError               retryable   the Kubernetes API refused or did not answer (driver.kube.errors)
    ├── ClaimError
    │   ├── ClaimRefused       permanent   the claim can never be prepared as it stands
    │   │   └── MalformedConfig permanent  an opaque configuration has errors (driver.claims.opaque)
    │   └── ClaimBlocked       retryable   something that passes stands in the way
    │       ├── DeviceHeld     retryable   another claim still holds the device
    │       ├── LateCall       retryable   a call waited until it was not to be done (kubeletplugin.claims)
    │       ├── InstanceInUse  retryable   a process uses a MIG instance (devices.kinds.partition)
    │       ├── NoRoom         retryable   a MIG instance was made in the way just now (likewise)
    │       ├── PartitionTaken retryable   a fabric partition in the way is active (devices.fabric)
    │       ├── FunctionInUse  retryable   a process has a PCI function open (kubeletplugin.devices.vfio)
    │       ├── FunctionInDoubt retryable  the kernel has not ended a change of a PCI function (likewise)
    │       └── FunctionNotMoved retryable the kernel refused a change of a PCI function (likewise)
    ├── CannotTakeOver         retryable   claims of NVIDIA's driver have to end (kubeletplugin.migration)
    ├── CudaError              retryable   a call of the CUDA driver API failed (gpuctl.probe)
    ├── HardwareChanged        permanent   the device is not the one that was published
    ├── NodeIncomplete         retryable   a file or a device node of the NVIDIA driver is missing
    └── StorageError           retryable   the journal or a CDI spec could not be written or read

Library errors are translated once, where they enter, with ``raise ... from``.
"""

from __future__ import annotations

from typing import ClassVar, Literal, get_args

_MOST_CHARACTERS = 4096


class DriverError(Exception):
    """Something went wrong that a person has to understand.

    ``what`` names the thing and what happened to it. ``way_out`` says what to do about it, and is empty if
    nothing can be done. ``retryable`` is whether the same call can succeed later without a change of the
    request. ``for_log`` is added in the node's log alone.
    """

    retryable: ClassVar[bool] = True

    def __init__(self, what: str, way_out: str = "", *, for_log: str = "") -> None:
        super().__init__(what)
        self.what = _fit_to_be_shown(what)
        self.way_out = _fit_to_be_shown(way_out)
        # The person who made the request sees the error in events, and must not learn of other namespaces
        # from it.
        self.for_log = for_log

    @property
    def logged(self) -> str:
        """The whole error, only for the node's log."""
        return f"{self} [{self.for_log}]" if self.for_log else str(self)

    def __str__(self) -> str:
        kind = "retryable" if self.retryable else "permanent"
        sentence = f"{self.what}: {self.way_out}" if self.way_out else self.what
        return f"{sentence} ({kind})"


def _fit_to_be_shown(text: str) -> str:
    """The text in a form that events, pods, logs and terminals accept."""
    # The text may quote what a tenant wrote, of any length, and is kept in events and in the journal.
    if len(text) > _MOST_CHARACTERS:
        text = f"{text[:_MOST_CHARACTERS]}…"
    if text.isprintable():
        return text
    # Control characters could change a terminal, and lone surrogates cannot be encoded as UTF-8.
    return "".join(letter if letter.isprintable() or letter == "\n" else "?" for letter in text)


class ConfigError(DriverError):
    """A flag, a file or the node configuration cannot be used."""

    retryable = False


class NvmlError(DriverError):
    """An NVML call failed; its kinds are in ``driver.nvml.api``."""


class ApiError(DriverError):
    """The Kubernetes API refused a request or did not answer; its kinds are in ``driver.kube.errors``."""


class ClaimError(DriverError):
    """A claim cannot be prepared."""


class ClaimRefused(ClaimError):
    """The claim can never be prepared as it is: it has to be changed or created again."""

    retryable = False


class ClaimBlocked(ClaimError):
    """Something temporary is in the way of the claim, for example another claim that has the device."""


class DeviceHeld(ClaimBlocked):
    """Another claim still holds a device of this one, until that claim is unprepared.

    ``holders`` are the UIDs of these claims. It is empty if a container still has the devices that this claim
    had before it was allocated again.
    """

    def __init__(
        self, what: str, way_out: str = "", *, for_log: str = "", holders: tuple[str, ...] = ()
    ) -> None:
        super().__init__(what, way_out, for_log=for_log)
        self.holders = holders


class CudaError(DriverError):
    """A call of the CUDA driver API failed, or libcuda could not be loaded.

    ``call`` is the function of cuda.h, or ``dlopen``. ``code`` is its CUresult, None if it returned none.
    ``name`` is CUDA's name of the code, or what the dynamic linker said.
    """

    def __init__(self, call: str, code: int | None, name: str) -> None:
        super().__init__(f"{call} failed: {name}" + ("" if code is None else f" ({code})"))
        self.call = call
        self.code = code
        self.name = name


class HardwareChanged(DriverError):
    """The device that was allocated to the claim is not the one that is there now."""

    retryable = False


class NodeIncomplete(DriverError):
    """A file or a device node is missing that the NVIDIA driver should have made."""


class StorageError(DriverError):
    """A file that must not be lost could not be written or read."""


Outcome = Literal["ok", "retryable", "permanent", "internal"]
"""How an operation ended, for logs and metrics.

``retryable`` and ``permanent`` are DriverErrors of that kind; ``internal`` is a fault of this driver.
"""

OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)


def outcome_of(error: BaseException | None) -> Outcome:
    """The outcome of an operation that ended with this error, or with none."""
    if error is None:
        return "ok"
    if isinstance(error, DriverError):
        return "retryable" if error.retryable else "permanent"
    return "internal"
