"""The controller lets go of NVML while a plugin asks for it, says so, and is never stuck."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from controller.plugin.driver_release import LONGEST_SECONDS, DriverRelease
from controller.plugin.state import PluginState
from proto import node_state_v1_pb2 as v1
from tests.clusters import MOST_PLUGINS, PluginWatch
from tests.controller.fake_plugin import BRISK, FakePlugin
from tests.gpus import Discovery, FakeMachine, Guard, LetGo


class Controller:
    """The parts of the controller that let go, listening to the plugins of a folder."""

    def __init__(self, folder: Path, longest_seconds: float, deadline_seconds: float) -> None:
        self.machine = FakeMachine.open("a30-quad")
        self.nvml = self.machine.nvml()
        self.guard = Guard(deadline_seconds)
        self.discovery = Discovery(self.nvml, folder / "sys", self.guard)
        self.discovery.snapshot()  # before a plugin that asks already can be heard
        self.looked_again = threading.Event()
        self.driver_release = DriverRelease(self.discovery, self.looked_again.set, longest_seconds)
        self.states: list[int] = []
        self._stop = threading.Event()
        state = PluginState(
            lambda state: self.states.append(state.let_go),
            self.driver_release.request,
            self.driver_release.name,
        )
        self._pool = ThreadPoolExecutor(MOST_PLUGINS)
        watch = PluginWatch(folder, self._pool, self._stop, (state.stream(),), BRISK)
        self._threads = [threading.Thread(target=run) for run in (watch.run, self.driver_release.run)]
        for thread in self._threads:
            thread.start()

    @property
    def has_session(self) -> bool:
        """Whether NVML is held."""
        return self.nvml.session.number is not None

    def may_look(self) -> bool:
        """Whether a look is possible now."""
        try:
            self.discovery.snapshot()
        except LetGo:
            return False
        return True

    def looks_again(self) -> bool:
        """Wait until it is told to look again, which it then can."""
        told = self.looked_again.wait(10)
        self.looked_again.clear()
        return told and self.may_look()

    def end(self) -> None:
        """Stop all threads."""
        self.machine.heal()
        self._stop.set()
        self.driver_release.stop()
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive()
        self._pool.shutdown()
        self.guard.close()


@contextmanager
def listening(
    folder: Path, longest_seconds: float = LONGEST_SECONDS, deadline_seconds: float = 5.0
) -> Iterator[Controller]:
    controller = Controller(folder, longest_seconds, deadline_seconds)
    try:
        yield controller
    finally:
        controller.end()


def asking(number: int) -> v1.State:
    return v1.State(let_go=number)


def test_it_ends_its_session_when_it_is_asked_and_looks_again_when_it_is_told(tmp_path: Path) -> None:
    with FakePlugin(tmp_path / "dra.sock", state=asking(0)) as plugin, listening(tmp_path) as controller:
        plugin.tell(asking(1))
        assert plugin.has_answered(1)
        assert not controller.has_session
        assert not controller.may_look()
        assert plugin.controllers == [controller.driver_release.name]

        plugin.tell(asking(0))

        assert controller.looks_again()
        assert set(controller.states) <= {0}, "what is asked is no state of the node"


def test_a_plugin_that_ends_asks_for_nothing(tmp_path: Path) -> None:
    with listening(tmp_path) as controller:
        with FakePlugin(tmp_path / "dra.sock", state=asking(7)) as plugin:
            assert plugin.has_answered(7)
            controller.looked_again.clear()
        assert controller.looks_again()


def test_two_plugins_each_have_to_be_done(tmp_path: Path) -> None:
    with (
        FakePlugin(tmp_path / "dra-a.sock", state=asking(1)) as one,
        FakePlugin(tmp_path / "dra-b.sock", state=asking(4)) as other,
        listening(tmp_path) as controller,
    ):
        assert one.has_answered(1)
        assert other.has_answered(4)
        one.tell(asking(0))
        one.tell(asking(2))
        assert one.has_answered(1, 2)
        assert not controller.has_session
        one.tell(asking(0))
        other.tell(asking(0))
        assert controller.looks_again()


def test_a_plugin_that_asks_too_long_is_not_heeded_until_it_asks_for_something_else(tmp_path: Path) -> None:
    with (
        FakePlugin(tmp_path / "dra.sock", state=asking(1)) as plugin,
        listening(tmp_path, longest_seconds=0.1) as controller,
    ):
        assert plugin.has_answered(1)
        assert controller.looks_again()
        plugin.tell(asking(2))
        assert plugin.has_answered(1, 2)


def test_it_says_why_it_cannot_let_go(tmp_path: Path) -> None:
    with (
        FakePlugin(tmp_path / "dra.sock", state=asking(0)) as plugin,
        listening(tmp_path, deadline_seconds=0.5) as controller,
    ):
        controller.machine.hang("shutdown")
        plugin.tell(asking(1))
        with plugin.changed:
            assert plugin.changed.wait_for(lambda: plugin.let_go, 10)
        assert plugin.let_go[0][0] == 1
        assert "nvmlShutdown" in plugin.let_go[0][1]
