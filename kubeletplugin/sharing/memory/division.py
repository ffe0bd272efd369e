"""Divides the memory that a claim may have of a GPU among its containers: pure arithmetic over bytes.

A soft limit reserves nothing (NVIDIA's "MPS v3 Memory Partitioning"), so only hard limits protect what claims
are guaranteed. The hard limits of a claim together never exceed what it may have, and those on a GPU together
never exceed the GPU. Limits are lowered before others are raised, and never below what a container uses.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from kubeletplugin.claims.journal.entry import MemoryRecord
from kubeletplugin.kubelet.wire.containers import ContainerName

MIB = 1 << 20

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Portion:
    """The limits of one container on a GPU, in bytes: ``soft_bytes`` guaranteed, ``hard_bytes`` at most."""

    soft_bytes: int = 0
    hard_bytes: int = 0


def expected_containers(
    listed: Collection[ContainerName],
    present: Collection[ContainerName],
    requests: int,
    newcomer: ContainerName | None = None,
) -> tuple[str, ...]:
    """The names of the containers that will start beside the ``present`` ones; empty for an unknown name.

    ``listed`` are the containers of all pods that the kubelet lists for the device. ``requests`` is the
    number of the claim's requests, and ``newcomer`` the container that starts now.
    """
    # The kubelet does not list init containers (pkg/kubelet/apis/podresources/server_v1.go). The other
    # containers of the pod start only after this one has ended.
    waits = newcomer is not None and bool(newcomer) and newcomer not in listed
    still = [
        name
        for name in sorted(listed, key=str)
        if name not in present
        and not (
            waits
            and newcomer is not None
            and (name.namespace, name.pod) == (newcomer.namespace, newcomer.pod)
        )
    ]
    if requests <= 1:
        return tuple(name.container for name in still)
    # The kubelet lists each container with all devices of its claim, whichever request it uses. So each
    # request is taken to be used by an equal number of containers, rounded up.
    known = sum(name in listed for name in present)
    return ("",) * min(len(still), max(0, -(-len(listed) // requests) - known))


def portions(
    memory: MemoryRecord, most_bytes: int, present: Mapping[Key, str], coming: Sequence[str]
) -> dict[Key, Portion]:
    """The limits of each present container, by key, that leave room for those that will start.

    ``present`` has the names of the present containers, ``coming`` those of the others. ``most_bytes`` is the
    most that the claim may have now. If that is more than its guarantee, all get more in proportion.
    """
    named = [memory.parts[name] for name in (*present.values(), *coming) if name in memory.parts]
    sharing = len(present) + len(coming) - len(named)
    equal = max(0, memory.guaranteed_bytes - sum(named)) // sharing if sharing else 0
    if memory.each_bytes:
        equal = min(equal, memory.each_bytes)
    return {
        key: _portion(memory.parts.get(name, equal), memory.guaranteed_bytes, most_bytes)
        for key, name in present.items()
    }


def _portion(part_bytes: int, guaranteed_bytes: int, most_bytes: int) -> Portion:
    # Whole MiB, the unit of NVIDIA's own tools, rounded down so that the sum fits.
    soft_bytes = max(0, part_bytes) // MIB * MIB
    if not 0 < guaranteed_bytes < most_bytes:
        return Portion(soft_bytes, soft_bytes)
    return Portion(soft_bytes, max(0, part_bytes) * most_bytes // guaranteed_bytes // MIB * MIB)


def extras(free_bytes: int, wanted: Mapping[Key, int]) -> dict[Key, int]:
    """Equal parts of ``free_bytes``, none larger than ``wanted``; what one does not want the others get."""
    found: dict[Key, int] = {}
    left_bytes = max(0, free_bytes)
    # The smallest first: what it leaves of its equal part is divided among those after it.
    for count, key in enumerate(sorted(wanted, key=lambda one: wanted[one])):
        found[key] = min(wanted[key], left_bytes // (len(wanted) - count))
        left_bytes -= found[key]
    return found


def lowered(now: Portion, target: Portion, used_bytes: int) -> Portion:
    """The limits of a container on the way down to a target: never below what it uses, rounded up to MiB."""
    used_bytes = -(-used_bytes // MIB) * MIB
    hard_bytes = min(now.hard_bytes, max(target.hard_bytes, used_bytes))
    return Portion(min(now.soft_bytes, target.soft_bytes, hard_bytes), hard_bytes)


def admitted(
    target: Portion, memory: MemoryRecord, others: Iterable[Portion], room_bytes: int, gpu_room_bytes: int
) -> Portion:
    """The limits of a container that joins the ``others`` of its claim, which are lowered already.

    ``room_bytes`` is what is left of the most that the claim may have now, ``gpu_room_bytes`` what is left of
    the GPU. The container gets its full guarantee or nothing, which is Portion(). Only its burst may be less.
    """
    held = tuple(others)
    soft_room = memory.guaranteed_bytes - sum(one.soft_bytes for one in held)
    hard_room = memory.most_bytes - sum(one.hard_bytes for one in held)
    hard_bytes = min(target.hard_bytes, max(room_bytes, target.soft_bytes), hard_room, gpu_room_bytes)
    if target.soft_bytes > soft_room or target.soft_bytes > hard_bytes:
        return Portion()
    return Portion(target.soft_bytes, hard_bytes // MIB * MIB)


def raised(
    now: Mapping[Key, Portion], targets: Mapping[Key, Portion], memory: MemoryRecord, room_bytes: int
) -> dict[Key, Portion]:
    """The new limits of containers that have less than their target, in turn until the room is used up.

    ``room_bytes`` is what is left of the most that their claim may have now, and of the GPU. Containers whose
    limits do not change are left out.
    """
    soft_room = memory.guaranteed_bytes - sum(one.soft_bytes for one in now.values())
    room_bytes = min(room_bytes, memory.most_bytes - sum(one.hard_bytes for one in now.values()))
    found: dict[Key, Portion] = {}
    for key, held in now.items():
        target = targets.get(key, held)
        more = min(max(0, target.hard_bytes - held.hard_bytes), max(0, room_bytes)) // MIB * MIB
        soft_more = min(max(0, target.soft_bytes - held.soft_bytes), max(0, soft_room))
        soft_bytes = min(held.soft_bytes + soft_more, held.hard_bytes + more)
        if more or soft_bytes != held.soft_bytes:
            found[key] = Portion(soft_bytes, held.hard_bytes + more)
            room_bytes -= more
            soft_room -= soft_bytes - held.soft_bytes
    return found
