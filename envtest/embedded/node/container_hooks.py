"""Runs the createRuntime hooks of a container as runc does: after its control group is made, before it runs.

There is no process here, so there is no /proc/PID/cgroup that a hook could read. gpu-memory-hook is
therefore played: what it says to the plugin and how it fails is as it is with the program itself. Other
hooks need a real container, and are left out.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from envtest.embedded.node.containers import Container, PodSandbox, StartFailed
from envtest.embedded.node.memory_hook import HookFailed, play_memory_hook

MEMORY_HOOK = "gpu-memory-hook"

_ANNOTATION = "io.kubernetes.cri."
_NO_PROCESS = 1
_FAILED = (
    "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create "
    "failed: unable to start container process: error during container init: "
)


def run_create_runtime(container: Container, pod: PodSandbox, image: str) -> None:
    """Run the hooks in their order; raises StartFailed at the first that fails."""
    state = oci_state(container, pod, image)
    calls = [hook for hook in container.view.hooks if hook["hookName"] == "createRuntime"]
    for index, hook in enumerate(calls):
        fault = _fault(hook, state, container.cgroup)
        if fault:
            raise StartFailed(f"{_FAILED}error running createRuntime hook #{index}: {fault}")


def oci_state(container: Container, pod: PodSandbox, image: str) -> dict[str, Any]:
    """What a hook reads on stdin: the state of the OCI specification, with the annotations of containerd."""
    told = {
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
        "annotations": {f"{_ANNOTATION}{name}": value for name, value in told.items()},
    }


def _fault(hook: Mapping[str, Any], state: Mapping[str, Any], cgroup: str) -> str:
    """Why a hook failed, in the words of runc; empty where it did not."""
    path, args = str(hook["path"]), [str(one) for one in hook.get("args", ())]
    if Path(path).name != MEMORY_HOOK:
        return ""
    if not Path(path).is_file():
        return f"fork/exec {path}: no such file or directory"
    if not os.access(path, os.X_OK):
        return f"fork/exec {path}: permission denied"
    try:
        play_memory_hook(_options(args), state, f"0::{cgroup}\n")
    except HookFailed as error:
        return f"exit status 1, stdout: , stderr: {error}\n"
    return ""


def _options(args: Sequence[str]) -> dict[str, str]:
    """The options of a command line that are ``--name=value``."""
    pairs = (one.removeprefix("--").partition("=") for one in args[1:])
    return {name: value for name, _, value in pairs}
