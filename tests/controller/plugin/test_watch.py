"""Whether the plugin serves is known at once, through all its comings and goings."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from controller.intervals import Intervals
from controller.plugin.serving import PluginServing
from controller.plugin.watch import MOST_PLUGINS, PluginWatch, Stream
from driver.errors import ConfigError
from tests.controller.fake_plugin import FakePlugin

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BRISK = Intervals(socket_seconds=0.02, listen_again_seconds=0.05)


class Told:
    """What a PluginWatch told, in order."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.words: list[int] = []

    def __call__(self, serving: int) -> None:
        with self.changed:
            self.words.append(serving)
            self.changed.notify_all()

    def comes_to(self, *words: int) -> bool:
        with self.changed:
            self.changed.wait_for(lambda: self.words == list(words), 10)
            return self.words == list(words)


@contextmanager
def watching(folder: Path) -> Iterator[Told]:
    told = Told()
    stop_event = threading.Event()
    with ThreadPoolExecutor(MOST_PLUGINS) as pool:
        watch = PluginWatch(folder, pool, stop_event, [PluginServing(told).stream()], BRISK)
        thread = threading.Thread(target=watch.run)
        thread.start()
        try:
            yield told
        finally:
            stop_event.set()
            thread.join(10)
            assert not thread.is_alive()


def test_a_plugin_that_serves_is_noticed_and_its_end_too(tmp_path: Path) -> None:
    with FakePlugin(tmp_path / "dra.sock") as plugin, watching(tmp_path) as told:
        assert told.comes_to(1)

        plugin.end()

        assert told.comes_to(1, 0)


def test_a_plugin_that_starts_later_is_noticed(tmp_path: Path) -> None:
    folder = tmp_path / "made-later"
    with watching(folder) as told:
        folder.mkdir()
        with FakePlugin(folder / "dra.sock"):
            assert told.comes_to(1)


def test_what_the_plugin_says_of_itself_counts(tmp_path: Path) -> None:
    with FakePlugin(tmp_path / "dra.sock", serving=False) as plugin, watching(tmp_path) as told:
        plugin.say(serving=True)
        assert told.comes_to(1)

        plugin.say(serving=False)

        assert told.comes_to(1, 0)


def test_a_plugin_that_comes_back_at_its_socket_is_noticed(tmp_path: Path) -> None:
    socket = tmp_path / "dra.sock"
    with watching(tmp_path) as told:
        with FakePlugin(socket):
            assert told.comes_to(1)
        assert told.comes_to(1, 0)
        socket.unlink(missing_ok=True)
        with FakePlugin(socket):
            assert told.comes_to(1, 0, 1)


def test_during_a_rolling_update_one_plugin_that_serves_is_enough(tmp_path: Path) -> None:
    with FakePlugin(tmp_path / "dra-old-uid.sock") as old, watching(tmp_path) as told:
        assert told.comes_to(1)
        with FakePlugin(tmp_path / "dra-new-uid.sock") as new:
            assert told.comes_to(1, 2)
            old.end()
            assert told.comes_to(1, 2, 1)

            new.say(serving=False)

            assert told.comes_to(1, 2, 1, 0)


def test_a_stale_socket_and_other_files_are_no_plugin(tmp_path: Path) -> None:
    (tmp_path / "dra-file.sock").write_text("no socket")
    FakePlugin(tmp_path / "dra-stale.sock").end()
    with watching(tmp_path) as told, FakePlugin(tmp_path / "dra.sock"):
        assert told.comes_to(1)


def test_nobody_connects_for_a_try_that_found_no_plugin(tmp_path: Path) -> None:
    path, tries = tmp_path / "dra.sock", threading.Semaphore(0)
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(path))
    stream = Stream("/a/B", b"", bytes, lambda _path, _answer: None, lambda _path, _code: tries.release())
    stop_event = threading.Event()
    with ThreadPoolExecutor(MOST_PLUGINS) as pool:
        watch = PluginWatch(tmp_path, pool, stop_event, [stream], BRISK)
        thread = threading.Thread(target=watch.run)
        thread.start()
        assert all(tries.acquire(timeout=10) for _ in range(3))
        stop_event.set()
        thread.join(10)
    path.unlink()

    with socket.socket(socket.AF_UNIX) as plugin:
        plugin.bind(str(path))
        plugin.listen()
        plugin.settimeout(1.6)  # gRPC connects again after a second
        with pytest.raises(TimeoutError):
            plugin.accept()


def test_a_folder_whose_sockets_nobody_could_bind_is_an_error(tmp_path: Path) -> None:
    with ThreadPoolExecutor(MOST_PLUGINS) as pool, pytest.raises(ConfigError, match="107"):
        PluginWatch(tmp_path / ("x" * 100), pool, threading.Event(), [], BRISK)
