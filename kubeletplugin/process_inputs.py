"""What whoever starts the plugin hands it besides its flags."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from driver.process.pulse import HUNG_SECONDS
from kubeletplugin.intervals import Intervals

if TYPE_CHECKING:
    from collections.abc import Callable

    from kubeletplugin.devices.kinds.registry import KindsOf


@dataclass(frozen=True, slots=True)
class Given:
    """``kinds()`` gives the kinds that the node prepares, None for the driver's own.

    It is called behind the open sockets, so that what it imports delays nothing. Work of the process
    that takes longer than ``hung_seconds`` hangs.
    """

    intervals: Intervals = field(default_factory=Intervals)
    kinds: Callable[[], KindsOf] | None = None
    hung_seconds: float = HUNG_SECONDS
