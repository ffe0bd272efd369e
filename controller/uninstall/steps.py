"""Removes the driver from the nodes, in an order that leaves no pod with half of a GPU.

    no claim has a device → no controller → no slices → still no claim → no plugin → every node is clean

Nothing is deleted while a claim has a device. If something turns out to be in the way later, the paused
DaemonSets are resumed, so that the driver serves as before. A run that was interrupted begins again; steps
that are done cost nothing. A DaemonSet made from the plugin's one cleans the nodes.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import TypeVar

from controller.uninstall.cluster import PAUSED, Cluster, Object, holders, is_ready, named
from driver.errors import DriverError
from driver.process.log import get_logger

T = TypeVar("T")

_log = get_logger("uninstall")

NAME = "gpu-dra-retire"
# Other labels than the plugin's: otherwise the plugin's DaemonSet would adopt these pods.
LABELS = {"app.kubernetes.io/name": NAME}

_FLAG = "--retire"
CONTAINER = "kubeletplugin"


class Refused(DriverError):
    """The driver cannot be removed now."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Waiting times: between checks, for late allocations, for the end of pods, for the nodes."""

    check_seconds: float = 0.5
    settle_seconds: float = 5.0
    pods_seconds: float = 60.0
    nodes_seconds: float = 120.0


@dataclass(frozen=True, slots=True)
class Installed:
    """The names of the driver's DaemonSets."""

    controller: str = "gpu-dra-controller"
    plugin: str = "gpu-dra-kubeletplugin"


class Uninstallation:
    """One run. ``sleep(seconds)`` waits; all methods raise DriverError."""

    def __init__(
        self,
        cluster: Cluster,
        installed: Installed,
        patience: Patience,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._cluster = cluster
        self._installed = installed
        self._patience = patience
        self._sleep = sleep

    def run(self) -> tuple[str, ...]:
        """Remove the driver; returns the names of the nodes that could not be cleaned because they are down.

        Raises Refused with the names of the pods or nodes that are in the way.
        """
        self._refuse_holders()
        try:
            self._withdraw()
            # A scheduler may still write an allocation that it has decided before the slices were gone.
            self._sleep(self._patience.settle_seconds)
            self._refuse_holders()
            down = self._clean_nodes()
            self._refuse_holders()
        except DriverError:
            self._undo()
            raise
        self._end_cleaning()
        return down

    def _refuse_holders(self) -> None:
        found = holders(self._cluster.claims())
        if found:
            raise Refused(
                f"GPUs are in use by {named(found)}",
                "end these pods, then uninstall again: without the driver their claims could not "
                "be unprepared",
            )

    def _withdraw(self) -> None:
        """End the controllers, which would publish again, and delete all slices."""
        self._pause(self._installed.controller)

        publishing: set[str] = set()

        def none_left() -> bool:
            left = self._cluster.slices()
            for item in left:
                self._cluster.delete_slice(item)
            publishing.clear()
            # On a node that is down the controller may still run. Its slices are deleted with the Node.
            publishing.update(self._up({str(item["spec"].get("nodeName") or "") for item in left}))
            return not publishing

        if not self._until(none_left, self._patience.pods_seconds):
            raise Refused(
                f"ResourceSlices reappear for the nodes {named(sorted(publishing))}",
                "stop the controllers that run there outside of the DaemonSet",
            )

    def _clean_nodes(self) -> tuple[str, ...]:
        """End the plugins and clean every node that is up; returns the names of the others."""
        plugin = self._cluster.daemon_set(self._installed.plugin)
        if plugin is None:
            _log.warning(
                "no node is cleaned: the plugin's DaemonSet does not exist", daemon_set=self._installed.plugin
            )
            return ()
        self._pause(self._installed.plugin)
        self._end_cleaning()
        self._cluster.create_daemon_set(retiring(plugin, PAUSED))
        last: list[Progress] = []

        def ended() -> bool:
            last[:] = [self._progress()]
            return last[0].missing == 0 and not self._up(last[0].busy)

        ended_in_time = self._until(ended, self._patience.nodes_seconds)
        now = last[0]
        failed = {node: now.failed[node] for node in self._up(now.failed)}
        if failed:
            raise Refused(
                "nodes are still in use: " + named(f"{node}: {why}" for node, why in sorted(failed.items())),
                "follow the advice for each node, then uninstall again",
            )
        if not ended_in_time:
            raise Refused(
                f"{len(now.busy) + now.missing} nodes were not cleaned within "
                f"{self._patience.nodes_seconds:.0f} s, among them {named(sorted(now.busy))}",
                f"see why the pods of the DaemonSet {NAME} do not become ready, or allow more "
                "time with --nodes-seconds",
            )
        return tuple(sorted(now.busy | now.failed.keys()))

    def _pause(self, name: str) -> None:
        """Make a DaemonSet run nowhere, and wait for the end of its pods on nodes that are up."""
        # On a node that is down no kubelet confirms that a pod has ended, so the pod stays in the API.
        daemon_set = self._cluster.daemon_set(name)
        if daemon_set is None:
            return
        self._cluster.pause(name)
        self._wait_for_end(name, daemon_set["spec"]["selector"]["matchLabels"])

    def _wait_for_end(self, name: str, labels: dict[str, str]) -> None:
        def gone() -> bool:
            return not self._up(self._nodes_of(labels))

        if not self._until(gone, self._patience.pods_seconds):
            raise Refused(
                f"the pods of {name} do not end on {named(sorted(self._up(self._nodes_of(labels))))}",
                "see why they do not end, then uninstall again",
            )

    def _nodes_of(self, labels: dict[str, str]) -> frozenset[str]:
        return frozenset((pod["spec"].get("nodeName") or "") for pod in self._cluster.pods(labels))

    def _progress(self) -> Progress:
        daemon_set: Object = self._cluster.daemon_set(NAME) or {"metadata": {}}
        return progress(daemon_set, self._cluster.pods(LABELS))

    def _up(self, nodes: Collection[str]) -> frozenset[str]:
        """The nodes of these that are Ready, so that it makes sense to wait for them."""
        return frozenset(nodes) & self._cluster.ready_nodes() if nodes else frozenset()

    def _end_cleaning(self) -> None:
        self._cluster.delete_daemon_set(NAME)
        self._wait_for_end(NAME, LABELS)

    def _undo(self) -> None:
        """Make the driver serve as before."""
        # A step that fails must not keep the next ones from being undone.
        for undo in (
            self._end_cleaning,
            lambda: self._cluster.resume(self._installed.plugin),
            lambda: self._cluster.resume(self._installed.controller),
        ):
            try:
                undo()
            except DriverError as error:
                _log.error(
                    "the driver does not run as before the uninstallation: uninstall again",
                    error=error.logged,
                )

    def _until(self, done: Callable[[], bool], seconds: float) -> bool:
        """Check until it is done; False if that takes longer than ``seconds``."""
        deadline = time.monotonic() + seconds
        while not done():
            if time.monotonic() >= deadline:
                return False
            self._sleep(self._patience.check_seconds)
        return True


@dataclass(frozen=True, slots=True)
class Progress:
    """The nodes that are clean, those that are being cleaned, and those where it failed, with the reason.

    ``missing`` is how many nodes have no pod yet.
    """

    clean: frozenset[str]
    busy: frozenset[str]
    failed: dict[str, str]
    missing: int


def retiring(plugin: Object, paused_label: str) -> Object:
    """A DaemonSet that cleans the nodes of the plugin: the plugin's one, with the flag to retire.

    Its pods run on the same nodes with the same rights and mounts. ``paused_label`` is the node label that
    keeps the plugin away.
    """
    pod = copy.deepcopy(plugin["spec"]["template"]["spec"])
    selector = pod.get("nodeSelector") or {}
    selector.pop(paused_label, None)
    container = _plugin_container(pod)
    container["args"] = [*(container.get("args") or []), _FLAG]
    # The end of the log becomes the termination message, which says why a node could not be cleaned.
    container["terminationMessagePolicy"] = "FallbackToLogsOnError"
    # Without these probes the kubelet does not restart a pod that waits for something to end.
    for probe in ("startupProbe", "livenessProbe"):
        container.pop(probe, None)
    readiness = container.get("readinessProbe")
    if readiness is not None:
        readiness |= {"initialDelaySeconds": 0, "periodSeconds": 1, "successThreshold": 1}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": NAME, "namespace": plugin["metadata"]["namespace"], "labels": LABELS},
        "spec": {
            "selector": {"matchLabels": LABELS},
            # All pods may be unavailable at once: each of them is until its node is clean.
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%"}},
            "template": {"metadata": {"labels": LABELS}, "spec": pod},
        },
    }


def progress(daemon_set: Object, pods: Iterable[Object]) -> Progress:
    """The progress of the cleaning, by the DaemonSet's status and its pods."""
    clean: set[str] = set()
    busy: set[str] = set()
    failed: dict[str, str] = {}
    for pod in pods:
        node = (pod.get("spec") or {}).get("nodeName") or ""
        if is_ready(pod):
            clean.add(node)
        elif words := _last_message(pod):
            failed[node] = words
        else:
            busy.add(node)
    status = daemon_set.get("status") or {}
    # Until the controller of DaemonSets has seen this generation, its numbers are those of an older one.
    seen = status.get("observedGeneration", 0) >= daemon_set["metadata"].get("generation", 1)
    there = len(clean | busy | failed.keys())
    desired = status.get("desiredNumberScheduled", 0) if seen else there + 1
    return Progress(frozenset(clean), frozenset(busy), failed, max(0, desired - there))


def _plugin_container(pod: Object) -> Object:
    """The container of the plugin: the one of that name, or the only one."""
    containers: list[Object] = pod["containers"]
    return next((one for one in containers if one.get("name") == CONTAINER), containers[0])


def _last_message(pod: Object) -> str:
    """The last line of the plugin's container when it ended the last time, empty if it has not ended."""
    # A container that was restarted is running again; its end is in lastState then.
    for status in (pod.get("status") or {}).get("containerStatuses") or []:
        for state in (status.get("state") or {}, status.get("lastState") or {}):
            ended = state.get("terminated")
            if ended:
                lines = str(ended.get("message") or "").strip().splitlines()
                code = ended.get("exitCode")
                return lines[-1] if lines else f"its container ended with status {code}"
    return ""
