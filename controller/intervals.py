"""How long the controller waits in its loops."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Intervals:
    """The controller's waits, by default those of a real node; of pairs the first and the longest.

    No flag sets them: a caller in Python gives others as the command's context object. The GPUs and the
    rules are checked every ``check_seconds``. ``settle_seconds`` pass from the taint of a device until the
    claims are listed: most schedulers that had not seen the taint have written by then;
    ``look_again_seconds`` pass before they are listed again. For ``late_claim_seconds`` after devices were
    withdrawn a claim may still be given one: a scheduler waits 600 s for a volume and 900 s for a permit at
    most. ``debounce_seconds`` are waited for more changes of the slices: a kubelet that wipes them deletes
    one after the other. After ``quiet_seconds`` without a write a change is answered as quickly as the
    first. Everything is compared again every ``resync_seconds``, should a change have gone unseen.
    An API server that is too old is asked for its version again after ``version_again_seconds``.
    Several kubelet plugins that serve for ``companion_seconds`` are reported.
    The folder is searched for a new plugin every ``socket_seconds``; one that was not reached is tried again
    after ``listen_again_seconds``.
    A plugin that could not turn on virtual functions is asked again after ``virtual_again_seconds``.
    A check that began within ``fault_quiet_seconds`` after an event does not end its fault. A fault that came
    back counts for ``fault_hold_seconds`` more after it is over.
    """

    check_seconds: float = 15.0
    settle_seconds: float = 2.0
    look_again_seconds: tuple[float, float] = (2.0, 60.0)
    late_claim_seconds: float = 1800.0
    debounce_seconds: tuple[float, float] = (0.1, 5.0)
    quiet_seconds: float = 10.0
    resync_seconds: float = 60.0
    version_again_seconds: float = 60.0
    companion_seconds: float = 600.0
    socket_seconds: float = 0.2
    listen_again_seconds: float = 0.5
    virtual_again_seconds: float = 60.0
    fault_quiet_seconds: float = 5.0
    fault_hold_seconds: tuple[float, float] = (30.0, 600.0)
