"""Of the controllers of a node one publishes at a time, and the next one as soon as that has ended."""

from __future__ import annotations

import threading
from pathlib import Path

from controller.publish.turn import Turn


class Waiting:
    """A controller that waits for its turn, in a thread."""

    def __init__(self, folder: Path) -> None:
        self.taken, self.stop = threading.Event(), threading.Event()
        self.turn = Turn(folder, self.taken.set, self.stop)
        self._thread = threading.Thread(target=self.turn.run)
        self._thread.start()

    def end(self) -> None:
        self.stop.set()
        self._thread.join()
        self.turn.give()


def test_the_second_has_its_turn_once_the_first_has_ended(tmp_path: Path) -> None:
    first = Waiting(tmp_path)
    assert first.taken.wait(10)
    second = Waiting(tmp_path)

    assert not second.taken.wait(0.5)
    first.end()
    assert second.taken.wait(10)
    second.end()


def test_one_that_stops_while_it_stands_by_takes_nothing(tmp_path: Path) -> None:
    first = Waiting(tmp_path)
    assert first.taken.wait(10)
    second = Waiting(tmp_path)
    second.end()
    third = Waiting(tmp_path)

    first.end()
    assert third.taken.wait(10)
    assert not second.taken.is_set()
    third.end()


def test_without_the_plugins_folder_nobody_publishes(tmp_path: Path) -> None:
    folder = tmp_path / "gpu.nvidia.com"
    waiting = Waiting(folder)

    assert not waiting.taken.wait(0.5)
    folder.mkdir()
    assert waiting.taken.wait(10)
    waiting.end()
