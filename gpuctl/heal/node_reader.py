"""Reads the state of a GPU from outside: its slices, the claims that hold it, and its node's plugin.

The plugin is asked in its pod, by ``kubectl exec``, and its steps are read as they come.
"""

from __future__ import annotations

import subprocess
import tempfile
import threading
from collections.abc import Generator, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from driver.errors import ApiError, ConfigError
from driver.nvml.pci_address import PciAddress
from gpuctl.cli.cluster import ClusterView
from gpuctl.cli.unread import Unread
from gpuctl.doctor import pod_exec
from gpuctl.heal.plan import HealPlan, find_gpu, sick_gpu
from gpuctl.heal.steps import HealStep, UsingProcess, read_step
from gpuctl.repartition.in_the_way import ClaimInTheWay, claims_using
from gpuctl.repartition.node_gpus import complete_slices, read_node

_LONGEST_LINE_BYTES = 1 << 20
_LOOK_SECONDS = 60.0
_MORE_SECONDS = 400.0
"""For the start of the program in the pod, and for what comes after its waiting."""


class NodeReader:
    """Reads one node; each call reads it again. Raises ApiError.

    ``kubeconfig`` and ``context`` are handed to kubectl as the user gave them.
    """

    def __init__(self, view: ClusterView, node: str, kubeconfig: Path | None, context: str | None) -> None:
        self._view = view
        self._node = node
        self._kubeconfig = kubeconfig
        self._context = context

    def plan(self, name: str) -> HealPlan:
        """What a heal of the GPU of this name would do; raises ConfigError if the node has no such GPU."""
        _, slices = read_node(self._view, self._node)
        found = sick_gpu(slices, find_gpu(slices, self._node, name))
        # Nobody looks into the node unless a reset would help.
        if found.remedy != "reset":
            return HealPlan(self._node, (found,))
        pods = self._pods()
        step, unknown = self._look(pods, found.pci)
        others = [pci for pci in step.gpus if pci != found.pci] if step else []
        gpus = (found, *(sick_gpu(slices, pci) for pci in others))
        claims = self.claims(one.pci for one in gpus)
        return HealPlan(self._node, gpus, claims, _named(step, pods) if step else (), unknown)

    def slices(self) -> tuple[Any, ...] | None:
        """The newest slices of the node, None while they are not complete."""
        return complete_slices(self._view, self._node)

    def claims(self, gpus: Iterable[PciAddress]) -> tuple[ClaimInTheWay, ...]:
        """The claims that have any of these GPUs now."""
        return claims_using(self._view, self._node, frozenset(gpus))

    def named(self, step: HealStep) -> tuple[UsingProcess, ...]:
        """The processes of a step with the names of their pods."""
        return _named(step, self._pods() if any(one.pod for one in step.processes) else ())

    def heal(self, gpu: PciAddress, wait_seconds: float) -> Generator[HealStep]:
        """Have the plugin reset a GPU; its steps. Closing them calls the reset off while it waits.

        Raises ConfigError if there is no pod of the plugin, or it stops before the last step.
        """
        words = ["heal", "--here", str(gpu), "--yes", "--timeout", f"{wait_seconds:.0f}", "-o", "json"]
        return self._steps(self._pods(), words, wait_seconds + _MORE_SECONDS)

    def _look(self, pods: Sequence[Any] | Unread, gpu: PciAddress) -> tuple[HealStep | None, str]:
        """What the plugin says is in the way of a reset, or why it gives no answer."""
        try:
            step = next(self._steps(pods, ["heal", "--here", str(gpu), "-o", "json"], _LOOK_SECONDS))
        except ConfigError as error:
            return None, error.what
        return (None, step.message) if step.step == "failed" else (step, "")

    def _steps(
        self, pods: Sequence[Any] | Unread, words: list[str], timeout_seconds: float
    ) -> Generator[HealStep]:
        """The steps that gpuctl with these words prints in the plugin's pod."""
        target = pod_exec.plugin_pod(pods if isinstance(pods, Unread) else tuple(pods), self._node)
        if isinstance(target, Unread):
            raise ConfigError(target.why, "check that the driver runs there")
        # The pod calls the reset off when its stdin ends, which it does when this process dies, however.
        command = pod_exec.exec_command(target, words, self._kubeconfig, self._context, interactive=True)
        with tempfile.TemporaryFile() as errors:
            try:
                process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
                )
            except FileNotFoundError as error:
                raise pod_exec.no_kubectl(words[:3]) from error
            # Reading a pipe has no timeout of its own; when kubectl is killed, the read ends.
            timer = threading.Timer(timeout_seconds, process.kill)
            timer.start()
            last = ""
            try:
                assert process.stdout is not None  # noqa: S101 - for the type checker
                while line := process.stdout.readline(_LONGEST_LINE_BYTES):
                    step = read_step(line)
                    last = step.step
                    yield step
                process.wait()
            finally:
                # Also when the caller closes the generator: while kubectl runs, the pod's stdin stays open.
                timer.cancel()
                process.kill()
                process.wait()
                for pipe in (process.stdin, process.stdout):
                    if pipe is not None:
                        pipe.close()
            if last not in ("looked", "healed", "failed"):
                said = pod_exec.stderr_in_a_line(errors) or "it printed nothing"
                what = "broke off" if last else "failed"
                raise ConfigError(
                    f"kubectl exec in {target} {what} (exit code {process.returncode}): {said}",
                    "check the GPU again"
                    if last
                    else "this needs the right to create pods/exec, and a plugin of this version on the node",
                )

    def _pods(self) -> list[Any] | Unread:
        """The pods on the node."""
        try:
            return self._view.listed("/api/v1/pods", fieldSelector=f"spec.nodeName={self._node}")
        except ApiError as error:
            if error.retryable:
                raise
            return Unread(f"the pods of {self._node} cannot be listed: {error.what}")


def _named(step: HealStep, pods: Sequence[Any] | Unread) -> tuple[UsingProcess, ...]:
    """The processes of a step with the names of their pods, as far as these are known."""
    names = {
        pod["metadata"]["uid"]: f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        for pod in (() if isinstance(pods, Unread) else pods)
    }
    return tuple(replace(one, pod=names.get(one.pod, one.pod) if one.pod else None) for one in step.processes)
