"""Finds the container that a process is in, by its control group and the kubelet's links to the logs.

NVML tells of processes by their ids on the host. Where the plugin's ``/proc`` is the host's (``hostPID`` of
its pod), ``/proc/PID/cgroup`` says which container a process is in, by pod UID and container id; a container
cannot leave its group. For each container the kubelet keeps a link ``POD_NAMESPACE_CONTAINER-ID.log`` in
``/var/log/containers``, from whose name follows the rest; the link itself is not followed.
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
"""A container's group with the driver systemd (``kubepods-podUID.slice/cri-containerd-ID.scope``) or cgroupfs
(``kubepods/podUID/ID``). The first that fits counts: whatever a container makes lies below its own.
"""
_LINK = re.compile(r"([^_]+)_([^_]+)_([^_]+)-([0-9a-f]{64})\.log")


@dataclass(frozen=True, slots=True)
class ContainerGroup:
    """What a control group says of a container: the UID of its pod, and its id in the runtime."""

    pod_uid: str
    container_id: str


def container_of(told: str) -> ContainerGroup | None:
    """The container of a process, from the text of its /proc/PID/cgroup; None for one outside of containers.

    Works with cgroup v1 and v2, for groups of systemd and of the kubelet's own, below whatever folder, and
    where the reader is in a cgroup namespace of its own.
    """
    found = _GROUP.search(told)
    return None if found is None else ContainerGroup(found[1].replace("_", "-"), found[2])


class ProcessContainers:
    """The containers of processes; ``proc`` and ``host_root`` are the host's."""

    def __init__(self, proc: Path, host_root: Path) -> None:
        self._proc = proc
        self._links = host_root / LINKS
        self._names: dict[str, ContainerName] = {}

    def of(self, pids: Iterable[int]) -> dict[int, ContainerName | None]:
        """The container of each process, None of one that is in none.

        One that has ended, or whose container has no name here, is left out.
        """
        groups = {pid: told for pid in pids if (told := self._group(pid)) is not None}
        wanted = {one.container_id for one in map(container_of, groups.values()) if one is not None}
        if not wanted <= self._names.keys():
            self._names = self._listed()
        found: dict[int, ContainerName | None] = {}
        for pid, told in groups.items():
            group = container_of(told)
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
            names = os.listdir(self._links)  # noqa: PTH208 - names alone are wanted
        except OSError:
            return {}
        links = (match for name in names if (match := _LINK.fullmatch(name)))
        return {link[4]: ContainerName(link[2], link[1], link[3]) for link in links}
