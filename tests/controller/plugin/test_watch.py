"""Whether the plugin serves is known at once, through all its comings and goings."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.clusters import MOST_PLUGINS, PluginWatch
from tests.controller.fake_plugin import BRISK, FakePlugin, watching
from tests.gpus import ConfigError


def test_what_the_plugin_says_of_itself_counts(tmp_path: Path) -> None:
    with FakePlugin(tmp_path / "dra.sock", serving=False) as plugin, watching(tmp_path) as told:
        plugin.say(serving=True)
        assert told.serving_comes_to(1)

        plugin.say(serving=False)

        assert told.serving_comes_to(1, 0)


def test_during_a_rolling_update_one_plugin_that_serves_is_enough(tmp_path: Path) -> None:
    with FakePlugin(tmp_path / "dra-old-uid.sock") as old, watching(tmp_path) as told:
        assert told.serving_comes_to(1)
        with FakePlugin(tmp_path / "dra-new-uid.sock") as new:
            assert told.serving_comes_to(1, 2)
            old.end()
            assert told.serving_comes_to(1, 2, 1)

            new.say(serving=False)

            assert told.serving_comes_to(1, 2, 1, 0)


def test_a_stale_socket_and_other_files_are_no_plugin(tmp_path: Path) -> None:
    (tmp_path / "dra-file.sock").write_text("no socket")
    FakePlugin(tmp_path / "dra-stale.sock").end()
    with watching(tmp_path) as told, FakePlugin(tmp_path / "dra.sock"):
        assert told.serving_comes_to(1)


def test_a_folder_whose_sockets_nobody_could_bind_is_an_error(tmp_path: Path) -> None:
    with ThreadPoolExecutor(MOST_PLUGINS) as pool, pytest.raises(ConfigError, match="107"):
        PluginWatch(tmp_path / ("x" * 100), pool, threading.Event(), [], BRISK)


def test_a_plugin_that_starts_later_is_noticed(tmp_path: Path) -> None:
    folder = tmp_path / "made-later"
    with watching(folder) as told:
        folder.mkdir()
        with FakePlugin(folder / "dra.sock"):
            assert told.serving_comes_to(1)
