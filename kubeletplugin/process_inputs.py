"""What the plugin gets from its starter besides flags: the waits of its loops, and the kinds of devices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from driver.process.pulse import HUNG_SECONDS

if TYPE_CHECKING:
    from kubeletplugin.devices.kinds.registry import KindsOf


@dataclass(frozen=True, slots=True)
class Intervals:
    """The plugin's waits, by default those of a real node.

    No flag sets them: whoever calls the command in Python gives others as its context object. Every
    ``check_seconds`` the GPUs are looked at, and what could not be put back or let go is tried again: twice
    within the time after which the kubelet takes a device that it does not hear of for unknown. Claims that
    are gone from the API are looked for every ``reconcile_seconds``. A journal that cannot be read is read
    again after ``state_again_seconds``. Whether the NVIDIA driver was loaded anew, which ends the limits of
    memory, is looked at every ``driver_load_seconds``: one stat(2), since sysfs tells of no change. Changes
    of what claims hold are told together when they come within ``state_settle_seconds``. Prepare waits up to
    ``patience_seconds`` for what passes by itself. What retires tries again after ``retire_again_seconds``,
    some times.
    """

    check_seconds: float = 15.0
    reconcile_seconds: float = 300.0
    state_again_seconds: float = 5.0
    driver_load_seconds: float = 1.0
    state_settle_seconds: float = 0.02
    patience_seconds: float = 40.0
    retire_again_seconds: float = 1.0


@dataclass(frozen=True, slots=True)
class Given:
    """``kinds()`` gives the kinds that the node prepares, None for the driver's own.

    It is called behind the open sockets, so that what it imports delays nothing. Work of the process
    that takes longer than ``hung_seconds`` hangs.
    """

    intervals: Intervals = field(default_factory=Intervals)
    kinds: Callable[[], KindsOf] | None = None
    hung_seconds: float = HUNG_SECONDS
