"""The embedded runtime plays gpu-memory-hook as the program is: it says and does the same."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from envtest.embedded.node.container_hooks import HookFailed, play_memory_hook
from tests.envtest.embedded.node.hook_socket import YES, AnsweringSocket, Object
from tests.kubeletplugin.fake_kubelet import short_folder
from tools.testbed.memory_hook import memory_hook

STATE = {
    "ociVersion": "1.3.0",
    "id": "c1",
    "status": "creating",
    "pid": os.getpid(),
    "bundle": "/run/c1",
    "annotations": {"io.kubernetes.cri.container-name": "main", "team.example.com/secret": "no"},
}


def played(options: dict[str, str]) -> str:
    try:
        play_memory_hook(options, STATE, Path("/proc/self/cgroup").read_text())
    except HookFailed as error:
        return str(error)
    return ""


def run(options: dict[str, str]) -> str:
    arguments = [f"--{name}={value}" for name, value in options.items()]
    done = subprocess.run(
        [memory_hook(), *arguments], input=json.dumps(STATE), text=True, capture_output=True, check=False
    )
    assert (done.returncode == 0) == (done.stderr == "")
    return done.stderr.strip()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (YES, ""),
        ({"ok": False, "message": "it\ndoes not fit"}, "it does not fit"),
        (b"{}\n", "did not answer within 1 s at "),
        (b"", "did not answer within 1 s at "),
    ],
)
@pytest.mark.parametrize("hook", [played, run])
def test_what_is_asked_and_what_becomes_of_the_answer(
    hook: Callable[[dict[str, str]], str], answer: Object | bytes, said: str
) -> None:
    with short_folder() as folder, AnsweringSocket(folder / "a.sock", lambda _asked: answer) as plugin:
        options = {"sockets": str(folder), "claim": "uid", "device": "uid-0", "seconds": "1"}
        told = hook(options)

    assert said in told
    assert told.startswith("gpu.nvidia.com does not let this container start: ") == bool(said)
    assert plugin.asked[0] == {
        "version": 1,
        "claim": "uid",
        "device": "uid-0",
        "state": {**STATE, "annotations": {"io.kubernetes.cri.container-name": "main"}},
        "cgroup": Path("/proc/self/cgroup").read_text(),
    }
