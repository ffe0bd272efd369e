"""What the plugin's caller can set besides flags: the intervals of its loops."""

from __future__ import annotations

from dataclasses import dataclass, field

from driver.process.pulse import HUNG_SECONDS


@dataclass(frozen=True, slots=True)
class Intervals:
    """The plugin's intervals in seconds, by default those of a real node.

    No flag sets them: a caller in Python passes others as the context object of the command.
    """

    # The GPUs are checked, and failed releases are tried again: twice within the 30 s after which the
    # kubelet shows a device as Unknown.
    check_seconds: float = 15.0
    # Claims that are gone from the API server are looked for.
    reconcile_seconds: float = 300.0
    # A journal that cannot be read is read again.
    state_again_seconds: float = 5.0
    # Another load of the NVIDIA driver, which ends all memory limits, is looked for. sysfs does not report
    # it, so this costs one stat(2) each time.
    driver_load_seconds: float = 1.0
    # Changes of what claims hold within this time are sent together.
    state_settle_seconds: float = 0.02
    # Prepare waits this long for conditions that pass by themselves; the kubelet gives up after 45 s.
    patience_seconds: float = 40.0
    # The uninstallation tries again.
    retire_again_seconds: float = 1.0


@dataclass(frozen=True, slots=True)
class Given:
    """Work of the process that takes longer than ``hung_seconds`` counts as hanging."""

    intervals: Intervals = field(default_factory=Intervals)
    hung_seconds: float = HUNG_SECONDS
