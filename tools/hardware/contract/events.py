"""What NVML promises about sets of events."""

from __future__ import annotations

from functools import partial

from driver.nvml.api import NotSupported, Nvml, NvmlDevice, SessionLost
from driver.nvml.health.calls import EventSet
from tools.hardware.contract.clause import NothingToCheck, clause, expect, expect_failure
from tools.hardware.contract.sessions import first_gpu

_SECONDS = 10.0
"""A wait of an ended set returns at once; one that does not waits so long."""


def _watch(nvml: Nvml, *devices: NvmlDevice) -> EventSet:
    """A set of events; raises NothingToCheck where NVML has none."""
    try:
        return nvml.watch_events(devices)
    except NotSupported as error:
        raise NothingToCheck(error.what) from error


@clause("event sets", "A set watches the GPUs that it was given and no others, and ends when it is closed.")
def _watches_the_gpus_that_it_was_given(nvml: Nvml) -> None:
    device = first_gpu(nvml)
    events = _watch(nvml, device)
    watched, uuid = events.watched(), device.uuid()
    expect(watched <= {uuid}, f"a set that was made for {uuid} watches {', '.join(sorted(watched))}")
    kinds = events.kinds()
    expect(kinds.keys() == watched and all(kinds.values()), f"it watches {sorted(watched)} for {kinds}")
    # An event may come just now.
    event = events.wait(0)
    expect(event is None or event.uuid in ("", uuid), f"an event of another GPU came: {event}")
    events.close()
    expect_failure("a wait for events of a closed set", partial(events.wait, _SECONDS), SessionLost)
    events.close()
    if not watched:
        raise NothingToCheck(f"{uuid} reports no events")


@clause("event sets without GPUs", "A set without GPUs can be made, and gets no events.")
def _waits_for_nothing_without_gpus(nvml: Nvml) -> None:
    nvml.init()
    events = _watch(nvml)
    expect(not events.watched(), f"a set without GPUs watches {', '.join(sorted(events.watched()))}")
    event = events.wait(0)
    expect(event is None, f"an event came to a set without GPUs: {event}")
    events.close()


@clause(
    "event sets of an ended session",
    "A set of events ends with its session: waiting for its events fails at once.",
)
def _ends_sets_with_the_session(nvml: Nvml) -> None:
    events = _watch(nvml, first_gpu(nvml))
    nvml.shutdown()
    expect_failure("a wait for events of an ended session", partial(events.wait, _SECONDS), SessionLost)


@clause(
    "event sets in the next session",
    "The next session watches the same GPUs, also if a set was left open.",
)
def _watches_again_in_the_next_session(nvml: Nvml) -> None:
    watched = []
    for _ in range(2):
        watched.append(_watch(nvml, first_gpu(nvml)).watched())
        nvml.shutdown()
    first, second = watched
    expect(first == second, f"a set watches {sorted(first)}, and {sorted(second)} in the next session")


EVENT_CLAUSES = (
    _ends_sets_with_the_session,
    _watches_again_in_the_next_session,
    _watches_the_gpus_that_it_was_given,
    _waits_for_nothing_without_gpus,
)
"""The clauses about events."""
