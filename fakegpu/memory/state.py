"""The memory of one fake GPU: limits of control groups, memory that clients have, and which limits apply.

This follows NVIDIA's documentation of memory accounting (MPS v3 memory partitioning, the backend misc). A
group without limits of its own is bound by those of the nearest group above it that has some. Limits do not
nest: the limits of a group do not bound the groups below it that have their own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from driver.nvml.memory_limits import NO_LIMIT_BYTES, Cgroup
from driver.nvml.mig import MigProcess


@dataclass(frozen=True, slots=True)
class Accounting:
    """How the NVIDIA driver counts where its documentation leaves that open.

    Limits are rounded up to whole ``unit_bytes``. With ``silent`` reading the limits of a group without any
    fails with NOT_SUPPORTED instead of NOT_FOUND; one public program says that the account misc does so.
    """

    unit_bytes: int = 1
    silent: bool = False

    def counted(self, limit_bytes: int, gpu_bytes: int) -> int:
        """The limit that the driver enforces if this one is set."""
        if limit_bytes == NO_LIMIT_BYTES:
            return limit_bytes
        # -(-a // b) divides and rounds up.
        return min(-(-limit_bytes // self.unit_bytes) * self.unit_bytes, gpu_bytes)


EXACT = Accounting()


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """The limits of one control group, whose folder has this ``inode``."""

    cgroup: str
    inode: int
    soft_bytes: int
    hard_bytes: int

    @property
    def group(self) -> Cgroup:
        """The group that has them."""
        return Cgroup(self.cgroup, self.inode)


@dataclass(frozen=True, slots=True)
class CudaClient:
    """One process that has a CUDA context on the GPU, in a control group.

    ``process_id`` is what NVML lists it by, None for one that it does not list. ``gpu_instance`` and
    ``compute_instance`` are those of a context on a MIG device. A client that ``dies`` ends with the process
    that made it, however that ends; the others are pretended, and end only when somebody says so.
    """

    number: int
    cgroup: str
    inode: int
    allocated_bytes: int = 0
    process_id: int | None = None
    gpu_instance: int | None = None
    compute_instance: int | None = None
    dies: bool = False

    @property
    def group(self) -> Cgroup:
        """The group that the process is in."""
        return Cgroup(self.cgroup, self.inode)


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """The limits on one GPU, and its CUDA clients."""

    limits: tuple[GroupLimits, ...] = ()
    clients: tuple[CudaClient, ...] = ()

    @property
    def allocated_bytes(self) -> int:
        """The memory of all clients together."""
        return sum(client.allocated_bytes for client in self.clients)

    @property
    def process_ids(self) -> tuple[int, ...]:
        """The processes that NVML lists, sorted."""
        return tuple(sorted({one.process_id for one in self.clients if one.process_id is not None}))

    @property
    def mig_processes(self) -> tuple[MigProcess, ...]:
        """The processes that NVML lists on MIG devices."""
        return tuple(
            MigProcess(one.process_id, one.gpu_instance, one.compute_instance)
            for one in self.clients
            if one.process_id is not None
            and one.gpu_instance is not None
            and one.compute_instance is not None
        )

    def of_existing_groups(self, exists: Callable[[Cgroup], bool]) -> GpuMemory:
        """The memory without the limits and clients of removed groups: removing a group ends both."""
        known = {one.group for one in self.limits} | {one.group for one in self.clients}
        existing = {group for group in known if exists(group)}
        if existing == known:
            return self
        limits = tuple(one for one in self.limits if one.group in existing)
        return GpuMemory(limits, tuple(one for one in self.clients if one.group in existing))

    def limits_of(self, cgroup: str) -> GroupLimits | None:
        """The limits that bind a group: its own, or those of the nearest group above it that has some."""
        above = [one for one in self.limits if _is_within(cgroup, one.cgroup)]
        return max(above, key=lambda one: len(one.cgroup), default=None)

    def used_bytes(self, limits: GroupLimits) -> int:
        """The memory of the clients that these limits bind."""
        inside = (one for one in self.clients if _is_within(one.cgroup, limits.cgroup))
        return sum(one.allocated_bytes for one in inside if self.limits_of(one.cgroup) == limits)

    def with_limits(self, group: Cgroup, soft_bytes: int, hard_bytes: int) -> GpuMemory:
        """The memory with a group's limits set, or cleared by limits that mean none."""
        others = tuple(one for one in self.limits if one.cgroup != group.path)
        # NVML has no call that clears limits: no guarantee and no bound mean that there are none.
        if (soft_bytes, hard_bytes) == (0, NO_LIMIT_BYTES):
            return replace(self, limits=others)
        return replace(self, limits=(*others, GroupLimits(group.path, group.inode, soft_bytes, hard_bytes)))

    def client(self, number: int) -> CudaClient | None:
        """The client with this number, None once it has ended."""
        return next((one for one in self.clients if one.number == number), None)

    def with_client(self, client: CudaClient) -> GpuMemory:
        """The memory with a client new or changed."""
        return replace(self, clients=(*self.without_client(client.number).clients, client))

    def without_client(self, number: int) -> GpuMemory:
        """The memory after a client has ended."""
        return replace(self, clients=tuple(one for one in self.clients if one.number != number))

    def refusal(self, client: CudaClient, more_bytes: int, device_bytes: int) -> str:
        """Why the client cannot allocate so much more; empty if it can.

        ``device_bytes`` is the memory that all clients of its GPU or its GPU instance share.
        """
        limits = self.limits_of(client.cgroup)
        # A soft limit refuses nothing: memory beyond it is borrowed, and only an MPS server takes it back,
        # by ending the process that borrowed.
        if limits is not None and self.used_bytes(limits) + more_bytes > limits.hard_bytes:
            used = self.used_bytes(limits)
            return (
                f"{limits.cgroup} uses {used} of {limits.hard_bytes} bytes, and cannot get {more_bytes} more"
            )
        free = device_bytes - self.neighbors_bytes(client)
        return "" if more_bytes <= free else f"{free} bytes are free, but {more_bytes} are needed"

    def neighbors_bytes(self, client: CudaClient) -> int:
        """The memory of all clients that share a GPU or a GPU instance with one, itself among them."""
        return sum(one.allocated_bytes for one in self.clients if one.gpu_instance == client.gpu_instance)


def _is_within(cgroup: str, other: str) -> bool:
    return cgroup == other or cgroup.startswith(f"{other}/")


NO_MEMORY = GpuMemory()
