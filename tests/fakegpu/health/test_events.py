"""What a fake machine's driver tells of its GPUs reaches whoever waits, in whichever process."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from driver.nvml.health.calls import GpuEvent
from fakegpu.health.calls import FakeEventSet
from fakegpu.machine.fake_machine import FakeMachine
from fakegpu.nvml.fake_nvml import FakeNvml

LONG = 20.0
"""Longer than any wait here takes: what is expected ends it."""


def watching(machine: FakeMachine) -> tuple[FakeNvml, FakeEventSet]:
    """A session, and an event set of all GPUs."""
    nvml = machine.nvml()
    nvml.init()
    devices = [nvml.device_by_index(index) for index in range(nvml.device_count())]
    return nvml, nvml.watch_events(devices)


@pytest.fixture(params=["in one process", "by a file"])
def machines(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[FakeMachine, FakeMachine]:
    """A machine twice: the one that is watched, and the one that deeds are done to."""
    if request.param == "by a file":
        flag = f"hgx-h100@{tmp_path / 'state'}"
        return FakeMachine.open(flag), FakeMachine.open(flag)
    machine = FakeMachine.open("hgx-h100")
    return machine, machine


def test_a_waiting_thread_hears_of_what_another_process_does(
    machines: tuple[FakeMachine, FakeMachine],
) -> None:
    watched, other = machines
    _, events = watching(watched)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(events.wait, LONG)
        other.xid(3, 94, gpu_instance=2, compute_instance=0)
        assert waiting.result() == GpuEvent("xid", other.uuid(other.pci(3)), 94, 2, 0)
    assert events.wait(0) is None
