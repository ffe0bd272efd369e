"""Sets the time-slice of a GPU, with nvidia-smi from the driver root.

NVML has no call for it. A reboot or a reset of the GPU brings the default back. A GPU that does not support
time-slices is not an error: its processes take turns by the NVIDIA driver's default.
"""

from __future__ import annotations

import re
from typing import Literal

from driver.errors import ClaimBlocked
from kubeletplugin.devices.host.driver_programs import (
    KILL_SECONDS,
    TIMEOUT_SECONDS,
    DriverPrograms,
    Said,
    run_program,
)
from kubeletplugin.kubelet.wire.claim_call import left_of_call

Interval = Literal["Default", "Short", "Medium", "Long"]

SMI = "nvidia-smi"

# The values of --set-timeslice. How many milliseconds each one is, NVIDIA does not publish.
_NUMBERS: dict[Interval, int] = {"Default": 0, "Short": 1, "Medium": 2, "Long": 3}
# A line of ``compute-policy --list``: the GPU's index, the policy, and its value.
_ROW = re.compile(r"\|\s*\d+\s+time-?slice\s+(\w+)\s*\|", re.ASCII | re.IGNORECASE)
# nvidia-smi exits with NVML's return code, here NVML_ERROR_NOT_SUPPORTED.
_NOT_SUPPORTED = 3


class TimeSlices:
    """The time-slices of the node's GPUs."""

    def __init__(self, programs: DriverPrograms) -> None:
        self._programs = programs

    def set(self, uuid: str, interval: Interval) -> str | None:
        """Set the time-slice of the GPU; returns nvidia-smi's message if the GPU does not support it.

        Raises NodeIncomplete if nvidia-smi is missing, ProgramHangs if it does not end in time, ClaimBlocked
        if it fails otherwise.
        """
        arguments = ["compute-policy", "-i", uuid, "--set-timeslice", str(_NUMBERS[interval])]
        result = self._run(arguments)
        if result.code == _NOT_SUPPORTED:
            return result.words
        if result.code != 0:
            raise ClaimBlocked(
                f"cannot set the time-slice {interval} of GPU {uuid}: {result.words}",
                f"it is tried again; check whether {SMI} {' '.join(arguments)} works on the node",
            )
        return None

    def get(self, uuid: str) -> Interval | None:
        """The time-slice of the GPU now, None if unknown.

        Raises as ``set``.
        """
        result = self._run(["compute-policy", "-i", uuid, "--list"])
        # The table is made for people and differs between versions. A line that does not match must not look
        # like a changed time-slice, so it counts as unknown.
        values = [row[1].capitalize() for line in result.lines if (row := _ROW.fullmatch(line))]
        if result.code != 0 or len(values) != 1:
            return None
        return next((interval for interval in _NUMBERS if interval == values[0]), None)

    def _run(self, arguments: list[str]) -> Said:
        # A program that does not end is killed, which takes time as well.
        seconds = left_of_call(TIMEOUT_SECONDS + KILL_SECONDS) - KILL_SECONDS
        return run_program(self._programs.find(SMI), arguments, timeout_seconds=max(0.0, seconds))
