"""Inputs of the controller besides its flags, for callers in Python."""

from __future__ import annotations

from dataclasses import dataclass, field

from controller.intervals import Intervals
from driver.process.pulse import HUNG_SECONDS


@dataclass(frozen=True, slots=True)
class Given:
    """Work that takes longer than ``hung_seconds`` counts as hung, and the liveness probe fails."""

    intervals: Intervals = field(default_factory=Intervals)
    hung_seconds: float = HUNG_SECONDS
