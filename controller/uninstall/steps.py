"""Takes the driver away from the nodes in an order in which no pod is caught half way.

    no claim has a device → no controller → no slices → still no claim → no plugin → every node is clean

Nothing is deleted while a claim has a device. Where something turns out to be in the way later, all that
rests is woken again, so that the driver serves as before. A run that was interrupted is done again from the
start; what is done already costs nothing. A DaemonSet made from the plugin's cleans the nodes.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import TypeVar

from controller.uninstall.cluster import RESTING, Cluster, Object, holders, named
from driver.errors import DriverError
from driver.process.log import get_logger

T = TypeVar("T")

_log = get_logger("uninstall")

NAME = "gpu-dra-retire"
LABELS = {"app.kubernetes.io/name": NAME}
"""None of the plugin's own, else its DaemonSet would take the pods for its own."""

_FLAG = "--retire"
CONTAINER = "kubeletplugin"


class Refused(DriverError):
    """The driver cannot be taken away now."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Waiting times: between checks, for allocations on their way, for the end of pods, for nodes."""

    look_seconds: float = 0.5
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
        """Take the driver away; the names of the nodes that could not be cleaned since they are down.

        Raises Refused, with the names of the pods or nodes that are in the way.
        """
        self._refuse_holders()
        try:
            self._withdraw()
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
                "end these pods, then uninstall again: without the driver they could never be ended cleanly",
            )

    def _withdraw(self) -> None:
        """End the controllers, which would publish again, then delete all slices."""
        self._put_to_rest(self._installed.controller)

        publishing: set[str] = set()

        def none_left() -> bool:
            left = self._cluster.slices()
            for item in left:
                self._cluster.delete_slice(item)
            publishing.clear()
            # Of a node that is down the controller may run on: its slices go with its Node.
            publishing.update(self._up({str(item["spec"].get("nodeName") or "") for item in left}))
            return not publishing

        if not self._until(none_left, self._patience.pods_seconds):
            raise Refused(
                f"ResourceSlices come back for the nodes {named(sorted(publishing))}",
                "end the controllers that run there outside of the DaemonSet",
            )

    def _clean_nodes(self) -> tuple[str, ...]:
        """End the plugins and have every node cleaned that is up; the names of the others."""
        plugin = self._cluster.daemon_set(self._installed.plugin)
        if plugin is None:
            _log.warning("no plugin is installed, so no node is cleaned", daemon_set=self._installed.plugin)
            return ()
        self._put_to_rest(self._installed.plugin)
        self._end_cleaning()
        self._cluster.create_daemon_set(retiring(plugin, RESTING))
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
                "do what is said of each, then uninstall again",
            )
        if not ended_in_time:
            raise Refused(
                f"{len(now.busy) + now.missing} nodes were not cleaned within "
                f"{self._patience.nodes_seconds:.0f} s, among them {named(sorted(now.busy))}",
                f"see why the pods of the DaemonSet {NAME} do not become ready, or give --nodes-seconds",
            )
        return tuple(sorted(now.busy | now.failed.keys()))

    def _put_to_rest(self, name: str) -> None:
        """Have a DaemonSet run nowhere and wait for the end of its pods on nodes that are up."""
        daemon_set = self._cluster.daemon_set(name)
        if daemon_set is None:
            return
        self._cluster.rest(name)
        self._wait_for_end(name, daemon_set["spec"]["selector"]["matchLabels"])

    def _wait_for_end(self, name: str, labels: dict[str, str]) -> None:
        def gone() -> bool:
            return not self._up(self._nodes_of(labels))

        if not self._until(gone, self._patience.pods_seconds):
            raise Refused(
                f"the pods of {name} do not end on {named(sorted(self._up(self._nodes_of(labels))))}",
                "see what keeps them, then uninstall again",
            )

    def _nodes_of(self, labels: dict[str, str]) -> frozenset[str]:
        return frozenset((pod["spec"].get("nodeName") or "") for pod in self._cluster.pods(labels))

    def _progress(self) -> Progress:
        daemon_set: Object = self._cluster.daemon_set(NAME) or {"metadata": {}}
        return progress(daemon_set, self._cluster.pods(LABELS))

    def _up(self, nodes: Collection[str]) -> frozenset[str]:
        """Those of the nodes that are Ready, and so can be waited for."""
        return frozenset(nodes) & self._cluster.ready_nodes() if nodes else frozenset()

    def _end_cleaning(self) -> None:
        self._cluster.delete_daemon_set(NAME)
        self._wait_for_end(NAME, LABELS)

    def _undo(self) -> None:
        """Have the driver serve as before."""
        for undo in (
            self._end_cleaning,
            lambda: self._cluster.wake(self._installed.plugin),
            lambda: self._cluster.wake(self._installed.controller),
        ):
            try:
                undo()
            except DriverError as error:
                _log.error("the driver does not serve as before: uninstall again", error=error.logged)

    def _until(self, done: Callable[[], bool], seconds: float) -> bool:
        """Look until it is done; False when it is not within that time."""
        deadline = time.monotonic() + seconds
        while not done():
            if time.monotonic() >= deadline:
                return False
            self._sleep(self._patience.look_seconds)
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


def retiring(plugin: Object, resting: str) -> Object:
    """A DaemonSet whose pods clean the nodes of the plugin: those of its DaemonSet, with the flag to retire.

    They run where the plugin does, with its rights and mounts. Probes but that of readiness are left out: a
    pod that waits for something to end must not be ended. ``resting`` is the node label that keeps the
    plugin away.
    """
    pod = copy.deepcopy(plugin["spec"]["template"]["spec"])
    selector = pod.get("nodeSelector") or {}
    selector.pop(resting, None)
    container = _plugin_container(pod)
    container["args"] = [*(container.get("args") or []), _FLAG]
    container["terminationMessagePolicy"] = "FallbackToLogsOnError"
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
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%"}},
            "template": {"metadata": {"labels": LABELS}, "spec": pod},
        },
    }


def progress(daemon_set: Object, pods: Iterable[Object]) -> Progress:
    """How far the cleaning is, by the DaemonSet's status and its pods."""
    clean: set[str] = set()
    busy: set[str] = set()
    failed: dict[str, str] = {}
    for pod in pods:
        node = (pod.get("spec") or {}).get("nodeName") or ""
        if _is_ready(pod):
            clean.add(node)
        elif words := _last_words(pod):
            failed[node] = words
        else:
            busy.add(node)
    status = daemon_set.get("status") or {}
    seen = status.get("observedGeneration", 0) >= daemon_set["metadata"].get("generation", 1)
    there = len(clean | busy | failed.keys())
    desired = status.get("desiredNumberScheduled", 0) if seen else there + 1
    return Progress(frozenset(clean), frozenset(busy), failed, max(0, desired - there))


def _plugin_container(pod: Object) -> Object:
    """The container of the plugin: the one of that name, or the only one."""
    containers: list[Object] = pod["containers"]
    return next((one for one in containers if one.get("name") == CONTAINER), containers[0])


def _is_ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)


def _last_words(pod: Object) -> str:
    """What the plugin's container said when it ended the last time, empty where it did not: its last line."""
    for status in (pod.get("status") or {}).get("containerStatuses") or []:
        for state in (status.get("state") or {}, status.get("lastState") or {}):
            ended = state.get("terminated")
            if ended:
                lines = str(ended.get("message") or "").strip().splitlines()
                code = ended.get("exitCode")
                return lines[-1] if lines else f"its container ended with status {code}"
    return ""
