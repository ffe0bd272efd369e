"""Fake and binding tell each incident once, in whichever forms the NVIDIA driver tells of it."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest

from driver.nvml.health.calls import EventSet
from tests.driver.nvml.c_library import CLibrary, bound
from tests.eventually import eventually
from tests.gpus import FakeMachine, GpuEvent, GpuLost, Nvml, NvmlTimeout, SessionLost

Watch = Callable[[FakeMachine], EventSet]
STRUCTURED = "615.36.01"
LONG = 20.0
"""Longer than any wait here takes: what is expected ends it."""


def watching(nvml: Nvml) -> EventSet:
    """A new session's event set of all GPUs."""
    nvml.init()
    return nvml.watch_events([nvml.device_by_index(index) for index in range(nvml.device_count())])


@pytest.fixture(params=["fake", "binding"])
def watch(request: pytest.FixtureRequest) -> Watch:
    """Watches all GPUs of a machine, by the fake or the binding."""

    def through(machine: FakeMachine) -> EventSet:
        nvml = machine.nvml()
        return watching(nvml if request.param == "fake" else bound(CLibrary(nvml)))

    return through


def all_of(events: EventSet) -> list[GpuEvent]:
    """What there is to hear now."""
    return [*iter(lambda: events.wait(0.3), None)]


@pytest.mark.parametrize("version", ["570.133.20", STRUCTURED])
def test_an_xid_names_its_gpu_and_its_partition(machine: FakeMachine, watch: Watch, version: str) -> None:
    machine.driver_back(version)
    events = watch(machine)
    machine.xid(2, 94, gpu_instance=3, compute_instance=1)
    machine.xid(2, 31)
    uuid = machine.uuid(machine.pci(2))
    assert all_of(events) == [GpuEvent("xid", uuid, 94, 3, 1), GpuEvent("xid", uuid, 31)]


def test_an_incident_in_two_forms_is_told_once_with_what_both_know(
    machine: FakeMachine, watch: Watch
) -> None:
    machine.driver_back(STRUCTURED)
    events = watch(machine)
    first: Any = {"severity": "fatal", "contained": False, "component_reset": True, "incident": "12"}
    machine.event(4, xid=95, gpu_instance=2, compute_instance=0, **first)
    later: Any = {"severity": "recoverable", "contained": True, "recovered": True, "incident": "13"}
    machine.event(4, dropped=True, **later)
    uuid = machine.uuid(machine.pci(4))
    expected = [
        GpuEvent("xid", uuid, 95, 2, 0, **first),
        GpuEvent("operational", uuid, dropped=True, **later),
    ]
    assert all_of(events) == expected


@pytest.mark.parametrize("kind", ["single-bit-ecc", "double-bit-ecc", "clock", "power-source", "operational"])
def test_other_kinds_of_events_are_told_by_their_names(machine: FakeMachine, watch: Watch, kind: str) -> None:
    events = watch(machine)
    machine.event(0, kind=kind)  # type: ignore[arg-type]  # one of them
    assert [one.kind for one in all_of(events)] == [kind]


def test_a_lost_gpu_is_told_after_its_xid_and_a_new_set_goes_on_with_the_others(
    machine: FakeMachine, watch: Watch
) -> None:
    events = watch(machine)
    machine.xid(5, 79)
    told = events.wait(LONG)
    assert told is not None
    assert told.xid == 79
    with pytest.raises(GpuLost):
        events.wait(LONG)
    events.close()


def test_the_binding_hears_the_old_form_alone_from_a_library_that_lacks_the_new_one(
    machine: FakeMachine, library: CLibrary
) -> None:
    library.has_version_3_of_wait = False
    events = watching(bound(library))
    machine.xid(1, 48)
    told = events.wait(LONG)
    assert told == GpuEvent("xid", machine.uuid(machine.pci(1)), 48)


def test_a_gpu_that_refuses_to_be_watched_is_left_out(machine: FakeMachine, watch: Watch) -> None:
    machine.fail("register_events", gpu=6)
    events = watch(machine)
    assert machine.uuid(machine.pci(6)) not in events.watched()
    assert len(events.watched()) == 7


@pytest.mark.parametrize("frees", [True, False])
@pytest.mark.parametrize("how", ["close", "shutdown"])
def test_another_thread_ends_a_wait(library: CLibrary, how: str, *, frees: bool) -> None:
    nvml = bound(library)
    library.frees = frees
    events = watching(nvml)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(events.wait, LONG)
        if how == "close":
            events.close()
        else:
            nvml.shutdown()
        with pytest.raises(SessionLost):
            waiting.result()
    if how == "close":
        assert len(nvml.watch_events([nvml.device_by_index(0)]).watched()) == 1
        assert [one.freed for one in library.sets] == [frees, False]
        nvml.shutdown()
    assert {one.freed for one in library.sets} == {frees}
    with pytest.raises(SessionLost):
        nvml.driver_version()


def test_a_session_is_kept_while_a_wait_hangs_and_taken_over_by_the_next(
    machine: FakeMachine, library: CLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NVML would free what the thread still uses; and a session begun twice would hold the GPUs for good."""
    monkeypatch.setattr("driver.nvml.real._LEAVE_SECONDS", 0.05)
    nvml = bound(library)
    events = watching(nvml)
    machine.hang("wait_events")
    entered = Event()

    def wait() -> object:
        entered.set()
        return events.wait(0)

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait)
        entered.wait(LONG)
        under_way = events._waiting.locked  # type: ignore[attr-defined]  # noqa: SLF001 - it is locked meanwhile
        eventually("the call is under way", under_way)
        events.close()  # which does not wait
        with pytest.raises(NvmlTimeout, match="nvmlEventSetWait_v2"):
            nvml.shutdown()
        assert nvml.driver_version()
        nvml.init()
        machine.heal()
        with pytest.raises(SessionLost):
            waiting.result()
    nvml.shutdown()
    assert [one.freed for one in library.sets] == [True]
    with pytest.raises(SessionLost):
        nvml.driver_version()
