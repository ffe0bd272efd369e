"""The waiting times of the controller's loops."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Intervals:
    """The controller's waiting times, by default those of a real node; a pair is the first and the longest.

    No flag sets them. A caller in Python passes others in the command's context object.
    """

    # Between two checks of the GPUs and the rules.
    check_seconds: float = 15.0
    # From the taint of a device until the claims are listed: most schedulers that had not seen the taint have
    # written their allocation by then.
    settle_seconds: float = 2.0
    # Between two lists of the claims while a device that has to go is still allocated.
    list_again_seconds: tuple[float, float] = (2.0, 60.0)
    # For more changes of the slices before a sync: a kubelet that starts deletes them one after the other.
    debounce_seconds: tuple[float, float] = (0.1, 5.0)
    # Without a write for this time, the next change waits only for the first of debounce_seconds again.
    quiet_seconds: float = 10.0
    # Between two comparisons of all slices, in case that a change was missed.
    resync_seconds: float = 60.0
    # Until an API server that is too old is asked for its version again.
    version_again_seconds: float = 60.0
    # How long several kubelet plugins serve before that is reported; in a rolling update two do for moments.
    companion_seconds: float = 600.0
    # Between two searches of the folder for a new plugin's socket.
    socket_seconds: float = 0.2
    # Until a plugin that could not be reached is tried again.
    listen_again_seconds: float = 0.5
    # Until a plugin that could not turn on virtual functions is asked again.
    virtual_again_seconds: float = 60.0
    # A check that began within this time after an event does not end its fault: the NVIDIA driver may not
    # have updated its recovery action yet.
    fault_quiet_seconds: float = 5.0
    # How much longer a fault that came back counts after it is over.
    fault_hold_seconds: tuple[float, float] = (30.0, 600.0)
