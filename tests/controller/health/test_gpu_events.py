"""People are told of what is wrong in the order in which it went wrong."""

import threading

from controller.health.gpu_events import FaultEvents
from driver.health.verdict import Verdict
from tests.controller.heard_events import HeardEvents
from tests.gpus import HealthRules, Incident, PciAddress, Region, verdicts_of

SICK = tuple(verdicts_of(Incident(Region(PciAddress(0, 0x17, 0, 0)), 95, None), HealthRules()))


def test_a_thread_that_saw_a_sick_gpu_does_not_tell_so_after_another_said_that_it_is_well() -> None:
    events = HeardEvents()
    fault_events = FaultEvents(events)
    seen, go_on = threading.Event(), threading.Event()

    def saw_it_sick() -> tuple[Verdict, ...]:
        seen.set()
        assert go_on.wait(30)
        return SICK

    threads = [
        threading.Thread(target=fault_events.post_changes, args=(look,)) for look in (saw_it_sick, tuple)
    ]
    threads[0].start()
    assert seen.wait(30)
    threads[1].start()
    threads[1].join(0.1)  # it waits for the first, else it would be done by now
    go_on.set()
    for thread in threads:
        thread.join(30)

    assert [reason for _, reason, _ in events.posted] == ["GpuSick", "GpuWell"]
