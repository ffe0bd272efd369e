"""The plugin is asked to turn on virtual functions: once where it does, again later where it cannot."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue

import pytest

from controller.plugin.virtual_functions import VirtualFunctionRequests
from proto import node_state_v1_pb2 as v1
from tests.controller.fake_plugin import FakePlugin
from tests.gpus import PciAddress
from tests.running import running

FIRST, SECOND = (PciAddress.parse(text) for text in ("0000:17:00.0", "0000:b1:00.0"))
NEVER = 3600.0


Asking = tuple[VirtualFunctionRequests, Queue[tuple[PciAddress, str]], Queue[None]]


@contextmanager
def asking(*sockets: Path, again_seconds: float = NEVER) -> Iterator[Asking]:
    """What asks, running, with the failures that it tells, and how often it told that some were turned on."""
    failures: Queue[tuple[PciAddress, str]] = Queue()
    turned_on: Queue[None] = Queue()
    one = VirtualFunctionRequests(
        lambda: sockets, lambda pci, why: failures.put((pci, why)), lambda: turned_on.put(None), again_seconds
    )
    with running(one.run, one.stop):
        yield one, failures, turned_on


@pytest.fixture
def plugin(tmp_path: Path) -> Iterator[FakePlugin]:
    with FakePlugin(tmp_path / "dra.sock", state=v1.State()) as found:
        yield found


def test_each_gpu_is_asked_for_once(tmp_path: Path, plugin: FakePlugin) -> None:
    with asking(tmp_path / "dra.sock") as (one, failures, turned_on):
        one.set_wanted(frozenset({FIRST}))
        turned_on.get(timeout=10)
        one.set_wanted(frozenset({FIRST}))
        one.set_wanted(frozenset({FIRST, SECOND}))
        turned_on.get(timeout=10)

        assert plugin.enabled == [str(FIRST), str(SECOND)]
        assert failures.empty()


def test_a_failure_is_told_once_and_asked_for_again(tmp_path: Path, plugin: FakePlugin) -> None:
    plugin.failure = "it is in use"
    with asking(tmp_path / "dra.sock", again_seconds=0.01) as (one, failures, turned_on):
        one.set_wanted(frozenset({FIRST}))
        assert failures.get(timeout=10) == (FIRST, "it is in use")
        with plugin.changed:
            assert plugin.changed.wait_for(lambda: len(plugin.enabled) >= 3, 10)
            plugin.failure = ""
        turned_on.get(timeout=10)

    assert failures.empty()


def test_a_plugin_that_is_not_there_is_no_failure_and_is_found_when_it_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller.plugin.virtual_functions._NOBODY_SECONDS", 0.05)
    with asking(tmp_path / "dra.sock") as (one, failures, turned_on):
        one.set_wanted(frozenset({FIRST}))
        with FakePlugin(tmp_path / "dra.sock", state=v1.State()):
            turned_on.get(timeout=10)
        assert failures.empty()
