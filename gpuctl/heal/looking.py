"""Looks at a GPU from outside: its slices, the claims that have it, and what the plugin of its node sees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from driver.devices.names import DRIVER_NAME
from driver.errors import ApiError, ConfigError
from driver.kube.paths import NODES, object_path
from gpuctl.doctor.outside.seen import Unread
from gpuctl.doctor.pod_exec import plugin_pod
from gpuctl.heal.in_pod import PodSteps
from gpuctl.heal.plan import HealPlan, ProcessInTheWay
from gpuctl.heal.sick_gpu import find_gpu, sick_gpu
from gpuctl.repartition.in_the_way import claims_in_the_way
from gpuctl.repartition.node_gpus import newest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from driver.nvml.pci_address import PciAddress
    from gpuctl.cli.cluster_view import ClusterView
    from gpuctl.heal.steps import HealStep


class Looking:
    """Looks at one node again and again; raises ApiError."""

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
