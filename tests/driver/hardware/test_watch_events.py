"""Events are waited for beside the looks: neither keeps the other from its work, nor from letting go."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.driver.hardware.looked_at import Node
from tests.gpus import DriverNotLoaded, LetGo, SessionLost

LONG = 20.0
"""Longer than any wait here takes: what is expected ends it."""


def test_all_gpus_of_the_last_look_are_watched(node: Node) -> None:
    gpus = node.discovery.snapshot().gpus
    events = node.discovery.watch_events()
    assert events.watched() == {gpu.uuid for gpu in gpus}
    node.machine.xid(7, 31)
    told = events.wait(LONG)
    assert told is not None
    assert (told.uuid, told.xid) == (gpus[7].uuid, 31)


def test_a_wait_neither_holds_up_a_look_nor_a_letting_go_which_ends_it(node: Node) -> None:
    node.discovery.snapshot()
    events = node.discovery.watch_events()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(events.wait, LONG)
        assert len(node.discovery.snapshot().gpus) == 8
        assert node.guard.hung() == ()
        with node.discovery.let_go(), pytest.raises(SessionLost):
            waiting.result()
        with pytest.raises(SessionLost):
            events.wait(LONG)
    assert len(node.discovery.watch_events().watched()) == 8


def test_while_nvml_is_let_go_of_nobody_is_watched(hasty: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("driver.hardware.inventory._ENTER_SECONDS", 0.01)
    with hasty.discovery.let_go(), ThreadPoolExecutor(1) as pool, pytest.raises(LetGo):
        pool.submit(hasty.discovery.watch_events).result()


def test_a_driver_that_went_away_ends_the_wait_and_its_return_begins_another(node: Node) -> None:
    node.discovery.snapshot()
    events = node.discovery.watch_events()
    node.machine.driver_gone()
    with pytest.raises(DriverNotLoaded):
        events.wait(LONG)
    with pytest.raises(DriverNotLoaded):
        node.discovery.watch_events()
    node.machine.driver_back()
    with pytest.raises(SessionLost):
        events.wait(LONG)
    assert len(node.discovery.watch_events().watched()) == 8


def test_a_gpu_that_hangs_or_is_lost_blinds_no_other(hasty: Node) -> None:
    gpus = hasty.discovery.snapshot().gpus
    hasty.machine.lose(1)
    hasty.machine.hang("device_by_pci", gpu=2)
    events = hasty.discovery.watch_events()
    assert events.watched() == {gpu.uuid for index, gpu in enumerate(gpus) if index not in (1, 2)}
    hasty.machine.xid(0, 13)
    told = events.wait(LONG)
    assert told is not None
    assert told.uuid == gpus[0].uuid
