"""Every call is noted with its GPU, its outcome and its time, and a running one is known."""

from __future__ import annotations

from threading import Thread

import pytest

from driver.nvml.api import Code
from fakegpu.machine.fake_machine import FakeMachine
from tools.hardware.calls import NotedCalls, UnreadableAnswer


def test_a_call_that_has_not_returned_is_known() -> None:
    machine = FakeMachine.open("t4")
    noted = NotedCalls(machine.nvml())
    noted.nvml.init()
    device = noted.nvml.device_by_pci(machine.pci(0))
    machine.hang("name")
    thread = Thread(target=device.name)
    thread.start()
    while not noted.running:
        thread.join(0.001)
    running = [str(one) for one in noted.running]
    machine.heal()
    thread.join()

    assert running == [f"nvmlDeviceGetName of {machine.pci(0)}"]
    assert noted.running == ()


def test_an_answer_that_is_no_text_is_an_error_of_nvml() -> None:
    def decode() -> str:
        return b"\xff".decode()

    noted = NotedCalls(FakeMachine.open("t4").nvml())
    with pytest.raises(UnreadableAnswer, match="nvmlDeviceGetName of GPU 0 gave an answer that"):
        noted.make("name", "GPU 0", decode)
    assert [one.code for one in noted.calls] == [Code.UNKNOWN]
