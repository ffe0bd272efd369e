"""Stands for the container runtime of a node: which containers run, and what CDI put into each of them.

No process is started. Containers run from their start on until their pod ends, whatever their command
is; they end at once when they are told to. A restart of the kubelet does not touch them.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from envtest.embedded.control.objects import now
from envtest.embedded.node.cdi import ContainerView, resolve

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class RunningPod:
    """The containers of a pod by name, and when they started, as the API writes it."""

    containers: Mapping[str, ContainerView]
    started_at: str


class ContainerRuntime:
    """The pods that run on one node, by UID. Thread-safe."""

    def __init__(self, cdi_dir: Path) -> None:
        self._cdi_dir = cdi_dir
        self._lock = threading.Lock()
        self._pods: dict[str, RunningPod] = {}

    @property
    def pods(self) -> set[str]:
        """The UIDs of the pods that run."""
        with self._lock:
            return set(self._pods)

    def find(self, pod_uid: str) -> RunningPod | None:
        """A running pod."""
        with self._lock:
            return self._pods.get(pod_uid)

    def start(self, pod_uid: str, containers: Mapping[str, Sequence[str]]) -> RunningPod:
        """Start a pod whose containers get these CDI devices.

        Raises NodeIncomplete where containerd could not create a container, and then starts none.
        """
        views = {name: resolve(self._cdi_dir, device_ids) for name, device_ids in containers.items()}
        pod = RunningPod(views, now())
        with self._lock:
            self._pods[pod_uid] = pod
        return pod

    def end(self, pod_uid: str) -> None:
        """End a pod's containers; nothing happens when it does not run."""
        with self._lock:
            self._pods.pop(pod_uid, None)
