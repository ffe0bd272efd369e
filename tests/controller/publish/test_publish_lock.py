"""Of the controllers of a node one publishes at a time, and the next one as soon as that has ended."""

import threading
from pathlib import Path

import pytest

from controller.publish.publish_lock import PublishLock
from driver.process.log import configure


class Waiting:
    """A controller that waits for its turn, in a thread."""

    def __init__(self, folder: Path) -> None:
        self.taken, self.busy, self.stop = threading.Event(), threading.Event(), threading.Event()
        self.turn = PublishLock(folder, self.taken.set, self.busy.set, self.stop)
        self._thread = threading.Thread(target=self.turn.run)
        self._thread.start()

    def end(self) -> None:
        self.stop.set()
        self._thread.join()
        self.turn.release()


def test_the_second_has_its_turn_once_the_first_has_ended(tmp_path: Path) -> None:
    first = Waiting(tmp_path)
    assert first.taken.wait(10)
    second = Waiting(tmp_path)

    assert second.busy.wait(10)
    assert not second.taken.is_set()
    first.end()
    assert second.taken.wait(10)
    assert not first.busy.is_set()
    second.end()


def test_without_a_folder_that_can_be_locked_nobody_publishes_and_it_is_told_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    configure("info")
    folder = tmp_path / "gpu.nvidia.com"
    taken, busy = threading.Event(), threading.Event()

    PublishLock(folder, taken.set, busy.set, StopsAfter(3)).run()
    assert capsys.readouterr().err == "", "the plugin has not made it yet"
    folder.write_text("not a folder")
    PublishLock(folder, taken.set, busy.set, StopsAfter(3)).run()
    (line,) = capsys.readouterr().err.splitlines()
    assert "nothing is published" in line
    assert str(folder) in line
    assert not taken.is_set()

    folder.unlink()
    folder.mkdir()
    turn = PublishLock(folder, taken.set, busy.set, StopsAfter(3))
    turn.run()
    turn.release()
    assert (taken.is_set(), busy.is_set()) == (True, False)


class StopsAfter(threading.Event):
    """An event that is set when it was waited for so often, at once."""

    def __init__(self, waits: int) -> None:
        super().__init__()
        self._waits = waits

    def wait(self, _timeout: float | None = None) -> bool:
        self._waits -= 1
        return self._waits == 0
