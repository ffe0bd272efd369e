"""Runs the pods of one node as a kubelet does, over the real sockets of DRA plugins.

What it does not do: count memory and CPU, pull images, run commands, probe. Commands are played (see
container_runtime).
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from driver.errors import DriverError, NodeIncomplete
from driver.process.log import get_logger
from driver.process.service import Service
from envtest.client.layout import NodeLayout
from envtest.embedded.api import unforeseen
from envtest.embedded.api.server import EmbeddedApiServer
from envtest.embedded.api.statuses import Refused
from envtest.embedded.control.change_loop import AGAIN_SECONDS, ChangeLoop, Turns, back_off_seconds, earliest
from envtest.embedded.control.objects import PODS, SLICES, ApiDown, Objects, is_deleted, is_terminal, uid_of
from envtest.embedded.node.back_offs import BackOffs
from envtest.embedded.node.container_runtime import ContainerRuntime
from envtest.embedded.node.containers import PodSandbox, RunningPod, StartFailed
from envtest.embedded.node.kubelet_calls import KubeletError
from envtest.embedded.node.kubelet_claims import ClaimCache, container_device_ids
from envtest.embedded.node.kubelet_plugins import PluginRegistry
from envtest.embedded.node.played_commands import command_of
from envtest.embedded.node.pod_resources import PodResources
from envtest.embedded.node.pod_status import Waiting, due, is_sidecar, pod_status

Object = dict[str, Any]

_COMPONENT = "kubelet"
_WORKERS = 16
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class KubeletTimes:
    """The kubelet's intervals in seconds, by default those of the real one.

    ``look`` is how often it looks for sockets; ``prepare_again`` is the range in which a pod whose claims
    could not be prepared is tried again; ``unprepare_again`` and ``create_again`` are those of a failed
    unprepare and of a container that cannot be created; ``restart_again`` is how long a container that ended
    is left before its second restart, and before later ones at most; ``wipe`` is how long the slices of a
    driver stay that is not connected.
    """

    look: float = 1.0
    prepare_again: tuple[float, float] = (60.0, 90.0)
    unprepare_again: float = 10.0
    create_again: float = 10.0
    restart_again: tuple[float, float] = (10.0, 300.0)
    wipe: float = 30.0


@dataclass(slots=True)
class PodWork:
    """What is done for one pod, one thing at a time; the next try is not before a time.monotonic.

    ``faults`` counts the tries in a row that ended with an unexpected error.
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
        self._pod_resources = PodResources(node.kubelet_dir, self._pods_here, self.claims)
        self._back_offs = BackOffs(*self._times.restart_again)
        self._waiting: dict[str, dict[str, Waiting]] = {}
        self._workers: ThreadPoolExecutor | None = None
        self._wiped = False

    def start(self) -> None:
        """Run in threads of its own until ``stop``; the node's slices are wiped first, as at every start."""
        self._service.on_stop("plugins", self.plugins.close)
        self._workers = self._service.pool(f"pods of {self._node_name}", _WORKERS)
        self._runtime.on_end = self._loop.ask
        self._pod_resources.start()
        self._service.on_stop("pod resources", self._pod_resources.stop)
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
        here = {uid_of(pod): pod for pod in self._pods_here()}
        with self._lock:
            worked_on = set(self._work)
        gone = (self.claims.pods | self._runtime.pods | worked_on) - here.keys()
        waits = [self._wipe_unused(), self.plugins.health.seconds_to_expiry()]
        waits += [self._give(uid, partial(self._end, uid, None)) for uid in gone]
        waits.append(self._turns.give(here.values(), self._sync_pod))
        return earliest(*waits)

    def _pods_here(self) -> list[Object]:
        return [
            pod
            for pod in self._objects.list(PODS)
            if (pod.get("spec") or {}).get("nodeName") == self._node_name
        ]

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
        rest = self._seconds_to_start(pod, running)
        if rest == 0.0:
            rest = self._give(uid, lambda: self._start_containers(pod))
        self._write_status(pod, running)
        return rest

    def _seconds_to_start(self, pod: Object, running: RunningPod) -> float | None:
        """In how many seconds a container of a pod has to be started; None where all that is to run does."""
        uid, rests = uid_of(pod), []
        for container in due(pod, running.last):
            name = container["name"]
            run = running.last(name)
            ended = None if run is None or run.end is None else run.end.moment
            rest = 0.0 if ended is None else self._back_offs.rest(uid, name, ended)
            if rest:
                self._tell_back_off(pod, name)
            rests.append(rest)
        return min(rests, default=None)

    def _tell_back_off(self, pod: Object, name: str) -> None:
        metadata, seconds = pod["metadata"], self._back_offs.seconds(uid_of(pod), name)
        shown = f"{metadata['name']}_{metadata['namespace']}({uid_of(pod)})"
        text = f"back-off {seconds:g}s restarting failed container={name} pod={shown}"
        if self._set_waiting(uid_of(pod), name, Waiting("CrashLoopBackOff", text)):
            message = f"Back-off restarting failed container {name} in pod {shown}"
            self._objects.post_event("Pod", pod, "Warning", "BackOff", message, _COMPONENT)

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
            self._write_status(pod, None)
            text = f"Failed to prepare dynamic resources: prepare dynamic resources: {error.what}"
            self._objects.post_event("Pod", pod, "Warning", "FailedPrepareDynamicResources", text, _COMPONENT)
            return
        metadata = pod["metadata"]
        self._runtime.add(PodSandbox(uid, metadata["namespace"], metadata["name"]))
        self._start_containers(pod)

    def _start_containers(self, pod: Object) -> None:
        """Start those containers of a pod that are to run and are in no back-off; one after the other."""
        uid = uid_of(pod)
        running = self._runtime.find(uid)
        for container in () if running is None else due(pod, running.last):
            name = container["name"]
            run = None if running is None else running.last(name)
            if run is not None and run.end is not None:
                if self._back_offs.rest(uid, name, run.end.moment):
                    continue
                self._back_offs.restarted(uid, name, run.end.moment)
            self._start_container(pod, container)

    def _start_container(self, pod: Object, container: Object) -> None:
        """Start one container, or say why not (Go: startContainer in kuberuntime_container.go)."""
        uid, name = uid_of(pod), container["name"]
        devices = container_device_ids(self.claims, pod, container)
        ends = container in (pod["spec"].get("initContainers") or ()) and not is_sidecar(container)
        command, image = command_of(pod, container), container.get("image", "")
        try:
            self._runtime.start(uid, name, devices, command, image=image, ends=ends)
        except NodeIncomplete as error:
            self._later(uid, self._times.create_again)
            text = f"failed to generate container spec: CDI device injection failed: {error.what}"
            self._set_waiting(uid, name, Waiting("CreateContainerError", text))
            self._objects.post_event("Pod", pod, "Warning", "Failed", f"Error: {text}", _COMPONENT)
            return
        except StartFailed as error:
            self._set_waiting(uid, name, Waiting("RunContainerError", str(error)))
            self._objects.post_event("Pod", pod, "Warning", "Failed", f"Error: {error}", _COMPONENT)
            return
        self._set_waiting(uid, name, None)
        self._objects.post_event("Pod", pod, "Normal", "Started", "Container started", _COMPONENT)

    def _end(self, uid: str, pod: Object | None) -> None:
        """End the containers, unprepare what nobody else uses, and let a deleted pod's object go."""
        self._runtime.end(uid)
        self._back_offs.forget(uid)
        with self._lock:
            self._waiting.pop(uid, None)
        try:
            self.claims.unprepare(uid)
        except DriverError as error:
            self._later(uid, self._times.unprepare_again)
            _log.warning("pod's claims not unprepared", uid=uid, error=error.what)
            if pod is not None:
                text = f"error killing pod: unprepare dynamic resources: {error.what}"
                self._objects.post_event("Pod", pod, "Warning", "FailedKillPod", text, _COMPONENT)
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

    def _write_status(self, pod: Object, running: RunningPod | None) -> None:
        with self._lock:
            waiting = dict(self._waiting.get(uid_of(pod), {}))
        status = pod_status(pod, running, waiting, self.claims, self.plugins.health)
        if status != pod.get("status"):
            self._objects.replace_status(PODS, pod, status)

    def _set_waiting(self, uid: str, name: str, why: Waiting | None) -> bool:
        """Keep why a container waits, None once it runs; whether that is another reason than before."""
        with self._lock:
            known = self._waiting.setdefault(uid, {})
            before = known.get(name)
            if why is None:
                known.pop(name, None)
            else:
                known[name] = why
        return before != why

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
