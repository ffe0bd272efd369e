"""Resets GPUs with nvidia-smi from the driver root: NVML has no call for it."""

from __future__ import annotations

from collections.abc import Sequence

from driver.errors import ClaimBlocked
from driver.nvml.pci_address import PciAddress
from kubeletplugin.devices.host.driver_programs import DriverPrograms, run_program

SMI = "nvidia-smi"
RESET_SECONDS = 180.0
"""A reset takes some seconds for each GPU. Controllers keep NVML closed for at most five minutes."""


class ResetFailed(ClaimBlocked):
    """The NVIDIA driver did not reset the GPUs, or it is unknown whether it did."""


class GpuReset:
    """Resets the node's GPUs. A GPU cannot be reset while a process has it open."""

    def __init__(self, programs: DriverPrograms, timeout_seconds: float = RESET_SECONDS) -> None:
        self._programs = programs
        self._timeout_seconds = timeout_seconds

    def reset(self, gpus: Sequence[PciAddress]) -> None:
        """Reset the GPUs together.

        Raises ResetFailed with the output of nvidia-smi, NodeIncomplete if that is not installed, and
        ProgramHangs, after which the reset may still happen.
        """
        # GPUs that are linked by NVLink have to be reset in one call.
        words = ["--gpu-reset", "-i", ",".join(map(str, gpus))]
        said = run_program(self._programs.find(SMI), words, timeout_seconds=self._timeout_seconds)
        if said.code != 0:
            raise ResetFailed(
                f"nvidia-smi {' '.join(words)} failed: {said.words}",
                "end what it names; where it names nothing, restart the machine",
            )
