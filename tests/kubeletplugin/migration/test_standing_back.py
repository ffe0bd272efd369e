"""While NVIDIA's driver answers, or has left what cannot be taken over, the plugin waits and says why."""

import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kubeletplugin.migration.other_driver import other_driver
from kubeletplugin.migration.takeover import CannotTakeOver, TakeOver, WaitPorts, wait_for_takeover
from tests.gpus import NvmlError
from tests.kubeletplugin.fake_kubelet import running_plugin, short_folder
from tests.nvidia_driver import NvidiaDriver

LOOK_SECONDS = 15.0
SOCKET = Path("/var/lib/kubelet/plugins_registry/gpu.nvidia.com-reg.sock")
DECIDED = TakeOver(ended=("u-1",))


class Scene:
    """Time that passes only while somebody waits; ``later`` is what happens at each wait, in order."""

    def __init__(self, folder: Path) -> None:
        self.checkpoint = folder / "checkpoint.json"
        self.other: Path | None = None
        self.answers: list[TakeOver | NvmlError | CannotTakeOver] = [DECIDED]
        self.told: list[str] = []
        self.decisions = 0
        self.later: list[Callable[[], None]] = []
        self._now = 0.0

    def write(self, age_seconds: float = 60.0) -> None:
        """That driver writes its checkpoint, so long ago."""
        self.checkpoint.write_text(f"{self._now}")
        then = self.checkpoint.stat().st_mtime - age_seconds + self._now
        os.utime(self.checkpoint, (then, then))

    def run(self) -> TakeOver:
        ports = WaitPorts(lambda: self.other, self._decide, self.told.append, self._wait, lambda: self._now)
        return wait_for_takeover(ports, self.checkpoint, LOOK_SECONDS)

    def _decide(self) -> TakeOver:
        self.decisions += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, TakeOver):
            return answer
        raise answer

    def _wait(self, seconds: float) -> None:
        self._now += seconds
        self.later.pop(0)()

    def end_other(self) -> None:
        self.other = None


def nothing() -> None:
    """A second passes."""


@pytest.mark.parametrize("age_seconds", [60.0, -3600.0], ids=["", "the time of day was set back by an hour"])
def test_what_can_be_taken_over_is_at_once(tmp_path: Path, age_seconds: float) -> None:
    scene = Scene(tmp_path)
    scene.write(age_seconds)
    assert scene.run() == DECIDED
    assert scene.told == []


def test_what_has_to_end_first_is_said_while_the_other_driver_still_runs(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.write()
    scene.other = SOCKET
    scene.answers = [CannotTakeOver("1 of 2 claims cannot be taken over", "end its pod"), DECIDED]

    def unprepared() -> None:
        scene.write(age_seconds=30.0)

    scene.later = [unprepared, scene.end_other]
    assert scene.run() == DECIDED
    assert [("1 of 2 claims" in said, "answers at" in said) for said in scene.told] == [
        (True, True),
        (False, True),
    ]


def test_the_last_write_of_the_other_driver_counts(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.write()
    scene.other = SOCKET
    last = TakeOver(ended=("u-2",))
    scene.answers = [DECIDED, last]

    def writes_and_ends() -> None:
        scene.write(age_seconds=30.0)
        scene.other = None

    scene.later = [writes_and_ends]
    assert scene.run() == last


def test_a_file_that_could_still_be_written_unseen_is_left_for_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(tmp_path)
    scene.write(age_seconds=0.0)
    written_ns = scene.checkpoint.stat().st_mtime_ns
    monkeypatch.setattr(time, "time_ns", lambda: written_ns)
    scene.later = [lambda: scene.write(age_seconds=60.0)]
    assert scene.run() == DECIDED
    assert scene.decisions == 1
    assert scene.told == []


def test_what_the_hardware_does_not_tell_is_asked_again_now_and_then(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.write()
    scene.answers = [NvmlError("no NVIDIA driver is loaded", "load it"), DECIDED]
    scene.later = [nothing] * int(LOOK_SECONDS)
    assert scene.run() == DECIDED
    assert scene.later == []
    assert scene.told == ["no NVIDIA driver is loaded: load it"]


DRIVER = "gpu.nvidia.com"


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as made:
        for name in ("plugins", "registry", "cdi"):
            (made / name).mkdir()
        yield made


def nvidia(folder: Path) -> NvidiaDriver:
    return NvidiaDriver("n", folder / "plugins", folder / "registry", folder / "cdi", {}, lambda *_: {})


def found(folder: Path) -> Path | None:
    return other_driver(folder / "plugins" / DRIVER, folder / "registry", DRIVER)


def test_nvidias_driver_is_seen_while_it_answers(folder: Path) -> None:
    with nvidia(folder) as running:
        assert found(folder) == running.registration_socket
        running.registration_socket.unlink()
        assert found(folder) == running.service_socket
    left = folder / "registry" / f"{DRIVER}-reg.sock"
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(left))
    (folder / "registry" / f"{DRIVER}-0b-reg.sock").write_text("no socket")
    assert found(folder) is None, "nobody listens"


def test_an_instance_of_this_driver_is_none() -> None:
    with running_plugin() as plugin:
        data, registry = plugin.service_socket.parent, plugin.registration_socket.parent
        assert other_driver(data, registry, DRIVER) is None


def test_drivers_of_other_names_do_not_matter(folder: Path) -> None:
    with nvidia(folder) as running:
        running.service_socket.unlink()
        running.registration_socket.rename(folder / "registry" / "compute-domain.nvidia.com-reg.sock")
        assert found(folder) is None
