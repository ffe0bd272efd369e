"""How long the kubelet plugin waits in its loops."""

from __future__ import annotations

from dataclasses import dataclass


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
