"""Runs gpuctl in the plugin's pod of a node, by ``kubectl exec``, and reads what it prints.

kubectl is used since the API server's exec is a protocol of its own, over WebSockets, that our client lacks.
"""

from __future__ import annotations

import subprocess
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from driver.errors import ConfigError
from gpuctl.cli.output import AMISS_EXIT_CODE
from gpuctl.cli.unread import Listed, Unread
from gpuctl.doctor.outside.programs import programs_of
from gpuctl.doctor.outside.seen import name_of, namespace_of

TIMEOUT_SECONDS = 120.0
MOST_BYTES = 128 << 20
_MOST_ERROR_BYTES = 1 << 16
_SHOWN_CHARACTERS = 300


@dataclass(frozen=True, slots=True)
class PluginPod:
    """Where the plugin runs on a node."""

    namespace: str
    pod: str
    container: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.pod}"


def plugin_pod(pods: Listed, node: str) -> PluginPod | Unread:
    """The pod on the node that runs the kubelet plugin; the newest one in a rolling update."""
    if isinstance(pods, Unread):
        return pods
    found = [
        (str(pod["metadata"].get("creationTimestamp", "")), pod, programs["kubeletplugin"])
        for pod in pods
        if pod["spec"].get("nodeName") == node
        and (pod.get("status") or {}).get("phase") == "Running"
        and "kubeletplugin" in (programs := programs_of(pod["spec"]))
    ]
    if not found:
        return Unread(f"no pod with gpu-dra-kubeletplugin runs on {node}")
    # Times are RFC 3339 in UTC, so the greatest text is the newest.
    _, pod, container = max(found, key=lambda one: one[0])
    return PluginPod(namespace_of(pod), name_of(pod), str(container["name"]))


def run_in_pod(
    target: PluginPod, words: Sequence[str], kubeconfig: Path | None, context: str | None
) -> bytes:
    """What ``gpuctl`` with these words printed in the pod; raises ConfigError if it gave no answer."""
    command = exec_command(target, words, kubeconfig, context)
    try:
        code, printed, said = run_bounded(command, TIMEOUT_SECONDS, MOST_BYTES)
    except FileNotFoundError as error:
        raise no_kubectl(words) from error
    # kubectl hands on the exit code of the program: a doctor with a failed check gave an answer, too.
    if code not in (0, AMISS_EXIT_CODE) or not printed or len(printed) > MOST_BYTES:
        raise ConfigError(
            f"kubectl exec in {target} failed (exit code {code}): {said or 'it printed nothing'}",
            "this needs the right to create pods/exec, an image with gpuctl, and an answer "
            f"within {TIMEOUT_SECONDS:.0f} s",
        )
    return printed


def no_kubectl(words: Sequence[str]) -> ConfigError:
    """The error where kubectl is not installed; ``words`` are what it would have run gpuctl with."""
    return ConfigError(
        "kubectl is not on the PATH, and gpuctl needs it to run a program in a pod",
        f"install kubectl, or run `gpuctl {' '.join(words)}` in the plugin's pod yourself",
    )


def exec_command(
    target: PluginPod,
    words: Sequence[str],
    kubeconfig: Path | None,
    context: str | None,
    *,
    interactive: bool = False,
) -> list[str]:
    """The command that runs ``gpuctl`` with these words in the pod; ``interactive`` gives it a stdin."""
    return [
        "kubectl",
        *(["--kubeconfig", str(kubeconfig)] if kubeconfig else []),
        *(["--context", context] if context else []),
        *("exec", "--namespace", target.namespace, target.pod, "--container", target.container),
        *(["--stdin"] if interactive else []),
        *("--", "gpuctl", *words),
    ]


def run_bounded(command: Sequence[str], timeout_seconds: float, most_bytes: int) -> tuple[int, bytes, str]:
    """The exit code of a command, what it printed, and its stderr in one line; raises FileNotFoundError.

    A command that takes longer or prints more is ended; what it printed is then one byte too long.
    """
    # stderr goes into a file: a pipe that nobody reads would fill up and block the command.
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors)
        timer = threading.Timer(timeout_seconds, process.kill)
        timer.start()
        try:
            assert process.stdout is not None  # noqa: S101 - for the type checker
            # The pod is the node's, and a hostile node may send without end.
            with process.stdout as stream:
                printed = stream.read(most_bytes + 1)
            if len(printed) > most_bytes:
                process.kill()
            code = process.wait()
        finally:
            timer.cancel()
            process.kill()
        return code, printed, stderr_in_a_line(errors)


def stderr_in_a_line(errors: IO[bytes]) -> str:
    """The beginning of what a command wrote into the file that is its stderr."""
    errors.seek(0)
    text = " ".join(errors.read(_MOST_ERROR_BYTES).decode(errors="replace").split())
    return text[:_SHOWN_CHARACTERS]
