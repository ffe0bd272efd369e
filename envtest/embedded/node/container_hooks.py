"""Runs the createRuntime hooks of a container as runc does: after its control group is made, before it runs.

There is no process here, so a hook would find no /proc/PID/cgroup. Instead of running gpu-memory-hook, this
module sends the plugin the same request, or looks for devices that MPS hides, and fails in the same words.
Other hooks need a real container, and are left out.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from envtest.embedded.node.containers import Container, PodSandbox, StartFailed

_MEMORY_HOOK = "gpu-memory-hook"
_PIPES = "/tmp/nvidia-mps"  # noqa: S108 - where CUDA looks for MPS
_METADATA_FOLDER = "/var/run/kubernetes.io/dra-device-attributes/"
_METADATA_FILE = "/gpu.nvidia.com-metadata.json"
_NOT_FOR_CUDA = ('"type":{"string":"vfio"}', '"type":{"string":"vgpu"}', '"adminAccess":')

_ANNOTATION = "io.kubernetes.cri."
# The state has the pid of the container's first process; here there is none.
_NO_PROCESS = 1
_FAILED = (
    "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create "
    "failed: unable to start container process: error during container init: "
)

# The version of the hook's requests.
VERSION = 1
_AGAIN_SECONDS = 0.1
_MOST_BYTES = 64 * 1024
_NAMES_PREFIX = "io.kubernetes."


def run_create_runtime(container: Container, pod: PodSandbox, image: str) -> None:
    """Run the hooks in their order; raises StartFailed at the first that fails."""
    state = _oci_state(container, pod, image)
    calls = [hook for hook in container.view.hooks if hook["hookName"] == "createRuntime"]
    for index, hook in enumerate(calls):
        fault = _failure(hook, state, container)
        if fault:
            raise StartFailed(f"{_FAILED}error running createRuntime hook #{index}: {fault}")


def _oci_state(container: Container, pod: PodSandbox, image: str) -> dict[str, Any]:
    """What a hook reads on stdin: the state of the OCI specification, with the annotations of containerd."""
    annotations = {
        "container-name": container.name,
        "container-type": "container",
        "image-name": image,
        "sandbox-id": pod.uid.replace("-", ""),
        "sandbox-name": pod.name,
        "sandbox-namespace": pod.namespace,
        "sandbox-uid": pod.uid,
    }
    return {
        "ociVersion": "1.3.0",
        "id": container.id,
        "status": "creating",
        "pid": _NO_PROCESS,
        "bundle": f"/run/containerd/io.containerd.runtime.v2.task/k8s.io/{container.id}",
        "annotations": {f"{_ANNOTATION}{name}": value for name, value in annotations.items()},
    }


def _failure(hook: Mapping[str, Any], state: Mapping[str, Any], container: Container) -> str:
    """Why a hook failed, in the words of runc; empty where it did not."""
    path, args = str(hook["path"]), [str(one) for one in hook.get("args", ())]
    if Path(path).name != _MEMORY_HOOK:
        return ""
    if not Path(path).is_file():
        return f"fork/exec {path}: no such file or directory"
    if not os.access(path, os.X_OK):
        return f"fork/exec {path}: permission denied"
    try:
        if args[1] == "mps":
            mounts = {path: one.host_path for path, one in container.view.mounts.items()}
            play_mps_hook(container.view.hooks, mounts)
        else:
            # cgroup v2 has one line in /proc/PID/cgroup, which begins with 0 and two colons.
            play_memory_hook(_options(args), state, f"0::{container.cgroup}\n")
    except HookFailed as error:
        return f"exit status 1, stdout: , stderr: {error}\n"
    return ""


def _options(args: Sequence[str]) -> dict[str, str]:
    """The options of a command line that are ``--name=value``."""
    pairs = (one.removeprefix("--").partition("=") for one in args[1:])
    return {name: value for name, _, value in pairs}


class HookFailed(Exception):
    """The container must not run; the message is what the program writes to stderr."""

    def __init__(self, fault: str) -> None:
        super().__init__(f"gpu.nvidia.com does not let this container start: {' '.join(fault.split())}")


def play_mps_hook(hooks: Sequence[Mapping[str, Any]], mounts: Mapping[str, str]) -> None:
    """Do what ``gpu-memory-hook mps`` does; raises HookFailed if CUDA would not show all devices.

    ``mounts`` are the paths of the host by those in the container.
    """
    told = [_options(one["args"]) for one in hooks if list(one.get("args", ()))[1:2] == ["mps"]]
    pipes = {one["request"]: one["pipes"] for one in told}
    hidden = [request for request, own in pipes.items() if own != mounts.get(_PIPES)]
    for path, file in mounts.items():
        request = path.removeprefix(_METADATA_FOLDER).removesuffix(_METADATA_FILE)
        if path.endswith(_METADATA_FILE) and request not in pipes and _is_for_cuda(Path(file)):
            hidden.append(request)
    if hidden:
        shown = next((request for request, own in pipes.items() if own == mounts.get(_PIPES)), "")
        raise HookFailed(
            f"{_named(shown)} is used through MPS, so CUDA would hide {_named(hidden[0])} from the "
            "container: give each container one of the two (resources.claims[].request) (permanent)"
        )


def _is_for_cuda(file: Path) -> bool:
    text = file.read_text()
    return not any(one in text for one in _NOT_FOR_CUDA)


def _named(request: str) -> str:
    parts = request.split("/")
    if len(parts) != 3:
        return "a device of another request"
    return f"request {parts[2]} of claim {parts[1]}"


def play_memory_hook(options: Mapping[str, str], state: Mapping[str, Any], proc_cgroup: str) -> None:
    """Do what gpu-memory-hook does: return once a plugin has agreed; raises HookFailed.

    ``options`` are those of the program, by their names. ``proc_cgroup`` is the text of /proc/PID/cgroup.
    """
    fault = _plugin_refusal(
        Path(options["sockets"]), _line(options, state, proc_cgroup), float(options["seconds"])
    )
    if fault:
        raise HookFailed(fault)


def _line(options: Mapping[str, str], state: Mapping[str, Any], proc_cgroup: str) -> bytes:
    annotations = {
        name: value for name, value in state["annotations"].items() if name.startswith(_NAMES_PREFIX)
    }
    asked = {
        "version": VERSION,
        "claim": options["claim"],
        "device": options["device"],
        "state": {**state, "annotations": annotations},
        "cgroup": proc_cgroup,
    }
    return json.dumps(asked).encode() + b"\n"


def _plugin_refusal(folder: Path, line: bytes, seconds: float) -> str:
    """Why the container must not run; empty where it may."""
    deadline = time.monotonic() + seconds
    while True:
        # Looked for anew each time: the plugin may just be starting.
        sockets = _newest_first(folder)
        for index, path in enumerate(sockets):
            left = deadline - time.monotonic()
            # An instance that hangs must not use up the time of the others.
            answer = _answer(path, line, left / (len(sockets) - index))
            if answer is not None:
                return "" if answer["ok"] is True else str(answer.get("message") or "it does not say why")
        if time.monotonic() + _AGAIN_SECONDS >= deadline:
            return (
                f"the kubelet plugin, which would hold it to its share of GPU memory, did not answer within "
                f"{seconds:g} s at {folder}: look at the gpu.nvidia.com kubelet plugin of this node"
            )
        time.sleep(_AGAIN_SECONDS)


def _newest_first(folder: Path) -> list[Path]:
    """The sockets of the plugin's instances, of which there are two during a rolling update."""
    found = []
    with suppress(OSError):
        for path in folder.glob("[!.]*.sock"):
            with suppress(OSError):
                found.append((path.stat().st_mtime_ns, path))
    return [path for _, path in sorted(found, reverse=True)]


def _answer(path: Path, line: bytes, seconds: float) -> Mapping[str, Any] | None:
    """The answer of one instance; None where there is none, or it cannot be read."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(max(seconds, 0.001))
        received = b""
        with suppress(OSError):
            connection.connect(str(path))
            connection.sendall(line)
            while not received.endswith(b"\n") and len(received) < _MOST_BYTES:
                part = connection.recv(_MOST_BYTES)
                if not part:
                    break
                received += part
    try:
        answer = json.loads(received)
    except ValueError:
        return None
    return answer if isinstance(answer, dict) and isinstance(answer.get("ok"), bool) else None
