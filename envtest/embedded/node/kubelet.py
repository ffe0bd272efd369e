"""Runs the pods of one node as a kubelet does, over the real sockets of DRA plugins.

What it does not do: count memory and CPU, pull images, run commands, probe, restart. A container runs
from its start to the end of its pod, and prints what is played of its command (see container_runtime).
"""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from driver.errors import DriverError, NodeIncomplete
from driver.process.log import get_logger
from driver.process.service import Service
from envtest.embedded.api import unforeseen
from envtest.embedded.api.statuses import Refused
from envtest.embedded.control.change_loop import ChangeLoop
from envtest.embedded.control.objects import PODS, SLICES, ApiDown, Objects, is_deleted, is_terminal, uid_of
from envtest.embedded.control.turns import AGAIN_SECONDS, Turns, back_off_seconds
from envtest.embedded.node import pod_status
from envtest.embedded.node.kubelet_calls import KubeletError
from envtest.embedded.node.kubelet_claims import ClaimCache, container_device_ids
from envtest.embedded.node.kubelet_plugins import PluginRegistry
from envtest.embedded.node.played_commands import command_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from envtest.client.layout import NodeLayout
    from envtest.embedded.api.server import EmbeddedApiServer
    from envtest.embedded.node.container_runtime import ContainerRuntime

Object = dict[str, Any]

COMPONENT = "kubelet"
WORKERS = 16
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class KubeletTimes:
    """The kubelet's intervals in seconds, by default those of the real one.

    ``look`` is how often it looks for sockets; ``prepare_again`` is the range in which a pod whose claims
    could not be prepared is tried again; ``unprepare_again`` and ``create_again`` are those of a failed
    unprepare and of a container that cannot be created; ``wipe`` is how long the slices of a driver stay
    that is not connected.
    """

    look: float = 1.0
    prepare_again: tuple[float, float] = (60.0, 90.0)
    unprepare_again: float = 10.0
    create_again: float = 10.0
    wipe: float = 30.0


@dataclass(slots=True)
class PodWork:
    """What is done for one pod, one thing at a time; the next try is not before a time.monotonic.

    ``faults`` counts the tries in a row that ended with what nobody had thought of.
    """

    busy: bool = False
    ended: bool = False
    not_before: float = 0.0
    faults: int = 0


class LookFailed(DriverError):
    """The sockets of plugins could not be looked at; a retry may help."""


class EmbeddedKubelet:
    """The kubelet of one node. ``plugins`` are its registered plugins, ``claims`` what they prepared."""

    def __init__(
        self,
        server: EmbeddedApiServer,
        node: NodeLayout,
        runtime: ContainerRuntime,
        times: KubeletTimes | None = None,
    ) -> None:
        """Begin nothing yet; what an earlier kubelet of the node had prepared is known again."""
        self._objects = Objects(server)
        self._node_name = node.name
        self._runtime = runtime
        self._times = times or KubeletTimes()
        self._service = Service()
        self._lock = threading.Lock()
        self._work: dict[str, PodWork] = {}
        watched = (PODS,)
        self._name = f"kubelet of {node.name}"
        self._turns = Turns(self._name)
        self._loop = ChangeLoop(self._name, server, watched, self._sync)
        self.plugins = PluginRegistry(node.registry_dir, self._service, self._loop.ask)
        self.claims = ClaimCache(self._objects, self.plugins, node.kubelet_dir / "dra_manager_state")
        self._workers: ThreadPoolExecutor | None = None
        self._wiped = False

    def start(self) -> None:
        """Run in threads of its own until ``stop``; the node's slices are wiped first, as at every start."""
        self._service.on_stop("plugins", self.plugins.close)
        self._workers = self._service.pool(f"pods of {self._node_name}", WORKERS)
        self._loop.start(self._service)
        self._service.repeat(f"sockets of {self._node_name}", self._times.look, self._look)

    def stop(self) -> None:
        """End all threads and connections; containers go on, and what is not unprepared yet stays so."""
        self._service.stop()
        if self._workers is not None:
            self._workers.shutdown(wait=True, cancel_futures=True)

    def _sync(self) -> float | None:
        """Start and end what has to be; in how many seconds something is due."""
        if not self._wiped:
            self._objects.delete_collection(SLICES, f"spec.nodeName={self._node_name}")
            self._wiped = True
        here = {
            uid_of(pod): pod
            for pod in self._objects.list(PODS)
            if (pod.get("spec") or {}).get("nodeName") == self._node_name
        }
        with self._lock:
            worked_on = set(self._work)
        gone = (self.claims.pods | self._runtime.pods | worked_on) - here.keys()
        waits = [self._wipe_unused(), self.plugins.health.seconds_to_expiry()]
        waits += [self._give(uid, partial(self._end, uid, None)) for uid in gone]
        waits.append(self._turns.give(here.values(), self._sync_pod))
        return min((wait for wait in waits if wait is not None), default=None)

    def _look(self) -> None:
        """Look for sockets; raises LookFailed, after which the service looks again with a back-off."""
        try:
            self.plugins.look()
        except DriverError:
            raise
        except Exception as error:
            unforeseen.note(f"{self._name}: looking for plugins", error)
            raise LookFailed(f"the sockets of plugins cannot be looked at: {error}", "look again") from error

    def _sync_pod(self, pod: Object) -> float | None:
        uid = uid_of(pod)
        if is_deleted(pod) or is_terminal(pod):
            if is_terminal(pod) and not is_deleted(pod) and self._is_over(uid):
                return None
            return self._give(uid, lambda: self._end(uid, pod))
        running = self._runtime.find(uid)
        if running is None:
            return self._give(uid, lambda: self._start(pod))
        status = pod_status.running_status(pod, running, self.claims, self.plugins.health)
        if status != pod.get("status"):
            self._objects.replace_status(PODS, pod, status)
        return None

    def _give(self, uid: str, task: Callable[[], None]) -> float | None:
        """Have a worker do it, unless one is busy with the pod; if it is too early, in how many seconds."""
        with self._lock:
            work = self._work.setdefault(uid, PodWork())
            if work.busy:
                return None
            early = work.not_before - time.monotonic()
            if early > 0:
                return early
            work.busy = True
        assert self._workers is not None
        try:
            self._workers.submit(self._do, uid, task)
        except RuntimeError:  # the pool takes nothing any more: the kubelet ends
            return None
        return None

    def _do(self, uid: str, task: Callable[[], None]) -> None:
        try:
            task()
        except (Refused, ApiDown) as error:
            _log.info("pod has to be looked at again", uid=uid, error=str(error))
            self._later(uid, AGAIN_SECONDS)
        except Exception as error:  # noqa: BLE001 - a worker has nobody who would hear of it
            unforeseen.note(f"{self._name} at the pod {uid}", error)
            self._later(uid, back_off_seconds(self._count_fault(uid)))
        else:
            with self._lock:
                if uid in self._work:
                    self._work[uid].faults = 0
        finally:
            with self._lock:
                if uid in self._work:
                    self._work[uid].busy = False
            self._loop.ask()

    def _start(self, pod: Object) -> None:
        """Prepare the pod's claims and start its containers, or say why not and when to try again."""
        uid = uid_of(pod)
        try:
            self.claims.prepare(pod)
        except KubeletError as error:
            self._later(uid, random.uniform(*self._times.prepare_again))  # noqa: S311 - no secret
            self._wait_with(pod, "ContainerCreating")
            text = f"Failed to prepare dynamic resources: prepare dynamic resources: {error.what}"
            self._objects.tell("Pod", pod, "Warning", "FailedPrepareDynamicResources", text, COMPONENT)
            return
        devices = {
            container["name"]: container_device_ids(self.claims, pod, container)
            for container in pod["spec"]["containers"]
        }
        commands = {one["name"]: command_of(pod, one) for one in pod["spec"]["containers"]}
        try:
            self._runtime.start(uid, devices, commands)
        except NodeIncomplete as error:
            self._later(uid, self._times.create_again)
            text = f"failed to generate container spec: CDI device injection failed: {error.what}"
            self._wait_with(pod, "CreateContainerError", text)
            self._objects.tell("Pod", pod, "Warning", "Failed", f"Error: {text}", COMPONENT)
            return
        for container in devices:
            self._objects.tell("Pod", pod, "Normal", "Started", f"Started container {container}", COMPONENT)

    def _end(self, uid: str, pod: Object | None) -> None:
        """End the containers, unprepare what nobody else uses, and let a deleted pod's object go."""
        self._runtime.end(uid)
        try:
            self.claims.unprepare(uid)
        except DriverError as error:
            self._later(uid, self._times.unprepare_again)
            _log.warning("pod's claims not unprepared", uid=uid, error=error.what)
            if pod is not None:
                text = f"error killing pod: unprepare dynamic resources: {error.what}"
                self._objects.tell("Pod", pod, "Warning", "FailedKillPod", text, COMPONENT)
            return
        if pod is None:
            with self._lock:
                self._work.pop(uid, None)
            return
        with self._lock:
            self._work[uid].ended = True
        if is_deleted(pod):
            self._objects.delete(PODS, pod, grace_seconds=0)

    def _is_over(self, uid: str) -> bool:
        with self._lock:
            return uid in self._work and self._work[uid].ended

    def _wait_with(self, pod: Object, reason: str, message: str = "") -> None:
        status = pod_status.waiting_status(pod, reason, message)
        if status != pod.get("status"):
            self._objects.replace_status(PODS, pod, status)

    def _count_fault(self, uid: str) -> int:
        with self._lock:
            work = self._work.setdefault(uid, PodWork())
            work.faults += 1
            return work.faults

    def _later(self, uid: str, seconds: float) -> None:
        with self._lock:
            self._work.setdefault(uid, PodWork()).not_before = time.monotonic() + seconds

    def _wipe_unused(self) -> float | None:
        """Delete the slices of drivers whose plugins have been away for too long."""
        over, rest = self.plugins.unused(self._times.wipe)
        for driver in over:
            _log.info("wiping slices of a driver that is gone", driver=driver, node=self._node_name)
            self._objects.delete_collection(SLICES, f"spec.nodeName={self._node_name},spec.driver={driver}")
            self.plugins.wiped(driver)
        return rest
