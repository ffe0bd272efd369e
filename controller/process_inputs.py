"""Inputs of the controller besides its flags, for callers in Python."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from controller.intervals import Intervals
from driver.process.pulse import HUNG_SECONDS

if TYPE_CHECKING:
    from driver.kinds.kind import Kinds


@dataclass(frozen=True, slots=True)
class Given:
    """``kinds()`` gives the kinds that the node offers; None means the driver's own.

    Work of the process that takes longer than ``hung_seconds`` counts as hung, and the liveness probe fails.
    """

    intervals: Intervals = field(default_factory=Intervals)
    kinds: Callable[[], Kinds] | None = None
    hung_seconds: float = HUNG_SECONDS
