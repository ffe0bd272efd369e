"""Finds the container that a process is in, by its control group and the kubelet's links to the logs.

NVML lists processes by their ids on the host. The plugin's ``/proc`` is the host's if its pod has
``hostPID``. Then ``/proc/PID/cgroup`` has the pod's UID and the container's id; a process cannot leave the
control group of its container. The kubelet keeps a link ``POD_NAMESPACE_CONTAINER-ID.log`` for each container
in ``/var/log/containers``, whose name has the rest. Only names are read, links are not followed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kubeletplugin.kubelet.wire.containers import ContainerName

LINKS = "var/log/containers"
"""Where the kubelet keeps the links, below the host's root (legacyLogSymlink of pkg/kubelet/kuberuntime)."""

_UID = r"[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}"
_GROUP = re.compile(
    rf"pod({_UID})(?:\.slice)?/(?:[a-z-]+-)?([0-9a-f]{{64}})(?:\.scope)?(?:/|$)", re.MULTILINE
)
"""The group of a container with the cgroup driver systemd (``kubepods-podUID.slice/cri-containerd-ID.scope``)
or cgroupfs (``kubepods/podUID/ID``). The first match counts: groups that a container makes are below its own.
"""
# Names of pods, namespaces and containers have no underscores, so these separate the parts.
_LINK = re.compile(r"([^_]+)_([^_]+)_([^_]+)-([0-9a-f]{64})\.log")


@dataclass(frozen=True, slots=True)
class ContainerGroup:
    """The container of a control group: the UID of its pod, and its id in the runtime."""

    pod_uid: str
    container_id: str


def container_of(cgroup: str) -> ContainerGroup | None:
    """The container of a process, from the text of its /proc/PID/cgroup; None if it is in none.

    Works with cgroup v1 and v2, with both cgroup drivers of the kubelet, below any parent group, and in a
    cgroup namespace.
    """
    found = _GROUP.search(cgroup)
    return None if found is None else ContainerGroup(found[1].replace("_", "-"), found[2])


class ProcessContainers:
    """The containers of processes; ``proc`` and ``host_root`` are the host's."""

    def __init__(self, proc: Path, host_root: Path) -> None:
        self._proc = proc
        self._links = host_root / LINKS
        self._names: dict[str, ContainerName] = {}

    def of(self, pids: Iterable[int]) -> dict[int, ContainerName | None]:
        """The container of each process, None for a process outside of containers.

        Processes that have ended, and those whose container has no name here, are left out.
        """
        groups = {pid: cgroup for pid in pids if (cgroup := self._group(pid)) is not None}
        wanted = {one.container_id for one in map(container_of, groups.values()) if one is not None}
        # Ids of containers are never used again, so names stay valid until a new container appears.
        if not wanted <= self._names.keys():
            self._names = self._listed()
        found: dict[int, ContainerName | None] = {}
        for pid, cgroup in groups.items():
            group = container_of(cgroup)
            if group is None:
                found[pid] = None
            elif group.container_id in self._names:
                found[pid] = self._names[group.container_id]
        return found

    def _group(self, pid: int) -> str | None:
        try:
            return (self._proc / str(pid) / "cgroup").read_text(errors="replace")
        except OSError:
            return None

    def _listed(self) -> dict[str, ContainerName]:
        """The names of all containers of the node, by their ids."""
        try:
            # A link's name begins with the pod's, so a container cannot be looked up by its id.
            names = os.listdir(self._links)  # noqa: PTH208 - only names are needed
        except OSError:
            return {}
        links = (match for name in names if (match := _LINK.fullmatch(name)))
        return {link[4]: ContainerName(link[2], link[1], link[3]) for link in links}
