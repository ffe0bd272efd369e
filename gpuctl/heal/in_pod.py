"""Has the plugin's pod of a node heal a GPU, by ``kubectl exec``, and reads its steps as they come."""

from __future__ import annotations

import subprocess
import tempfile
import threading
from typing import TYPE_CHECKING

from driver.errors import ConfigError
from gpuctl.doctor.pod_exec import exec_command
from gpuctl.heal.steps import read_step

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from gpuctl.doctor.pod_exec import PluginPod
    from gpuctl.heal.steps import HealStep

_LONGEST_LINE_BYTES = 1 << 20
_MOST_ERROR_BYTES = 1 << 16
_SHOWN_CHARACTERS = 300
_MORE_SECONDS = 400.0
"""For the start of the program in the pod, and what comes after its waiting."""


class PodSteps:
    """What may be asked of one plugin's pod; ``kubeconfig`` and ``context`` are as the user gave them."""

    def __init__(self, target: PluginPod, kubeconfig: Path | None, context: str | None) -> None:
        self._target = target
        self._kubeconfig = kubeconfig
        self._context = context

    def look(self, gpu: str) -> HealStep:
        """What is in the way of a reset; raises ConfigError where the pod does not tell."""
        return next(self._steps(["heal", "--here", gpu, "-o", "json"], 60.0))

    def heal(self, gpu: str, wait_seconds: float) -> Generator[HealStep]:
        """The steps of a reset; whoever closes them calls it off while it waits.

        Raises ConfigError where the pod tells none, or stops before the last.
        """
        words = ["heal", "--here", gpu, "--yes", "--timeout", f"{wait_seconds:.0f}", "-o", "json"]
        return self._steps(words, wait_seconds + _MORE_SECONDS)

    def _steps(self, words: list[str], timeout_seconds: float) -> Generator[HealStep]:
        command = exec_command(self._target, words, self._kubeconfig, self._context, interactive=True)
        with tempfile.TemporaryFile() as errors:
            try:
                process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
                )
            except FileNotFoundError as error:
                raise ConfigError(
                    "kubectl is not on the PATH, and nothing else runs a program in a pod",
                    f"install kubectl, or run `gpuctl {' '.join(words[:3])}` in the plugin's pod yourself",
                ) from error
            timer = threading.Timer(timeout_seconds, process.kill)
            timer.start()
            told = ""
            try:
                assert process.stdout is not None  # noqa: S101 - for the type checker
                while line := process.stdout.readline(_LONGEST_LINE_BYTES):
                    step = read_step(line)
                    told = step.step
                    yield step
                process.wait()
            finally:
                timer.cancel()
                process.kill()
                process.wait()
                for pipe in (process.stdin, process.stdout):
                    if pipe is not None:
                        pipe.close()
            if told not in ("looked", "healed", "failed"):
                errors.seek(0)
                said = " ".join(errors.read(_MOST_ERROR_BYTES).decode(errors="replace").split())
                where = f"kubectl exec in {self._target.namespace}/{self._target.pod}"
                what = "broke off" if told else "gave no answer"
                raise ConfigError(
                    f"{where} {what} (exit code {process.returncode}): "
                    f"{said[:_SHOWN_CHARACTERS] or 'it said nothing'}",
                    "look again"
                    if told
                    else "it takes the right to create pods/exec, and a plugin of this version on the node",
                )
