"""The played gpu-memory-hook lets a container run only after a plugin's yes."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from gpuctl.demo.played_programs import HookFailed, play_memory_hook
from tests.gpuctl.demo.hook_socket import YES, AnsweringSocket
from tests.kubeletplugin.fake_kubelet import short_folder

STATE = {"id": "c1", "annotations": {}}


def ask(folder: Path, seconds: str = "8") -> None:
    options = {"sockets": str(folder), "claim": "uid", "device": "uid-0", "seconds": seconds}
    play_memory_hook(options, STATE, "0::/kubepods/c1\n")


def test_a_yes_lets_the_container_run_and_the_plugin_is_told_of_it() -> None:
    with short_folder() as folder, AnsweringSocket(folder / "a.sock") as plugin:
        ask(folder)

    asked = {"version": 1, "claim": "uid", "device": "uid-0", "state": STATE, "cgroup": "0::/kubepods/c1\n"}
    assert plugin.asked == [asked]


def test_a_no_ends_it_with_the_plugins_words() -> None:
    no = {"ok": False, "message": "it does not fit"}
    with (
        short_folder() as folder,
        AnsweringSocket(folder / "a.sock", lambda _asked: no),
        pytest.raises(
            HookFailed, match=r"^gpu\.nvidia\.com does not let this container start: it does not fit$"
        ),
    ):
        ask(folder)


def test_nobody_at_a_socket_means_another_one_is_asked() -> None:
    with short_folder() as folder, AnsweringSocket(folder / "a.sock") as plugin:
        (folder / "b.sock").touch()

        ask(folder)

    assert len(plugin.asked) == 1


@pytest.mark.parametrize("answer", [b"", b"yes\n", b"[]\n"])
def test_what_is_no_answer_is_no_yes(answer: bytes) -> None:
    with (
        short_folder() as folder,
        AnsweringSocket(folder / "a.sock", lambda _asked: answer),
        pytest.raises(HookFailed, match=r"did not answer within 0\.3 s at"),
    ):
        ask(folder, "0.3")


def test_a_plugin_that_comes_in_time_is_asked() -> None:
    with short_folder() as folder:
        done = threading.Event()

        def wait() -> None:
            ask(folder, "60")
            done.set()

        waiting = threading.Thread(target=wait)
        waiting.start()
        with AnsweringSocket(folder / "late.sock", lambda _asked: YES):
            assert done.wait(20)
        waiting.join()
