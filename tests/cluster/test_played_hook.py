"""The embedded runtime plays gpu-memory-hook as the program is: it says and does the same."""

import json
import os
import re
import subprocess
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from gpuctl.demo.played_programs import HookFailed, play_memory_hook, play_mps_hook
from tests.clusters import Object
from tests.gpuctl.demo.hook_socket import YES, AnsweringSocket
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


A, B = "resourceclaims/train/a", "resourceclaimtemplates/own/b"
OF_A, OF_B = "request a of claim train", "request b of claim own"
METADATA = "/var/run/kubernetes.io/dra-device-attributes/{}/gpu.nvidia.com-metadata.json"


@pytest.mark.parametrize(
    ("daemons", "beside", "said"),
    [
        ({A: "gpu-0"}, "", ()),
        ({A: "gpu-0", B: "gpu-0"}, "", ()),
        ({A: "gpu-0", B: "gpu-1"}, "", (OF_B, OF_A)),
        ({A: "gpu-0"}, '"type":{"string":"gpu"}', (OF_A, OF_B)),
        ({A: "gpu-0"}, '"type":{"string":"vfio"}', ()),
        ({A: "gpu-0"}, '"adminAccess":{"bool":true},"type":{"string":"mig"}', ()),
    ],
    ids=["one share", "one daemon", "two daemons", "a whole GPU", "a virtual machine's", "looked at"],
)
def test_a_container_in_which_mps_hides_a_device_is_refused_with_both_requests(
    tmp_path: Path, daemons: dict[str, str], beside: str, said: tuple[str, ...]
) -> None:
    args = [["gpu-memory-hook", "mps", f"--request={one}", f"--pipes={of}"] for one, of in daemons.items()]
    hooks: list[Object] = [{"path": f"{tmp_path}/hook/1/gpu-memory-hook", "args": one} for one in args]
    # What a tenant mounts there is not opened: it may be a pipe, a device, or larger than the node's memory.
    os.mkfifo(tmp_path / "own")
    mounts = {"/tmp/nvidia-mps": [*daemons.values()][-1], METADATA.format("own"): str(tmp_path / "own")}
    told_by_plugin = tmp_path / "boot" / "metadata" / "told"
    told_by_plugin.parent.mkdir(parents=True)
    told_by_plugin.write_text(f"{{{beside}}}")
    mounts |= {METADATA.format(one): str(told_by_plugin) for one in ((A, B) if beside else daemons)}
    listed = [{"destination": path, "source": source} for path, source in mounts.items()]
    config = {"mounts": listed, "hooks": {"createRuntime": hooks}}
    (tmp_path / "config.json").write_text(json.dumps(config))

    state = json.dumps({**STATE, "bundle": str(tmp_path)})
    command = [str(memory_hook()), *args[0][1:]]
    done = subprocess.run(command, input=state, text=True, capture_output=True, check=False, timeout=30)

    told = " is used through MPS, so CUDA would hide ".join(said)
    assert told in done.stderr
    assert bool(done.returncode) is bool(said)
    with pytest.raises(HookFailed, match=re.escape(done.stderr.strip())) if said else nullcontext():
        play_mps_hook(hooks, mounts)
