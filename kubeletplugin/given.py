"""What whoever starts the plugin hands it besides its flags."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kubeletplugin.intervals import Intervals

if TYPE_CHECKING:
    from collections.abc import Callable

    from kubeletplugin.kinds.registry import KindsOf


@dataclass(frozen=True, slots=True)
class Given:
    """``kinds()`` gives the kinds that the node prepares, None for the driver's own.

    It is called behind the open sockets, so that what it imports delays nothing.
    """

    intervals: Intervals = field(default_factory=Intervals)
    kinds: Callable[[], KindsOf] | None = None
