"""Gives containers their parts of one GPU, and takes them back, while the GPU's lock is held."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from driver.devices.memory_limits import SMALLEST_LIMIT_BYTES
from driver.errors import ClaimBlocked, ClaimRefused, DriverError
from driver.nvml.memory_limits import MemoryLimits
from driver.process.log import get_logger
from kubeletplugin.kubelet.wire.containers import ContainerName
from kubeletplugin.sharing.memory.allowances import Allowance, Allowances, Device
from kubeletplugin.sharing.memory.cgroups import Cgroup, Cgroups
from kubeletplugin.sharing.memory.division import MIB, Portion, admitted, coming, lowered, portions, raised
from kubeletplugin.sharing.memory.gpu_limits import GpuLimits
from kubeletplugin.sharing.memory.ledger import Ledger, Part, PartKey

Listed = Mapping[str, frozenset["ContainerName"]]
"""By CDI device, the containers that the kubelet lists for it."""

_NO_ROOM = (
    "it is tried again; end containers of the claim, or give each a part of its own in the configuration"
)

_log = get_logger("memory")


@dataclass(frozen=True, slots=True)
class MemoryPorts:
    """What the parts of GPUs are kept and held with. ``step(name)`` is for tests to follow."""

    ledger: Ledger
    limits: GpuLimits
    cgroups: Cgroups
    allowances: Allowances
    step: Callable[[str], None]


class OneGpu:
    """The parts on one GPU as they are now: a container whose control group is gone has none any more.

    Everything may raise NvmlError and StorageError, and can then be repeated.
    """

    def __init__(self, pci: str, ports: MemoryPorts) -> None:
        self.pci = pci
        self._ports = ports
        self._parts: dict[PartKey, Part] = {}
        self._changed: set[str] = set()
        self._gpu_bytes: int | None = None
        self._bursts = False
        self._seen_bytes: dict[PartKey, int] = {}
        there: dict[Cgroup, bool] = {}
        for part in ports.ledger.on_gpu(pci):
            if part.cgroup not in there:
                there[part.cgroup] = ports.cgroups.is_there(part.cgroup)
            if there[part.cgroup]:
                self._parts[part.key] = part
            else:
                self._changed.add(part.claim_uid)

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts of all containers that are there."""
        return tuple(self._parts.values())

    @property
    def bursts(self) -> bool:
        """Whether a container may have more than its claim is guaranteed, as was seen last."""
        return self._bursts

    def admit(self, part: Part, listed: Listed) -> Portion:
        """Hold a container to its part before its first process runs, once others have come down for it.

        ``part`` has no portion yet. Raises ClaimRefused for less than a program needs, ClaimBlocked where the
        others do not leave its part, NotHeld where NVML does not hold a limit.
        """
        key, device = part.key, (part.claim_uid, part.cdi_device)
        before = self._parts.pop(key, None)
        allowed = self._allowed(device)
        own = allowed.get(device)
        if own is None:
            raise ClaimRefused(f"claim {part.claim_uid} was unprepared just now", "delete the pod")
        targets = self._targets(own, listed, part)
        target = targets.pop(key)
        _refuse_too_little(own, part, target)
        for other, one in allowed.items():
            if other != device and one.bursts:
                targets |= self._targets(one, listed)
        self._lower({one: goal for one, goal in targets.items() if one in self._parts}, allowed)
        try:
            portion = self._room_for(own, target)
        except ClaimBlocked:
            if before is not None:
                self._parts[key] = before
            self.write()
            raise
        self._parts[key] = replace(part, portion=portion)
        self._changed.add(part.claim_uid)
        self.write()
        self._ports.step("memory noted")
        self._hold(part.cgroup, allowed)
        self._ports.step("memory limited")
        return portion

    def restore(self) -> dict[Device, str]:
        """Set every limit that differs from the ledger; returns the limits that failed, with the reason."""
        if not self._parts:
            return {}
        allowed = self._allowed()
        groups = {part.cgroup: part for part in self._parts.values()}
        told = self._ports.limits.read(self.pci, (group.path for group in groups))
        faults: dict[Device, str] = {}
        for group in groups:
            total = self._total(group, allowed)
            if self._ports.limits.is_held(self.pci, group.path, total, told.get(group.path)):
                continue
            try:
                self._hold(group, allowed)
                _log.warning("memory limit was not as it had to be, and is set again", cgroup=group.path)
            except DriverError as error:
                faults |= self._fault(group, error)
        return faults

    def divide(self, listed: Listed) -> dict[Device, str]:
        """Divide again what each claim may have now; returns the limits that failed, with the reason."""
        faults: dict[Device, str] = {}
        allowed = self._allowed()
        by_device = {device: one for device, one in allowed.items() if self._of(device)}
        targets: dict[PartKey, Portion] = {}
        for one in by_device.values():
            targets |= self._targets(one, listed)
        for key, target in targets.items():
            try:
                self._lower({key: target}, allowed)
            except DriverError as error:
                faults |= self._fault(key[2], error)
        self.write()
        for device, one in by_device.items():
            now = {part.key: part.portion for part in self._of(device)}
            more = raised(now, targets, one.memory, min(self._left(one), self._left_of_gpu(allowed)))
            for key, portion in more.items():
                self._parts[key] = replace(self._parts[key], portion=portion)
                self._changed.add(key[0])
                self.write()
                self._ports.step("memory noted")
                try:
                    self._hold(key[2], allowed)
                except DriverError as error:
                    faults |= self._fault(key[2], error)
        return faults

    def leave(self, claim_uid: str) -> None:
        """Forget what a claim's containers had.

        A container that is there all the same stays limited: what it is guaranteed is given back, and it has
        no more than other claims let it have, where others do.
        """
        for part in [part for part in self._parts.values() if part.claim_uid == claim_uid]:
            del self._parts[part.key]
            try:
                self._lower_leaving(part)
            except DriverError as error:
                _log.warning("memory limit stays till its control group goes", error=error.logged)
        self._changed.discard(claim_uid)
        self._ports.ledger.forget(claim_uid, self.pci)

    def _lower_leaving(self, part: Part) -> None:
        allowed = self._allowed()
        one, total = allowed.get((part.claim_uid, part.cdi_device)), self._total(part.cgroup, allowed)
        if total.hard_bytes:
            self._set(part.cgroup, total)
        elif one is None or one.is_mps:
            self._set(part.cgroup, Portion(0, part.portion.hard_bytes))

    def write(self) -> None:
        """Write down what has changed."""
        for uid in sorted(self._changed):
            held = [part for part in self._parts.values() if part.claim_uid == uid]
            self._ports.ledger.put(uid, self.pci, held)
            self._changed.discard(uid)

    def _allowed(self, *more: Device) -> Mapping[Device, Allowance]:
        live = [(part.claim_uid, part.cdi_device) for part in self._parts.values()]
        found = self._ports.allowances.on_gpu(self.pci, self._memory_bytes, (*live, *more))
        self._bursts = any(one.bursts for one in found.values())
        return found

    def _memory_bytes(self) -> int:
        if self._gpu_bytes is None:
            self._gpu_bytes = self._ports.limits.shareable_bytes(self.pci)
        return self._gpu_bytes

    def _of(self, device: Device) -> list[Part]:
        return [part for part in self._parts.values() if (part.claim_uid, part.cdi_device) == device]

    def _targets(
        self, allowance: Allowance, listed: Listed, newcomer: Part | None = None
    ) -> dict[PartKey, Portion]:
        """What each container with a device is to have; one that comes again has nothing where it was."""
        held = self._of(allowance.device)
        again = {part.key for part in held if newcomer and part.name and part.name == newcomer.name}
        there = [part for part in held if part.key not in again] + ([newcomer] if newcomer else [])
        to_come = coming(
            listed.get(allowance.device[1], frozenset()),
            [part.name for part in there],
            allowance.requests,
            newcomer.name if newcomer else None,
        )
        present = {part.key: part.name.container for part in there}
        found = portions(allowance.memory, allowance.most_bytes, present, to_come)
        return {**found, **dict.fromkeys(again, Portion())}

    def _lower(self, targets: Mapping[PartKey, Portion], allowed: Mapping[Device, Allowance]) -> None:
        """Have containers come down to their targets as far as they do not use more.

        A container may allocate until the limit is set: what it has then is seen once more.
        """
        groups = {key[2] for key in targets}
        told = self._ports.limits.read(self.pci, (group.path for group in groups))
        for key, target in targets.items():
            group, part = key[2], self._parts[key]
            limits = told.get(group.path)
            if limits is None or limits.hard_bytes > self._total(group, allowed).hard_bytes:
                limits = self._hold(group, allowed)
            self._seen_bytes[key] = self._used(part, limits)
            portion = lowered(part.portion, target, self._seen_bytes[key])
            if portion == part.portion:
                continue
            self._parts[key] = replace(part, portion=portion)
            try:
                limits = self._hold(group, allowed)
                used_bytes = self._used(part, limits)
                if used_bytes > portion.hard_bytes:
                    portion = lowered(part.portion, target, used_bytes)
                    self._parts[key] = replace(part, portion=portion)
                    limits = self._hold(group, allowed)
            except BaseException:
                self._parts[key] = part
                raise
            told[group.path] = limits
            self._seen_bytes[key] = self._used(self._parts[key], limits)
            self._changed.add(part.claim_uid)
            self._ports.step("memory lowered")

    def _room_for(self, own: Allowance, target: Portion) -> Portion:
        """What a container gets beside those that are there; raises ClaimBlocked where that is too little."""
        others = [replace(part.portion, hard_bytes=self._bytes(part)) for part in self._of(own.device)]
        gpu_room_bytes = self._left_of_gpu(self._allowed(own.device))
        portion = admitted(target, own.memory, others, self._left(own), gpu_room_bytes)
        if portion.hard_bytes:
            return portion
        held_bytes = sum(one.hard_bytes for one in others)
        if gpu_room_bytes < target.soft_bytes:
            raise ClaimBlocked(
                f"the container is guaranteed {_mib(target.soft_bytes)} of GPU {self.pci}, and other claims "
                f"use what they could have of it meanwhile: {_mib(max(0, gpu_room_bytes))} are left",
                "it is tried again; others have to free memory, which nobody can take from them",
            )
        raise ClaimBlocked(
            f"the container is to have {_mib(target.soft_bytes)} of the {_mib(own.memory.guaranteed_bytes)} "
            f"of {own.name}, and the {len(others)} other containers of the claim use or have "
            f"{_mib(held_bytes)}",
            _NO_ROOM,
        )

    def _left(self, own: Allowance) -> int:
        """What is left of the most that a claim may have now."""
        return own.most_bytes - sum(map(self._bytes, self._of(own.device)))

    def _bytes(self, part: Part) -> int:
        """What a container may have, or has: more only where its limit was gone for a while."""
        return max(part.portion.hard_bytes, self._seen_bytes.get(part.key, 0))

    def _left_of_gpu(self, allowed: Mapping[Device, Allowance]) -> int:
        """What is left of the GPU, where some may have more than their claim is guaranteed.

        Where nobody may, the scheduler has seen to it that all fits.
        """
        known = all((part.claim_uid, part.cdi_device) in allowed for part in self._parts.values())
        if known and not any(one.bursts for one in allowed.values()):
            return max((one.memory.most_bytes for one in allowed.values()), default=0)
        return self._memory_bytes() - sum(map(self._bytes, self._parts.values()))

    def _total(self, group: Cgroup, allowed: Mapping[Device, Allowance]) -> Portion:
        """What all claims let a control group have: NVML has one pair of limits for it on a GPU.

        A soft limit has a meaning for an MPS server only. On a group that is deleted it would stay in the
        groups above for ever (NVIDIA's "MPS v3 Memory Partitioning"), so others are given none.
        """
        soft_bytes = hard_bytes = 0
        for part in self._parts.values():
            if part.cgroup == group:
                one = allowed.get((part.claim_uid, part.cdi_device))
                hard_bytes += part.portion.hard_bytes
                soft_bytes += part.portion.soft_bytes if one is not None and one.is_mps else 0
        return Portion(soft_bytes, hard_bytes)

    def _used(self, part: Part, limits: MemoryLimits) -> int:
        """What a container uses of a part, where it uses its other parts on the GPU first."""
        others = sum(
            one.portion.hard_bytes
            for one in self._parts.values()
            if one.cgroup == part.cgroup and one.key != part.key
        )
        return max(0, limits.used_bytes - others)

    def _hold(self, group: Cgroup, allowed: Mapping[Device, Allowance]) -> MemoryLimits:
        return self._set(group, self._total(group, allowed))

    def _set(self, group: Cgroup, total: Portion) -> MemoryLimits:
        return self._ports.limits.hold(self.pci, group.path, total)

    def _fault(self, group: Cgroup, error: DriverError) -> dict[Device, str]:
        """Whose limit could not be set; nobody's where the container has just ended."""
        if not self._ports.cgroups.is_there(group):
            for part in [part for part in self._parts.values() if part.cgroup == group]:
                del self._parts[part.key]
                self._changed.add(part.claim_uid)
            return {}
        _log.warning("memory limit is not held", cgroup=group.path, error=error.logged)
        concerned: Iterable[Part] = (part for part in self._parts.values() if part.cgroup == group)
        return {(part.claim_uid, part.cdi_device): str(error) for part in concerned}


def _refuse_too_little(own: Allowance, part: Part, target: Portion) -> None:
    """Raise ClaimRefused where a container would get less than a program needs to begin."""
    if target.soft_bytes >= SMALLEST_LIMIT_BYTES:
        return
    raise ClaimRefused(
        f"{part.name} would have {_mib(target.soft_bytes)} of the {_mib(own.memory.guaranteed_bytes)} of "
        f"{own.name}, and a program needs {_mib(SMALLEST_LIMIT_BYTES)} to begin",
        "ask for more memory, or let fewer containers have the claim",
    )


def _mib(amount_bytes: int) -> str:
    return f"{amount_bytes // MIB} MiB"
