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

from driver.devices.names import DRIVER_NAME
from driver.errors import ApiError, ConfigError
from driver.kube.paths import NODES, object_path
from gpuctl.cli.cluster import ClusterView
from gpuctl.cli.unread import Unread
from gpuctl.doctor import pod_exec
from gpuctl.heal.in_the_way import ClaimInTheWay, claims_using
from gpuctl.heal.plan import Heal, find_gpu, sick_gpu
from gpuctl.heal.steps import HealStep, UsingProcess, read_step
from kubernetes_rules.pool_generations import is_complete, newest_slices

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

    def plan(self, name: str) -> Heal:
        """What a heal of the GPU of this name would do; raises ConfigError if the node has no such GPU."""
        if self._view.found(object_path(NODES, self._node)) is None:
            raise ConfigError(f"there is no node {self._node}", "`kubectl get nodes` lists them")
        slices = self.slices()
        if slices is None:
            raise ConfigError(
                f"{self._node} publishes no complete pool of the driver {DRIVER_NAME}",
                "check that the driver runs there",
            )
        gpu = sick_gpu(slices, find_gpu(slices, self._node, name))
        heal = Heal(self._node, gpu.pci, gpu.product, gpu.remedy or "none", gpu.taints, (gpu.pci,))
        # Nobody looks into the node unless a reset would help.
        if heal.remedy != "reset":
            return heal
        pods = self._pods()
        step, unknown = self._look(pods, gpu.pci)
        gpus = (gpu.pci, *(pci for pci in step.gpus if pci != gpu.pci)) if step else (gpu.pci,)
        return replace(
            heal,
            reset_together=gpus,
            claims=self.claims(gpus),
            processes=_named(step, pods) if step else (),
            partitions_lost=tuple(name for pci in gpus for name in sick_gpu(slices, pci).static_partitions),
            unknown=unknown,
        )

    def slices(self) -> tuple[Any, ...] | None:
        """The newest slices of the node; None without any, and while a pool is incomplete."""
        specs = ((one, one["spec"]) for one in self._view.slices())
        mine = [
            one for one, spec in specs if (spec["driver"], spec.get("nodeName")) == (DRIVER_NAME, self._node)
        ]
        # The slices of a generation are written one by one: until then GPUs would seem to be missing.
        pools = newest_slices(mine).values()
        if not pools or not all(map(is_complete, pools)):
            return None
        return tuple(one for pool in pools for one in pool)

    def claims(self, gpus: Iterable[str]) -> tuple[ClaimInTheWay, ...]:
        """The claims that have any of these GPUs now."""
        return claims_using(self._view, self._node, frozenset(gpus))

    def named(self, step: HealStep) -> tuple[UsingProcess, ...]:
        """The processes of a step with the names of their pods."""
        return _named(step, self._pods() if any(one.pod_uid for one in step.processes) else ())

    def heal(self, gpu: str, wait_seconds: float) -> Generator[HealStep]:
        """Have the plugin reset a GPU; its steps. Closing them calls the reset off while it waits.

        Raises ConfigError if there is no pod of the plugin, or it stops before the last step.
        """
        words = ["heal", "--here", gpu, "--yes", "--timeout", f"{wait_seconds:.0f}", "-o", "json"]
        return self._steps(self._pods(), words, wait_seconds + _MORE_SECONDS)

    def _look(self, pods: Sequence[Any] | Unread, gpu: str) -> tuple[HealStep | None, str | None]:
        """What the plugin says is in the way of a reset, or why it gives no answer."""
        try:
            step = next(self._steps(pods, ["heal", "--here", gpu, "-o", "json"], _LOOK_SECONDS))
        except ConfigError as error:
            return None, error.what
        return (None, step.message) if step.step == "failed" else (step, None)

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
    return tuple(
        replace(one, pod_uid=None, pod=names.get(one.pod_uid, one.pod_uid)) if one.pod_uid else one
        for one in step.processes
    )
