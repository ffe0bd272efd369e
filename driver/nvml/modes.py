"""The calls of NVML about the modes of one GPU: compute mode and persistence mode."""

from __future__ import annotations

from typing import Literal, Protocol

ComputeMode = Literal["default", "prohibited", "exclusive-process"]


class ModeCalls(Protocol):
    """The part of a GPU's handle about its modes; every call may raise NvmlError."""

    def compute_mode(self) -> ComputeMode | None:
        """How many processes may compute on the GPU (nvmlDeviceGetComputeMode).

        None is a mode that CUDA no longer has (EXCLUSIVE_THREAD).
        """
        ...

    def set_compute_mode(self, mode: ComputeMode) -> None:
        """Set it until the kernel driver is loaded again (nvmlDeviceSetComputeMode); needs root.

        Processes that compute already go on. NotSupported: this is a vGPU guest, or MIG is on, and the mode
        stays DEFAULT. NvmlCallFailed with NO_PERMISSION: not root.
        """
        ...

    def persistence_mode(self) -> bool:
        """Whether the GPU stays initialised while it is unused (nvmlDeviceGetPersistenceMode).

        NotSupported where the platform has no such mode.
        """
        ...

    def set_persistence_mode(self, on: bool) -> None:
        """Set it until the kernel driver lets go of the GPU (nvmlDeviceSetPersistenceMode).

        If nvidia-persistenced runs, NVML asks that daemon to open or close the GPU. NvmlCallFailed with
        NO_PERMISSION: not root.
        """
        ...


MODE_CALLS: dict[str, str] = {
    "compute_mode": "nvmlDeviceGetComputeMode",
    "set_compute_mode": "nvmlDeviceSetComputeMode",
    "persistence_mode": "nvmlDeviceGetPersistenceMode",
    "set_persistence_mode": "nvmlDeviceSetPersistenceMode",
}
"""The calls about modes: method of ModeCalls -> C function that errors name."""
