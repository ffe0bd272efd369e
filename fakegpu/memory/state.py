"""The memory of one fake GPU: limits of control groups, what clients have allocated, which limits apply.

As NVIDIA documents its memory accounting (MPS v3 memory partitioning, the backend misc): a group without
limits of its own is held by the nearest one above that has some, and limits do not nest, so that those of a
group above do not bound a group that has its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from driver.nvml.memory_limits import NO_LIMIT_BYTES, Cgroup


@dataclass(frozen=True, slots=True)
class Accounting:
    """How the NVIDIA driver of a machine counts, where it is free to.

    Limits are rounded up to whole ``unit_bytes``. With ``silent`` a group without limits is answered with
    NOT_SUPPORTED instead of NOT_FOUND, which one public program says of the account misc.
    """

    unit_bytes: int = 1
    silent: bool = False

    def counted(self, limit_bytes: int, gpu_bytes: int) -> int:
        """The limit that is held where this one was asked for."""
        if limit_bytes == NO_LIMIT_BYTES:
            return limit_bytes
        return min(-(-limit_bytes // self.unit_bytes) * self.unit_bytes, gpu_bytes)


EXACT = Accounting()


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """The limits of one control group, of which ``inode`` is that of its folder."""

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

    ``process_id`` is what NVML lists it by, None for one that it does not list.
    """

    number: int
    cgroup: str
    inode: int
    allocated_bytes: int = 0
    process_id: int | None = None

    @property
    def group(self) -> Cgroup:
        """The group that it lies in."""
        return Cgroup(self.cgroup, self.inode)


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """The limits on one GPU, and its CUDA clients."""

    limits: tuple[GroupLimits, ...] = ()
    clients: tuple[CudaClient, ...] = ()

    @classmethod
    def from_document(cls, document: Mapping[str, list[dict[str, object]]]) -> GpuMemory:
        """Read what ``dataclasses.asdict`` wrote; raises KeyError, TypeError."""
        limits = tuple(GroupLimits(**one) for one in document["limits"])  # type: ignore[arg-type]  # TypeError if not
        clients = tuple(CudaClient(**one) for one in document["clients"])  # type: ignore[arg-type]  # likewise
        return cls(limits, clients)

    @property
    def allocated_bytes(self) -> int:
        """What all clients have, together."""
        return sum(client.allocated_bytes for client in self.clients)

    @property
    def process_ids(self) -> tuple[int, ...]:
        """The processes that NVML lists, sorted."""
        return tuple(sorted({one.process_id for one in self.clients if one.process_id is not None}))

    def of_living_groups(self, is_there: Callable[[Cgroup], bool]) -> GpuMemory:
        """What is left once limits and clients of groups that are gone went with them."""
        known = {one.group for one in self.limits} | {one.group for one in self.clients}
        there = {group for group in known if is_there(group)}
        if there == known:
            return self
        limits = tuple(one for one in self.limits if one.group in there)
        return GpuMemory(limits, tuple(one for one in self.clients if one.group in there))

    def holder(self, cgroup: str) -> GroupLimits | None:
        """The limits that hold a group: its own, or those of the nearest group above that has some."""
        above = [one for one in self.limits if _is_within(cgroup, one.cgroup)]
        return max(above, key=lambda one: len(one.cgroup), default=None)

    def used_bytes(self, limits: GroupLimits) -> int:
        """What the clients have that these limits hold."""
        inside = (one for one in self.clients if _is_within(one.cgroup, limits.cgroup))
        return sum(one.allocated_bytes for one in inside if self.holder(one.cgroup) == limits)

    def with_limits(self, group: Cgroup, soft_bytes: int, hard_bytes: int) -> GpuMemory:
        """The memory with a group's limits set; those that mean none clear them."""
        others = tuple(one for one in self.limits if one.cgroup != group.path)
        if (soft_bytes, hard_bytes) == (0, NO_LIMIT_BYTES):
            return replace(self, limits=others)
        return replace(self, limits=(*others, GroupLimits(group.path, group.inode, soft_bytes, hard_bytes)))

    def client(self, number: int) -> CudaClient | None:
        """The client of that number, while it lives."""
        return next((one for one in self.clients if one.number == number), None)

    def with_client(self, client: CudaClient) -> GpuMemory:
        """The memory with a client new or changed."""
        return replace(self, clients=(*self.without_client(client.number).clients, client))

    def without_client(self, number: int) -> GpuMemory:
        """The memory after a client has ended."""
        return replace(self, clients=tuple(one for one in self.clients if one.number != number))

    def refusal(self, client: CudaClient, more_bytes: int, gpu_bytes: int) -> str:
        """Why the client cannot have so much more, empty where it can.

        A soft limit refuses nothing: memory beyond it is borrowed, and only an MPS server takes it
        back, by ending the process that borrowed.
        """
        limits = self.holder(client.cgroup)
        if limits is not None and self.used_bytes(limits) + more_bytes > limits.hard_bytes:
            used = self.used_bytes(limits)
            return (
                f"{limits.cgroup} has {used} of {limits.hard_bytes} bytes, and {more_bytes} more are wanted"
            )
        free = gpu_bytes - self.allocated_bytes
        return "" if more_bytes <= free else f"{free} bytes are free, and {more_bytes} are wanted"


def _is_within(cgroup: str, other: str) -> bool:
    return cgroup == other or cgroup.startswith(f"{other}/")


NO_MEMORY = GpuMemory()
