"""Keeps clusters on one machine apart: each holds a slot with its own ports, subnets and cgroups.

A slot is a locked file. The lock lives as long as the processes that hold it, so a slot of a
cluster that died is free at once, and whatever is left under its name is known to be stale.
"""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path

from envtest.client.errors import ClusterError
from envtest.client.layout import MAX_NODES

_IS_ROOT = os.geteuid() == 0
SLOT_FOLDER = (
    Path("/run/gpu-dra-envtest")
    if _IS_ROOT
    else Path(tempfile.gettempdir(), f"gpu-dra-envtest-{os.geteuid()}")
)
"""Each user has one. Whoever is not root starts API servers alone, and finds the ports of others in use."""
SLOTS = 64
# Below Linux' range of ephemeral ports (32768 and up): nobody gets the port of a server that is stopped.
FIRST_PORT = 21000
PORT_NAMES = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
PORTS_PER_SLOT = 16
# 198.18.0.0/15 is reserved for benchmarks (RFC 2544), so it does not hide a real network.
POD_NETWORK = IPv4Network("198.18.0.0/16")


@dataclass(frozen=True, slots=True)
class Slot:
    """The numbers that one cluster may use; ``index`` is from 0 to ``SLOTS`` - 1."""

    index: int

    def port(self, name: str) -> int:
        """The TCP port of a control plane component, by a name of ``PORT_NAMES``."""
        return self._first_port + PORT_NAMES.index(name)

    def kubelet_port(self, node: int) -> int:
        """The TCP port of a node's kubelet."""
        return self._first_port + len(PORT_NAMES) + node

    @property
    def ports(self) -> range:
        """All TCP ports of this slot."""
        return range(self._first_port, self._first_port + len(PORT_NAMES) + MAX_NODES)

    def pod_subnet(self, node: int) -> IPv4Network:
        """The /24 that a node's pods get their addresses from."""
        third_octet = self.index * MAX_NODES + node
        return IPv4Network((int(POD_NETWORK.network_address) + third_octet * 256, 24))

    def cgroup(self, node: int) -> str:
        """The cgroup that holds all of a node's pods, without a leading slash."""
        return f"{self.cgroup_prefix}{node}"

    @property
    def cgroup_prefix(self) -> str:
        """How the cgroups of this slot's nodes, and of no other's, begin."""
        return f"gpu-dra-envtest-{self.index}-node-"

    @property
    def _first_port(self) -> int:
        return FIRST_PORT + self.index * PORTS_PER_SLOT


def port_is_free(port: int) -> bool:
    """Whether a TCP port can be listened on, at any address."""
    with socket.socket() as listener:
        # Connections in TIME_WAIT do not count: the servers of a cluster set this option, too.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("", port))
        except OSError:
            return False
    return True


def take_slot(folder: Path = SLOT_FOLDER, is_free: Callable[[int], bool] = port_is_free) -> tuple[Slot, int]:
    """Lock the first slot that nobody holds and all of whose ports are free.

    Returns the slot and the file descriptor that holds its lock: the slot is free again when all
    copies of the descriptor are closed.

    Raises:
        ClusterError: all slots are taken.
    """
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    for index in range(SLOTS):
        # O_CLOEXEC: a child gets the descriptor only where it is passed on explicitly.
        descriptor = os.open(folder / f"slot-{index}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # The lock belongs to the open file, so all copies of the descriptor hold it, in children too; the
            # kernel releases it with the last one.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            continue
        slot = Slot(index)
        if all(is_free(port) for port in slot.ports):
            return slot, descriptor
        os.close(descriptor)
    raise ClusterError(
        f"all {SLOTS} slots for clusters are taken (locks in {folder}, TCP ports from "
        f"{FIRST_PORT}): stop a cluster"
    )
