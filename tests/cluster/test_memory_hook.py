"""The built gpu-memory-hook says yes only where an instance of the plugin does, else it says why."""

import json
import os
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.gpus import ClaimRefused
from tests.kubeletplugin.fake_kubelet import short_folder
from tests.kubeletplugin.sharing.memory.served_hooks import CLAIM, DEVICE, call, serving
from tests.plugin import ContainerStart
from tools.testbed.memory_hook import memory_hook

ENDED = 1
MANY = 48
INTERPRETER = 3
"""The segment of an ELF file that names a dynamic linker (PT_INTERP)."""


@pytest.fixture(scope="module")
def program() -> Path:
    return memory_hook()


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as folder:
        yield folder / "memory" / "sockets"


def state(**changed: Any) -> bytes:
    """What a runtime has on the hook's stdin; this process stands for the container's."""
    return json.dumps(call()["state"] | {"pid": os.getpid()} | changed).encode()


class Hook:
    """The program with the arguments of one claim's CDI spec."""

    def __init__(self, program: Path, folder: Path) -> None:
        self._program = program
        self._folder = folder

    def begin(self, seconds: int = 8) -> subprocess.Popen[bytes]:
        """A hook that has the container's state still to come."""
        pipe = subprocess.PIPE
        return subprocess.Popen(self._command(seconds), stdin=pipe, stdout=pipe, stderr=pipe, env={})

    def run(self, said: bytes | None = None, seconds: int = 8) -> tuple[int, str]:
        """Its exit code, and what it wrote to stderr."""
        with self.begin(seconds) as process:
            _, told = process.communicate(state() if said is None else said, timeout=30)
            return process.returncode, told.decode()

    def _command(self, seconds: int) -> list[str]:
        return [
            str(self._program),
            f"--sockets={self._folder}",
            f"--claim={CLAIM}",
            f"--device={DEVICE}",
            f"--seconds={seconds}",
        ]


@pytest.fixture
def hook(program: Path, folder: Path) -> Hook:
    return Hook(program, folder)


def agree(_start: ContainerStart) -> None:
    """Every container may start."""


@contextmanager
def playing(path: Path, answer: Callable[[socket.socket], object]) -> Iterator[None]:
    """An instance that does with each hook what the test says, once it has heard it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection, suppress(ConnectionError):  # the hook may have given up
                    connection.recv(65536)
                    answer(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_it_needs_nothing_of_the_host(program: Path) -> None:
    """Neither a dynamic linker nor, so, a libc."""
    data = program.read_bytes()
    begin, size, count = (*struct.unpack_from("<Q", data, 32), *struct.unpack_from("<HH", data, 54))
    kinds = {struct.unpack_from("<I", data, begin + number * size)[0] for number in range(count)}
    assert INTERPRETER not in kinds


def test_a_container_starts_once_the_plugin_has_said_yes(hook: Hook, folder: Path) -> None:
    seen: list[ContainerStart] = []
    with serving(folder, "one", seen.append):
        assert hook.run() == (0, "")

    (start,) = seen
    assert (start.claim_uid, start.cdi_device, start.container_id) == (CLAIM, DEVICE, "abc")
    assert (start.namespace, start.pod, start.container) == ("team", "train-0", "main")
    assert start.proc_cgroup == Path("/proc/self/cgroup").read_text()


def test_a_refusal_is_said_in_the_plugins_words_and_no_other_instance_is_asked(
    hook: Hook, folder: Path
) -> None:
    def refuse(_start: ContainerStart) -> None:
        raise ClaimRefused("6 GiB are left of the share\nand it wants 8\x1b[31m", "ask for less")

    asked: list[ContainerStart] = []
    with serving(folder, "older", asked.append), serving(folder, "newer", refuse):
        code, told = hook.run()

    assert code == ENDED
    assert told == (
        "gpu.nvidia.com does not let this container start: "
        "6 GiB are left of the share and it wants 8?[31m: ask for less (permanent)\n"
    )
    assert asked == []


def test_a_long_message_is_cut_to_what_an_event_takes(hook: Hook, folder: Path) -> None:
    def refuse(_start: ContainerStart) -> None:
        raise ClaimRefused(f"x{'é' * 4000}")

    with serving(folder, "one", refuse):
        code, told = hook.run()

    assert code == ENDED
    assert len(told.encode()) < 720
    assert told.endswith("é…\n")


def test_without_a_socket_it_fails_once_its_time_is_over_and_says_what_to_do(
    hook: Hook, folder: Path
) -> None:
    code, told = hook.run(seconds=1)

    assert code == ENDED
    assert f"did not answer within 1 s at {folder}: there is no socket" in told
    assert "look at the gpu.nvidia.com kubelet plugin of this node" in told
    assert "the kubelet tries again" in told
    assert told.count("\n") == 1


def test_a_plugin_that_starts_while_it_waits_is_asked(hook: Hook, folder: Path) -> None:
    process = hook.begin()
    assert process.stdin is not None
    process.stdin.write(state())
    process.stdin.close()
    process.stdin = None
    with serving(folder, "one", agree):
        assert process.communicate(timeout=30) == (b"", b"")
    assert process.returncode == 0


def test_the_newest_of_two_instances_is_asked_first(hook: Hook, folder: Path) -> None:
    asked: list[str] = []
    with (
        serving(folder, "a", lambda _: asked.append("older")) as older,
        serving(folder, "b", lambda _: asked.append("newer")),
    ):
        os.utime(older.path, (0, 0))
        assert hook.run() == (0, "")
    assert asked == ["newer"]


def cut(connection: socket.socket) -> None:
    connection.sendall(b'{"ok":true}')


BROKEN: dict[str, Callable[[socket.socket], object]] = {
    "silence": lambda connection: connection.recv(1),
    "an end": lambda _connection: None,
    "a cut answer": cut,
    "no JSON": lambda connection: connection.sendall(b"yes\n"),
    "a yes that is none": lambda connection: connection.sendall(b'{"ok":"true"}\n'),
    "nothing said": lambda connection: connection.sendall(b"{}\n"),
    "a list": lambda connection: connection.sendall(b"[true]\n"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_what_is_no_whole_answer_is_no_yes(hook: Hook, folder: Path, what: str) -> None:
    with playing(folder / "one.sock", BROKEN[what]):
        code, told = hook.run(seconds=1)

    assert code == ENDED
    assert "did not answer within 1 s" in told
    assert "one.sock: " in told


@pytest.mark.parametrize("what", BROKEN)
def test_another_instance_answers_for_one_that_does_not(hook: Hook, folder: Path, what: str) -> None:
    with serving(folder, "older", agree) as older, playing(folder / "newer.sock", BROKEN[what]):
        os.utime(older.path, (0, 0))
        assert hook.run(seconds=2) == (0, "")


def test_an_instance_that_fails_once_is_asked_again(hook: Hook, folder: Path) -> None:
    """As one does that ends and starts again at the same path."""
    asked: list[int] = []

    def answer(connection: socket.socket) -> None:
        asked.append(1)
        if len(asked) == 3:
            connection.sendall(b'{"ok":true}\n')

    with playing(folder / "one.sock", answer):
        assert hook.run() == (0, "")
    assert len(asked) == 3


def test_a_socket_of_a_dead_instance_costs_no_time(hook: Hook, folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "text.sock").write_text("no socket")
    with serving(folder, "one", agree) as server:
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(folder / "dead.sock"))
        os.utime(server.path, (0, 0))
        assert hook.run(seconds=1) == (0, "")


def test_an_instance_that_takes_no_more_connections_keeps_no_other_from_answering(
    hook: Hook, folder: Path
) -> None:
    with serving(folder, "one", agree) as server, socket.socket(socket.AF_UNIX) as full:
        full.bind(str(folder / "full.sock"))
        full.listen(0)
        with socket.socket(socket.AF_UNIX) as first:
            first.connect(str(folder / "full.sock"))
            os.utime(server.path, (0, 0))
            assert hook.run(seconds=1) == (0, "")


def test_an_upgrade_of_the_plugin_leaves_no_gap(hook: Hook, folder: Path) -> None:
    """Instances follow each other, each beginning before the one before it ends, while containers start."""
    over = threading.Event()
    seen: list[str] = []

    def upgrade() -> None:
        with serving(folder, "0", lambda start: seen.append(start.container_id)):
            begun.set()
            for number in range(1, 9):
                with serving(folder, str(number), lambda start: seen.append(start.container_id)):
                    over.wait(0.1)
            over.wait(20)

    begun = threading.Event()
    thread = threading.Thread(target=upgrade)
    thread.start()
    assert begun.wait(20)
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda number: hook.run(state(id=f"c{number}")), range(40)))
    over.set()
    thread.join()

    assert done == [(0, "")] * 40
    assert set(seen) == {f"c{number}" for number in range(40)}


def test_many_containers_that_start_at_once_are_all_answered(hook: Hook, folder: Path) -> None:
    seen: list[str] = []
    with (
        serving(folder, "one", lambda start: seen.append(start.container_id)),
        ThreadPoolExecutor(MANY) as pool,
    ):
        done = list(pool.map(lambda number: hook.run(state(id=f"c{number}")), range(MANY)))

    assert done == [(0, "")] * MANY
    assert sorted(seen) == sorted(f"c{number}" for number in range(MANY))


def test_a_hook_that_is_killed_leaves_the_plugin_well(hook: Hook, folder: Path) -> None:
    here, go = threading.Event(), threading.Event()

    def slowly(_start: ContainerStart) -> None:
        here.set()
        assert go.wait(20)

    with serving(folder, "one", slowly):
        process = hook.begin()
        assert process.stdin is not None
        process.stdin.write(state())
        process.stdin.close()
        process.stdin = None
        assert here.wait(20)
        process.kill()
        process.communicate()
        go.set()
        assert hook.run() == (0, "")


STATES = {
    "nothing": (b"", "not as the OCI runtime"),
    "no JSON": (b"pid: 7", "not as the OCI runtime"),
    "no process": (state(pid=0), "has no process"),
    "no id": (state(id=""), "has no process or no container id"),
    "annotations that are none": (state(annotations=["a"]), "not as the OCI runtime"),
    "a process that is gone": (state(pid=2**22 + 1), "control group is not known"),
    "too long": (b" " * (5 << 20), "more than 4194304 bytes"),
    "long names": (
        state(annotations={f"io.kubernetes.{number}": "a" * 1000 for number in range(100)}),
        "annotations that begin with io.kubernetes. are too long",
    ),
}


@pytest.mark.parametrize("what", STATES)
def test_a_container_that_cannot_be_told_of_does_not_start(hook: Hook, folder: Path, what: str) -> None:
    said, reason = STATES[what]
    with serving(folder, "one", agree):
        code, told = hook.run(said)

    assert (code, reason in told) == (ENDED, True), told
    assert told.count("\n") == 1


def test_long_annotations_of_a_pod_keep_nothing_from_starting(hook: Hook, folder: Path) -> None:
    """A runtime may be set to hand them on, and they may have 256 KiB."""
    seen: list[ContainerStart] = []
    annotations = call()["state"]["annotations"] | {
        "kubectl.kubernetes.io/last-applied-configuration": "x" * 200_000,
        "io.kubernetes.cri-o.Volumes": "y" * 200_000,
    }
    with serving(folder, "one", seen.append):
        assert hook.run(state(annotations=annotations)) == (0, "")
    assert [start.pod for start in seen] == ["train-0"]


def test_a_state_that_does_not_come_ends_it_in_time(hook: Hook) -> None:
    with hook.begin(seconds=1) as process:
        assert process.wait(30) == ENDED
        assert process.stderr is not None
        assert b"did not answer in time" in process.stderr.read()


@pytest.mark.parametrize(
    "arguments",
    [[], ["--help"], ["--sockets=/a", "--claim=b"], ["--sockets=/a", "--claim=b", "--device=c", "more"]],
    ids=repr,
)
def test_other_arguments_are_refused(program: Path, arguments: list[str]) -> None:
    done = subprocess.run([program, *arguments], input=state(), capture_output=True, check=False, timeout=30)
    assert done.returncode == ENDED
    assert b"only the CDI specs of gpu.nvidia.com call this program" in done.stderr
