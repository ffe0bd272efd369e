"""Runs the createRuntime hooks of a container as runc does: after its control group is made, before it runs.

There is no process here, so a hook is played by whoever brought it. Other hooks need a real container, and
are left out.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from envtest.cluster import PlayedContainer, PlayedPrograms
from envtest.embedded.node.containers import Container, PodSandbox, StartFailed

_ANNOTATION = "io.kubernetes.cri."
# The state has the pid of the container's first process; here there is none.
_NO_PROCESS = 1
_FAILED = (
    "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create "
    "failed: unable to start container process: error during container init: "
)


def run_create_runtime(
    container: Container, pod: PodSandbox, image: str, programs: PlayedPrograms | None
) -> None:
    """Run the hooks in their order; raises StartFailed at the first that fails."""
    state = _oci_state(container, pod, image)
    calls = [hook for hook in container.view.hooks if hook["hookName"] == "createRuntime"]
    for index, hook in enumerate(calls):
        fault = _failure(hook, state, PlayedContainer(container.view, container.cgroup), programs)
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


def _failure(
    hook: Mapping[str, Any],
    state: Mapping[str, Any],
    container: PlayedContainer,
    programs: PlayedPrograms | None,
) -> str:
    """Why a hook failed, in the words of runc; empty where it did not."""
    path = str(hook["path"])
    if programs is None or Path(path).name not in programs.hooks:
        return ""
    if not Path(path).is_file():
        return f"fork/exec {path}: no such file or directory"
    if not os.access(path, os.X_OK):
        return f"fork/exec {path}: permission denied"
    fault = programs.hook(container, hook, state)
    return fault and f"exit status 1, stdout: , stderr: {fault}\n"
