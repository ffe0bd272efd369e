"""The plugin answers hooks on a socket of its own, many at once, and nothing that is said ends it."""

import io
import json
import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from driver.process.log import configure
from kubeletplugin.kubelet.wire.containers import NotAnswered
from kubeletplugin.sharing.memory.hook_socket import MOST_AT_ONCE, MOST_BYTES, HookSocket
from tests import needs
from tests.eventually import eventually
from tests.gpus import ClaimRefused
from tests.kubeletplugin.fake_kubelet import short_folder
from tests.kubeletplugin.sharing.memory.served_hooks import (
    CGROUP,
    CLAIM,
    DEVICE,
    OK,
    answer_of,
    asked,
    call,
    connected,
    line,
    serving,
)
from tests.plugin import ContainerStart

MANY = 48


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as folder:
        yield folder / "memory" / "sockets"


@pytest.fixture
def log() -> io.StringIO:
    heard = io.StringIO()
    configure("info", heard)
    return heard


def agree(_start: ContainerStart) -> None:
    """Every container may start."""


def test_a_container_that_may_start_is_told_so_once_it_was_looked_after(folder: Path) -> None:
    seen: list[ContainerStart] = []
    with serving(folder, "one", seen.append) as server:
        assert asked(server.path, line(call())) == OK

    assert seen == [ContainerStart(CLAIM, DEVICE, "abc", CGROUP, "team", "train-0", "main")]


def test_a_refusal_is_told_in_the_errors_own_words(folder: Path) -> None:
    error = ClaimRefused("too much", "ask for less")

    def refuse(_start: ContainerStart) -> None:
        raise error

    with serving(folder, "one", refuse) as server:
        assert asked(server.path, line(call())) == {"ok": False, "message": str(error)}


def test_a_fault_of_ours_refuses_the_container_and_names_its_lines_in_the_log(
    folder: Path, log: io.StringIO
) -> None:
    def fail(_start: ContainerStart) -> None:
        raise KeyError("secret")

    with serving(folder, "one", fail) as server:
        answer = asked(server.path, line(call()))

    assert answer["ok"] is False
    assert "secret" not in answer["message"]
    (failed,) = [json.loads(one) for one in log.getvalue().splitlines() if '"operation failed"' in one]
    assert f"op {failed['op']}" in answer["message"]
    assert (failed["uid"], failed["container"]) == (CLAIM, "team/train-0/main")


@pytest.mark.parametrize(
    "said", [b"\n", b"{}\n", b"a" * (MOST_BYTES + 1), b"cut"], ids=["nothing", "empty", "too long", "cut"]
)
def test_malformed_calls_are_refused_and_logged_and_others_are_answered(
    folder: Path, log: io.StringIO, said: bytes
) -> None:
    with serving(folder, "one", agree) as server:
        with connected(server.path) as client:
            client.sendall(said)
            client.shutdown(socket.SHUT_WR)
            answer = answer_of(client)
        assert asked(server.path, line(call())) == OK

    assert answer["ok"] is False
    assert "cannot read" in answer["message"]
    assert "cannot read a hook's call" in log.getvalue()


def test_who_says_nothing_keeps_nobody_from_being_answered(folder: Path) -> None:
    with serving(folder, "one", agree) as server:
        silent = [connected(server.path) for _ in range(MANY)]
        try:
            assert asked(server.path, line(call())) == OK
        finally:
            for client in silent:
                client.close()


def test_a_hook_that_was_ended_meanwhile_harms_nobody(folder: Path) -> None:
    here, go = threading.Event(), threading.Event()

    def slowly(_start: ContainerStart) -> None:
        here.set()
        assert go.wait(20)

    with serving(folder, "one", slowly) as server:
        with connected(server.path) as client:
            client.sendall(line(call()))
            assert here.wait(20)
        go.set()
        assert asked(server.path, line(call())) == OK


def test_who_comes_while_too_many_are_looked_after_hears_nothing_and_asks_again(folder: Path) -> None:
    together = threading.Barrier(MOST_AT_ONCE + 1)

    def meet(_start: ContainerStart) -> None:
        together.wait(20)

    with serving(folder, "one", meet) as server, ThreadPoolExecutor(MOST_AT_ONCE) as pool:
        held = [pool.submit(asked, server.path, line(call())) for _ in range(MOST_AT_ONCE)]
        eventually("all are looked after", lambda: together.n_waiting, lambda here: here == MOST_AT_ONCE)
        with connected(server.path) as client:
            assert answer_of(client) is None
        together.wait(20)
        assert [one.result() for one in held] == [OK] * MOST_AT_ONCE


def test_the_socket_is_roots_alone_from_the_moment_that_it_can_be_seen(folder: Path) -> None:
    with serving(folder, "one", agree) as server:
        modes = [stat.S_IMODE(path.stat().st_mode) for path in (server.path, folder, folder.parent)]
        assert modes == [0o600, 0o700, 0o700]
        assert os.listdir(folder) == ["one.sock"]


@needs.ROOT
def test_other_users_are_refused_even_where_they_can_connect(folder: Path, log: io.StringIO) -> None:
    seen: list[ContainerStart] = []
    with serving(folder, "one", seen.append) as server:
        for path in (folder.parent.parent, folder.parent, folder):
            path.chmod(0o755)
        server.path.chmod(0o666)
        script = (
            "import os, socket, sys; s = socket.socket(socket.AF_UNIX);"
            "os.setresuid(65532, 65532, 65532); s.connect(sys.argv[1]); print(s.recv(65536).decode())"
        )
        command = [sys.executable, "-I", "-c", script, str(server.path)]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=20)
        answer = json.loads(done.stdout)

    assert answer["ok"] is False
    assert "user 65532 may not ask" in answer["message"]
    assert seen == []
    assert "refused a hook that does not run as root" in log.getvalue()


def test_what_is_under_way_has_ended_when_the_instance_has(folder: Path) -> None:
    ended: list[str] = []
    begun = threading.Event()

    def outlive(start: ContainerStart) -> None:
        begun.set()
        eventually("the socket is gone", lambda: not (folder / "one.sock").exists())
        threading.Event().wait(0.1)
        ended.append(start.container_id)

    with serving(folder, "one", outlive) as server:
        client = connected(server.path)
        client.sendall(line(call()))
        assert begun.wait(20)
        server.stop()
    assert ended == ["abc"]
    with client:
        assert answer_of(client) == OK


def test_an_instance_that_ends_leaves_a_container_to_the_next_one(folder: Path) -> None:
    def end(_start: ContainerStart) -> None:
        raise NotAnswered

    with serving(folder, "one", end) as server:
        assert asked(server.path, line(call())) is None


def test_who_had_connected_before_the_stop_is_answered(folder: Path) -> None:
    server = HookSocket(folder, "one", agree)
    server.open()
    with connected(server.path) as client:
        client.sendall(line(call()))
        thread = threading.Thread(target=server.run)
        server.stop()
        thread.start()
        assert answer_of(client) == OK
        thread.join(20)
    assert os.listdir(folder) == []


def test_the_socket_of_a_dead_instance_is_removed_and_that_of_a_living_one_stays(folder: Path) -> None:
    with serving(folder, "older", agree) as older:
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(folder / "dead.sock"))
        with serving(folder, "newer", agree):
            assert sorted(os.listdir(folder)) == ["newer.sock", "older.sock"]
            assert asked(older.path, line(call())) == OK
        assert os.listdir(folder) == ["older.sock"]


def test_a_later_instances_socket_is_left_to_it(folder: Path) -> None:
    with serving(folder, "one", agree) as first:
        first.path.unlink()
        second = HookSocket(folder, "one", agree)
        second.open()
        thread = threading.Thread(target=second.run)
        thread.start()
    assert asked(second.path, line(call())) == OK
    second.stop()
    thread.join(20)
