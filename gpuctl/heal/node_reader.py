"""Reads how a GPU is from outside: its slices, the claims that have it, and what its node's plugin sees.

The plugin is asked in its pod, by ``kubectl exec``, and its steps are read as they come.
"""

from __future__ import annotations

import subprocess
import tempfile
import threading
from collections.abc import Generator, Iterable, Sequence
from pathlib import Path
from typing import Any

from driver.devices.names import DRIVER_NAME
from driver.errors import ApiError, ConfigError
from driver.kube.paths import NODES, object_path
from driver.nvml.pci_address import PciAddress
from gpuctl.cli.cluster import ClusterView
from gpuctl.doctor.outside.seen import Unread
from gpuctl.doctor.pod_exec import PluginPod, exec_command, plugin_pod
from gpuctl.heal.plan import HealPlan, ProcessInTheWay, find_gpu, sick_gpu
from gpuctl.heal.steps import HealStep, read_step
from gpuctl.repartition.in_the_way import claims_in_the_way
from gpuctl.repartition.node_gpus import newest

_LONGEST_LINE_BYTES = 1 << 20
_MOST_ERROR_BYTES = 1 << 16
_SHOWN_CHARACTERS = 300
_MORE_SECONDS = 400.0
"""For the start of the program in the pod, and what comes after its waiting."""


class NodeReader:
    """Reads one node, as often as is asked; raises ApiError."""

    def __init__(self, view: ClusterView, node: str, kubeconfig: Path | None, context: str | None) -> None:
        self._view = view
        self._node = node
        self._kubeconfig = kubeconfig
        self._context = context

    def plan(self, name: str) -> HealPlan:
        """What would be done for the GPU of this name; raises ConfigError where the node has none."""
        if self._view.found(object_path(NODES, self._node)) is None:
            raise ConfigError(f"there is no node {self._node}", "`kubectl get nodes` lists them")
        slices = self.slices()
        if slices is None:
            raise ConfigError(
                f"{self._node} publishes no complete pool of the driver {DRIVER_NAME}",
                "see that the driver runs there",
            )
        found = sick_gpu(slices, find_gpu(slices, self._node, name))
        if found.remedy != "reset":
            return HealPlan(self._node, (found,))
        pods = self._pods()
        step, unknown = self._inside(pods, found.pci)
        others = [pci for pci in step.gpus if pci != found.pci] if step else []
        gpus = (found, *(sick_gpu(slices, pci) for pci in others))
        claims = claims_in_the_way(self._view, self._node, {one.pci for one in gpus})
        processes = named(step, pods) if step else ()
        return HealPlan(self._node, gpus, claims, processes, unknown)

    def slices(self) -> tuple[Any, ...] | None:
        """The slices of the node that count, None while they are not complete."""
        return newest(self._view.slices(), self._node)

    def claims(self, gpus: Iterable[PciAddress]) -> tuple[Any, ...]:
        """The claims that have any of these GPUs now."""
        return claims_in_the_way(self._view, self._node, frozenset(gpus))

    def named(self, step: HealStep) -> tuple[ProcessInTheWay, ...]:
        """The processes of a step with the names of their pods."""
        return named(step, self._pods() if any(one.pod for one in step.processes) else ())

    def inside(self) -> PodSteps:
        """The plugin's pod on the node; raises ConfigError where there is none, or none may be seen."""
        return self._pod_steps(self._pods())

    def _inside(self, pods: Sequence[Any] | Unread, pci: PciAddress) -> tuple[HealStep | None, str]:
        """What the plugin sees, or why it does not say."""
        try:
            step = self._pod_steps(pods).look(str(pci))
        except ConfigError as error:
            return None, error.what
        return (None, step.message) if step.step == "failed" else (step, "")

    def _pod_steps(self, pods: Sequence[Any] | Unread) -> PodSteps:
        target = plugin_pod(pods if isinstance(pods, Unread) else tuple(pods), self._node)
        if isinstance(target, Unread):
            raise ConfigError(target.why, "see that the driver runs there")
        return PodSteps(target, self._kubeconfig, self._context)

    def _pods(self) -> list[Any] | Unread:
        """The pods on the node."""
        try:
            return self._view.listed("/api/v1/pods", fieldSelector=f"spec.nodeName={self._node}")
        except ApiError as error:
            if error.retryable:
                raise
            return Unread(f"the pods of {self._node} cannot be listed: {error.what}")


def named(step: HealStep, pods: Sequence[Any] | Unread) -> tuple[ProcessInTheWay, ...]:
    """The processes of a step with the names of their pods; the UID of one that is not known."""
    known = {
        pod["metadata"]["uid"]: f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        for pod in (() if isinstance(pods, Unread) else pods)
    }
    return tuple(
        ProcessInTheWay(one.process_id, one.name, known.get(one.pod, one.pod) if one.pod else None)
        for one in step.processes
    )


class PodSteps:
    """What may be asked of one plugin's pod; ``kubeconfig`` and ``context`` are as the user gave them."""

    def __init__(self, target: PluginPod, kubeconfig: Path | None, context: str | None) -> None:
        self._target = target
        self._kubeconfig = kubeconfig
        self._context = context

    def look(self, gpu: str) -> HealStep:
        """What is in the way of a reset; raises ConfigError where the pod does not answer."""
        return next(self._steps(["heal", "--here", gpu, "-o", "json"], 60.0))

    def heal(self, gpu: str, wait_seconds: float) -> Generator[HealStep]:
        """The steps of a reset; closing them cancels the reset while it waits.

        Raises ConfigError where the pod gives none, or stops before the last.
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
