"""Works out the shares of one claim, and keeps its GPUs shared while claims hold them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from driver.devices.memory_limits import BY_CGROUP, MEMORY_LIMITS
from driver.errors import ClaimBlocked, DriverError
from driver.process.log import get_logger
from kubeletplugin.claims.journal.entry import Entry, HeldDevice
from kubeletplugin.claims.journal.identity import Era
from kubeletplugin.claims.journal.journal import Journal
from kubeletplugin.devices.kinds.kind import HeldKinds
from kubeletplugin.kubelet.wire.planned import PlannedDevice
from kubeletplugin.sharing.conflicts import refuse_conflicts, refuse_overpromised
from kubeletplugin.sharing.gpus import Member, NotReady, Sharing, members_of, members_of_entry
from kubeletplugin.sharing.memory_plan import memory_record
from kubeletplugin.sharing.plan import Shareable, all_is_unknown, share_records

_log = get_logger("sharing")

_HELD = {"string": BY_CGROUP}
_UNSEEN = "since its ResourceSlice was not seen"
_WAIT = "wait for the controller to publish it"


@dataclass(frozen=True, slots=True)
class Published:
    """What this node's slices say of a device: its memory (None if never seen) and its attributes."""

    memory: Callable[[str], int | None]
    attributes: Callable[[str], Mapping[str, Any]]


class GpuMemory(Protocol):
    """What NVML says of the memory of a GPU; raises NvmlError."""

    def supports(self, pci: str) -> bool:
        """Whether the NVIDIA driver can hold containers to parts of it."""
        ...

    def shareable_bytes(self, pci: str) -> int:
        """How much of it claims can divide among them."""
        ...


class ClaimShares:
    """The shares of the claims of one node, in the era that is now.

    Callers hold the locks of the claim and of its GPUs.
    """

    def __init__(
        self,
        sharing: Sharing,
        kinds: HeldKinds,
        journal: Journal,
        era: Callable[[], Era],
        published: Published,
        memory: GpuMemory,
    ) -> None:
        self._sharing = sharing
        self._kinds = kinds
        self._journal = journal
        self._era = era
        self._published = published
        self._memory = memory

    def shared(
        self, uid: str, planned: Sequence[PlannedDevice], held: Sequence[HeldDevice]
    ) -> tuple[HeldDevice, ...]:
        """The devices that the claim is about to hold, with their shares.

        Raises ClaimRefused for limits above a share, DeviceHeld if other claims leave no room, NotReady while
        the share is not known yet or the published memory cannot be enforced, NvmlError.
        """
        both = list(zip(planned, held, strict=True))
        shareables = [self._shareable(*one) for one in both]
        unknown = next((one.device for one in shareables if all_is_unknown(one)), None)
        if unknown is not None:
            raise NotReady(f"whether the claim has all of {unknown} is not known, {_UNSEEN}", _WAIT)
        records = share_records(shareables)
        found = tuple(
            replace(one, share=share, memory=memory_record(shareable, share))
            for one, shareable, share in zip(held, shareables, records, strict=True)
        )
        memory = [one.memory_bytes for one in shareables]
        if any(device.name.shared is not None for device in planned):
            holders = tuple(self._holders(one.pci for one in found))
            refuse_conflicts(uid, found, memory, holders)
            refuse_overpromised(uid, found, memory, holders)
        return found

    def reach(self, gpus: Iterable[str]) -> set[str]:
        """The GPUs with those that have to be locked to clear them: some were shared together with others.

        For any caller. Raises StorageError.
        """
        wanted = set(gpus)
        return wanted.union(*(record.gpus for record in self._sharing.records_on(wanted)))

    def clear(self, gpus: Iterable[str], uid: str) -> None:
        """Put back what shares that are gone have left on GPUs; raises DriverError."""
        locked = set(gpus)
        for record in self._sharing.records_on(locked):
            if self._members(record.group, record.gpus, without=uid) or self._rebuilt(record.gpus):
                continue
            if not locked.issuperset(record.gpus):
                raise NotReady(
                    f"GPUs {', '.join(record.gpus)} were shared together just now", "it is retried"
                )
            self._sharing.settle(record.group, ())

    def join(self, entry: Entry) -> tuple[str, ...]:
        """Set the claim's GPUs up for its shares; returns in words what the GPUs cannot do.

        Raises DriverError; the caller then has to call ``leave``.
        """
        notes = [
            self._sharing.settle(group, self._members(group, gpus))
            for group, gpus in groups_of(entry).items()
        ]
        return tuple(note for note in notes if note is not None)

    def leave(self, entry: Entry) -> None:
        """Set the claim's GPUs as the remaining claims need them, or as they were before.

        A failure is logged and the work is done later, at the latest before the GPU is handed out again: a
        claim that gives something back need not wait for it.
        """
        for group, gpus in groups_of(entry).items():
            try:
                if not self._rebuilt(gpus):
                    mine = members_of_entry(group, entry, self._kinds)
                    self._sharing.settle(group, self._members(group, gpus, without=entry.uid), mine)
            except DriverError as error:
                _log.warning("sharing is not put back yet", group=group, uid=entry.uid, error=str(error))

    def settle(self, group: str, gpus: Iterable[str]) -> None:
        """Set a group as the journal says, after reading the GPU again; raises DriverError.

        A share of a device that only a newer version knows stays as that version left it.
        """
        members = self._members(group, gpus)
        if not all(self._kinds.knows(member.held) for member in members):
            return
        if members:
            self._sharing.look_again(group)
        if members or not self._rebuilt(gpus):
            self._sharing.settle(group, members)

    def end_unrecorded(self, daemon: str, gpus: Iterable[str]) -> None:
        """End a daemon that no record accounts for, unless a claim on its GPUs may have it."""
        if not self._rebuilt(gpus):
            self._sharing.end_unrecorded(daemon)

    def _members(self, group: str, gpus: Iterable[str], without: str = "") -> tuple[Member, ...]:
        return members_of(group, self._holders(gpus), self._era(), self._kinds, without)

    def _holders(self, gpus: Iterable[str]) -> Iterable[Entry]:
        """The claims that hold something on the GPUs, each once."""
        return {entry.uid: entry for pci in gpus for entry in self._journal.holders(pci)}.values()

    def _rebuilt(self, gpus: Iterable[str]) -> bool:
        """Whether the GPUs have a claim of which only the CDI spec is known: it may have a share."""
        return any(entry.rebuilt for entry in self._holders(gpus))

    def _shareable(self, device: PlannedDevice, held: HeldDevice) -> Shareable:
        """The device with what its limits depend on; raises ClaimBlocked, NotReady, NvmlError."""
        limits = self._has_limits(device, held)
        name = device.allocated.device
        published_bytes = self._published.memory(name)
        memory_bytes = self._memory_bytes(device, held, limits=limits)
        return Shareable(
            name,
            device.allocated.request,
            device.wish,
            self._kinds.of(held).cuda_uuid(held),
            memory_bytes,
            self._divided_bytes(device, held, memory_bytes, published_bytes),
            published_bytes,
            whole=device.name.kind.has_modes,
            limits=limits,
        )

    def _has_limits(self, device: PlannedDevice, held: HeldDevice) -> bool:
        """Whether the device was published with memory limits by the NVIDIA driver, and the driver has them.

        The slice decides, since the scheduler chose the device by it; no claim is prepared with less than
        that.
        """
        wish, name = device.wish, device.allocated.device
        if wish is None or not device.name.kind.has_modes or (wish.form is None and wish.memory is None):
            return False
        published = self._published.attributes(name)
        if published and published.get(MEMORY_LIMITS) != _HELD:
            return False
        if self._memory.supports(held.pci):
            if published:
                return True
            raise NotReady(
                f"whether the NVIDIA driver is to hold the memory of {name} is not known, {_UNSEEN}", _WAIT
            )
        if published:
            raise NotReady(
                f"{name} was published with memory limits, and the NVIDIA driver holds none on its GPU",
                "wait for the controller to publish what there is, then delete the pod, so that it is "
                "scheduled anew; limits need driver 615 or newer, and cgroup v2",
            )
        return False

    def _memory_bytes(self, device: PlannedDevice, held: HeldDevice, *, limits: bool) -> int:
        """The memory of a shared device where its shares depend on it, else 0; raises NvmlError."""
        form = device.wish.form if device.wish else None
        if not limits and (form is None or not (form.strategy == "MPS" or form.memory)):
            return 0
        found = self._kinds.of(held).memory_bytes(held)
        if not found:
            raise ClaimBlocked(
                f"the memory of {device.allocated.device} is not known, so shares of it have no limit",
                "see whether nvidia-smi tells it on the node",
            )
        return found

    def _divided_bytes(
        self, device: PlannedDevice, held: HeldDevice, memory_bytes: int, published_bytes: int | None
    ) -> int:
        """The memory of a shared device that claims can divide, 0 if none does; raises NvmlError.

        The slice of a share says it, so that equal shares are equal. For a GPU that a claim has for itself,
        the slice has all memory, including what the NVIDIA driver keeps for itself. With a partition the
        driver keeps nothing.
        """
        if device.name.shared is not None and published_bytes:
            return min(memory_bytes, published_bytes)
        if memory_bytes and device.name.kind.has_modes:
            return self._memory.shareable_bytes(held.pci)
        return memory_bytes


def groups_of(entry: Entry) -> dict[str, tuple[str, ...]]:
    """The groups that the claim has shares in, each with its GPUs."""
    found: dict[str, set[str]] = {}
    for held in entry.devices:
        if held.share is not None:
            found.setdefault(held.share.group, set()).add(held.pci)
    return {group: tuple(sorted(gpus)) for group, gpus in sorted(found.items())}
