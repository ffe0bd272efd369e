"""Sets how long the processes on a GPU compute in turn, with nvidia-smi from the driver root.

NVML has no call for it. The driver forgets the setting with a reboot, and with a reset of the GPU; a GPU that
cannot is no failure, its processes take turns by the driver's own measure.
"""

from __future__ import annotations

import re
from typing import Literal

from driver.errors import ClaimBlocked
from kubeletplugin.devices.host.driver_programs import TIMEOUT_SECONDS, DriverPrograms, run_program

Interval = Literal["Default", "Short", "Medium", "Long"]

SMI = "nvidia-smi"

_NUMBERS: dict[Interval, int] = {"Default": 0, "Short": 1, "Medium": 2, "Long": 3}
_ROW = re.compile(r"\|\s*\d+\s+time-?slice\s+(\w+)\s*\|", re.ASCII | re.IGNORECASE)
"""A line of ``compute-policy --list``: the GPU's index, the policy, and its value."""

_NOT_SUPPORTED = 3
"""nvidia-smi exits with NVML's return code: NVML_ERROR_NOT_SUPPORTED."""


class TimeSlices:
    """The time-slices of the node's GPUs."""

    def __init__(self, programs: DriverPrograms, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._programs = programs
        self._timeout_seconds = timeout_seconds

    def set(self, uuid: str, interval: Interval) -> str | None:
        """Have processes on the GPU take turns so; None, or why this GPU cannot, in nvidia-smi's words.

        Raises NodeIncomplete without nvidia-smi, ClaimBlocked when it fails otherwise or does not end.
        """
        words = ["compute-policy", "-i", uuid, "--set-timeslice", str(_NUMBERS[interval])]
        said = run_program(self._programs.find(SMI), words, timeout_seconds=self._timeout_seconds)
        if said.code == _NOT_SUPPORTED:
            return said.words
        if said.code != 0:
            raise ClaimBlocked(
                f"the time-slice {interval} of GPU {uuid} could not be set: {said.words}",
                f"it is tried again; see whether {SMI} {' '.join(words)} works on the node",
            )
        return None

    def get(self, uuid: str) -> Interval | None:
        """How processes on the GPU take turns now, None where nvidia-smi does not tell.

        Its words are for people and differ between versions: what is not understood is not known. Raises
        NodeIncomplete without nvidia-smi, ClaimBlocked when it does not end.
        """
        words = ["compute-policy", "-i", uuid, "--list"]
        said = run_program(self._programs.find(SMI), words, timeout_seconds=self._timeout_seconds)
        values = [row[1].capitalize() for line in said.lines if (row := _ROW.fullmatch(line))]
        if said.code != 0 or len(values) != 1:
            return None
        return next((interval for interval in _NUMBERS if interval == values[0]), None)
