"""Runs the pods of one node as a kubelet does, over the real sockets of DRA plugins.

It does not count memory and CPU, pull images, or probe. Commands are played (see container_runtime).
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from envtest.cdi import InjectionFailed
from envtest.client.layout import NodeLayout
from envtest.embedded.api import unforeseen
from envtest.embedded.api.statuses import Refused
from envtest.embedded.control import change_loop, kinds
from envtest.embedded.control.objects import ApiDown, Objects, is_deleted, is_terminal, uid_of
from envtest.embedded.control.threads import Threads
from envtest.embedded.node.back_offs import ContainerBackOffs
from envtest.embedded.node.container_runtime import ContainerRuntime
from envtest.embedded.node.containers import PodSandbox, RunningPod, StartFailed
from envtest.embedded.node.kubelet_calls import KubeletError
from envtest.embedded.node.kubelet_claims import ClaimCache, container_device_ids
from envtest.embedded.node.kubelet_plugins import PluginRegistry
from envtest.embedded.node.played_commands import command_of
from envtest.embedded.node.pod_resources import PodResources
from envtest.embedded.node.pod_status import Waiting, due, is_sidecar, pod_status
from envtest.embedded.server import EmbeddedApiServer

Object = dict[str, Any]

_COMPONENT = "kubelet"
# Pods are worked on at the same time, so the plugin gets concurrent calls, as from the real kubelet.
_WORKERS = 16
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class KubeletTimes:
    """The kubelet's intervals in seconds, by default those of the real one.

    ``scan`` is how often it looks for sockets. A pod whose claims could not be prepared is tried again after
    a random time in the range ``prepare_retry``, a failed unprepare after ``unprepare_retry``, a container
    that cannot be created after ``create_retry``. ``restart_back_off`` is the wait before the second restart
    of a container, and the longest before later ones. ``wipe`` is how long the slices of a driver stay that
    is not connected.
    """

    scan: float = 1.0
    prepare_retry: tuple[float, float] = (60.0, 90.0)
    unprepare_retry: float = 10.0
    create_retry: float = 10.0
    restart_back_off: tuple[float, float] = (10.0, 300.0)
    wipe: float = 30.0


@dataclass(slots=True)
class PodWork:
    """The work for one pod, one task at a time; none starts before ``not_before`` (time.monotonic).

    ``faults`` counts the tries in a row that ended with an unexpected error.
    """

    busy: bool = False
    ended: bool = False
    not_before: float = 0.0
    faults: int = 0


class EmbeddedKubelet:
    """The kubelet of one node. ``plugins`` are its registered plugins, ``claims`` the prepared claims."""

    def __init__(
        self,
        server: EmbeddedApiServer,
        node: NodeLayout,
        runtime: ContainerRuntime,
        times: KubeletTimes | None = None,
    ) -> None:
        """Read the checkpoint of an earlier kubelet of the node; nothing runs before ``start``."""
        self._objects = Objects(server)
        self._node_name = node.name
        self._runtime = runtime
        self._times = times or KubeletTimes()
        self._threads = Threads()
        self._lock = threading.Lock()
        self._work: dict[str, PodWork] = {}
        self._name = f"kubelet of {node.name}"
        self._back_off = change_loop.ObjectBackOff(self._name)
        self._loop = change_loop.ChangeLoop(self._name, server, (kinds.PODS,), self._sync)
        self.plugins = PluginRegistry(node.registry_dir, self._threads, self._loop.ask)
        self.claims = ClaimCache(self._objects, self.plugins, node.kubelet_dir / "dra_manager_state")
        self._pod_resources = PodResources(node.kubelet_dir, self._pods_here, self.claims)
        self._container_back_offs = ContainerBackOffs(*self._times.restart_back_off)
        self._waiting: dict[str, dict[str, Waiting]] = {}
        self._workers: ThreadPoolExecutor | None = None
        self._wiped = False

    def start(self) -> None:
        """Run in threads of its own until ``stop``; the node's slices are wiped first, as at every start."""
        self._threads.on_stop(self.plugins.close)
        self._workers = self._threads.pool(f"pods of {self._node_name}", _WORKERS)
        # A container that ends changes no object, so the loop has to be asked.
        self._runtime.on_end = self._loop.ask
        self._pod_resources.start()
        self._threads.on_stop(self._pod_resources.stop)
        self._loop.start(self._threads)
        self._threads.repeat(f"{self._name}: looking for plugins", self._times.scan, self.plugins.scan)

    def stop(self) -> None:
        """End all threads and connections. Containers run on, and claims stay prepared."""
        self._threads.stop()
        if self._workers is not None:
            self._workers.shutdown(wait=True, cancel_futures=True)

    def _sync(self) -> float | None:
        """Start and end pods as necessary; returns in how many seconds something is due."""
        # The kubelet deletes the slices of its node at every start: a plugin that was removed while it was
        # down would leave them for ever. Plugins publish theirs again.
        if not self._wiped:
            self._objects.delete_collection(kinds.SLICES, f"spec.nodeName={self._node_name}")
            self._wiped = True
        here = {uid_of(pod): pod for pod in self._pods_here()}
        with self._lock:
            worked_on = set(self._work)
        # Force-deleted pods: their objects are gone, and they still have containers or claims here.
        gone = (self.claims.pods | self._runtime.pods | worked_on) - here.keys()
        waits = [self._wipe_unused(), self.plugins.health.seconds_to_expiry()]
        waits += [self._submit(uid, partial(self._end, uid, None)) for uid in gone]
        waits.append(self._back_off.for_each(here.values(), self._sync_pod))
        return change_loop.earliest(*waits)

    def _pods_here(self) -> list[Object]:
        return [
            pod
            for pod in self._objects.list(kinds.PODS)
            if (pod.get("spec") or {}).get("nodeName") == self._node_name
        ]

    def _sync_pod(self, pod: Object) -> float | None:
        uid = uid_of(pod)
        if is_deleted(pod) or is_terminal(pod):
            # Unprepared already; the object stays until somebody deletes it.
            if is_terminal(pod) and not is_deleted(pod) and self._has_ended(uid):
                return None
            return self._submit(uid, lambda: self._end(uid, pod))
        running = self._runtime.find(uid)
        if running is None:
            return self._submit(uid, lambda: self._start(pod))
        rest = self._seconds_to_start(pod, running)
        if rest == 0.0:
            rest = self._submit(uid, lambda: self._start_containers(pod))
        self._write_status(pod, running)
        self._post_unplayed(pod, running)
        return rest

    def _post_unplayed(self, pod: Object, running: RunningPod) -> None:
        """Say of containers whose commands cannot be played that they run without doing anything."""
        for name, runs in running.runs.items():
            if runs.last.unplayed:
                runs.last.unplayed = False
                text = f"The embedded cluster does not run the command of the container {name}: see its log"
                self._objects.post_event(pod, "Normal", "NotPlayed", text, _COMPONENT)

    def _seconds_to_start(self, pod: Object, running: RunningPod) -> float | None:
        """In how many seconds a container of a pod has to be started; None where none has to be."""
        uid, rests = uid_of(pod), []
        for container in due(pod, running.last):
            name = container["name"]
            run = running.last(name)
            ended = None if run is None or run.end is None else run.end.moment
            rest = 0.0 if ended is None else self._container_back_offs.rest(uid, name, ended)
            if rest:
                self._post_back_off(pod, name)
            rests.append(rest)
        return min(rests, default=None)

    def _post_back_off(self, pod: Object, name: str) -> None:
        metadata, seconds = pod["metadata"], self._container_back_offs.seconds(uid_of(pod), name)
        shown = f"{metadata['name']}_{metadata['namespace']}({uid_of(pod)})"
        text = f"back-off {seconds:g}s restarting failed container={name} pod={shown}"
        if self._set_waiting(uid_of(pod), name, Waiting("CrashLoopBackOff", text)):
            message = f"Back-off restarting failed container {name} in pod {shown}"
            self._objects.post_event(pod, "Warning", "BackOff", message, _COMPONENT)

    def _submit(self, uid: str, task: Callable[[], None]) -> float | None:
        """Have a worker do the task, unless one is busy with the pod; returns seconds if it is too early."""
        with self._lock:
            work = self._work.setdefault(uid, PodWork())
            if work.busy:
                return None
            early = work.not_before - time.monotonic()
            if early > 0:
                return early
            work.busy = True
        assert self._workers is not None
        # A pool that is shut down raises RuntimeError: the kubelet is stopping.
        with suppress(RuntimeError):
            self._workers.submit(self._run_task, uid, task)
        return None

    def _run_task(self, uid: str, task: Callable[[], None]) -> None:
        try:
            task()
        except (Refused, ApiDown) as error:
            _log.info("the pod %s has to be looked at again: %s", uid, error)
            self._retry_after(uid, change_loop.AGAIN_SECONDS)
        except Exception as error:  # noqa: BLE001 - nobody catches what a worker raises
            unforeseen.note(f"{self._name} at the pod {uid}", error)
            self._retry_after(uid, change_loop.back_off_seconds(self._count_fault(uid)))
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
        """Prepare the pod's claims and start its containers, or post why not, and try again later."""
        uid = uid_of(pod)
        try:
            self.claims.prepare(pod)
        except KubeletError as error:
            # The kubelet posts the event and returns no sync error, so the next attempt is the next resync.
            self._retry_after(uid, random.uniform(*self._times.prepare_retry))  # noqa: S311 - no secret
            self._write_status(pod, None)
            text = f"Failed to prepare dynamic resources: prepare dynamic resources: {error}"
            self._objects.post_event(pod, "Warning", "FailedPrepareDynamicResources", text, _COMPONENT)
            return
        metadata = pod["metadata"]
        self._runtime.add(PodSandbox(uid, metadata["namespace"], metadata["name"]))
        self._start_containers(pod)

    def _start_containers(self, pod: Object) -> None:
        """Start the containers of a pod that have to run and are not in a back-off, one after the other."""
        uid = uid_of(pod)
        running = self._runtime.find(uid)
        for container in () if running is None else due(pod, running.last):
            name = container["name"]
            run = None if running is None else running.last(name)
            if run is not None and run.end is not None:
                if self._container_back_offs.rest(uid, name, run.end.moment):
                    continue
                self._container_back_offs.restarted(uid, name, run.end.moment)
            self._start_container(pod, container)

    def _start_container(self, pod: Object, container: Object) -> None:
        """Start one container, or post why not (Go: startContainer in kuberuntime_container.go)."""
        uid, name = uid_of(pod), container["name"]
        devices = container_device_ids(self.claims, pod, container)
        ends = container in (pod["spec"].get("initContainers") or ()) and not is_sidecar(container)
        image = container.get("image", "")
        try:
            self._runtime.start(uid, name, devices, command_of(pod, container), image=image, ends=ends)
        except InjectionFailed as error:
            self._retry_after(uid, self._times.create_retry)
            text = f"failed to generate container spec: CDI device injection failed: {error}"
            self._set_waiting(uid, name, Waiting("CreateContainerError", text))
            self._objects.post_event(pod, "Warning", "Failed", f"Error: {text}", _COMPONENT)
            return
        except StartFailed as error:
            self._set_waiting(uid, name, Waiting("RunContainerError", str(error)))
            self._objects.post_event(pod, "Warning", "Failed", f"Error: {error}", _COMPONENT)
            return
        self._set_waiting(uid, name, None)
        self._objects.post_event(pod, "Normal", "Started", "Container started", _COMPONENT)

    def _end(self, uid: str, pod: Object | None) -> None:
        """End the containers, unprepare unused claims, and remove the object of a deleted pod."""
        # Claims are unprepared only once no container uses their devices.
        self._runtime.end(uid)
        self._container_back_offs.forget(uid)
        with self._lock:
            self._waiting.pop(uid, None)
        try:
            self.claims.unprepare(uid)
        except KubeletError as error:
            self._retry_after(uid, self._times.unprepare_retry)
            _log.warning("the claims of the pod %s are not unprepared: %s", uid, error)
            if pod is not None:
                text = f"error killing pod: unprepare dynamic resources: {error}"
                self._objects.post_event(pod, "Warning", "FailedKillPod", text, _COMPONENT)
            return
        if pod is None:
            with self._lock:
                self._work.pop(uid, None)
            return
        with self._lock:
            self._work[uid].ended = True
        if is_deleted(pod):
            # The object of a deleted pod stays until its kubelet removes it so: nothing of the pod is left.
            self._objects.delete(kinds.PODS, pod, grace_seconds=0)

    def _has_ended(self, uid: str) -> bool:
        with self._lock:
            return uid in self._work and self._work[uid].ended

    def _write_status(self, pod: Object, running: RunningPod | None) -> None:
        with self._lock:
            waiting = dict(self._waiting.get(uid_of(pod), {}))
        status = pod_status(pod, running, waiting, self.claims, self.plugins.health)
        if status != pod.get("status"):
            self._objects.replace_status(kinds.PODS, pod, status)

    def _set_waiting(self, uid: str, name: str, why: Waiting | None) -> bool:
        """Note why a container waits, None once it runs; returns whether the reason is new."""
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

    def _retry_after(self, uid: str, seconds: float) -> None:
        with self._lock:
            self._work.setdefault(uid, PodWork()).not_before = time.monotonic() + seconds

    def _wipe_unused(self) -> float | None:
        """Delete the slices of drivers without a connected plugin for ``wipe`` seconds."""
        # A plugin that comes back in time keeps its slices.
        over, rest = self.plugins.unused(self._times.wipe)
        for driver in over:
            _log.info("%s: wiping the slices of %s, which is gone", self._name, driver)
            self._objects.delete_collection(
                kinds.SLICES, f"spec.nodeName={self._node_name},spec.driver={driver}"
            )
            self.plugins.wiped(driver)
        return rest
