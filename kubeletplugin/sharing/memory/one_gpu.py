"""Gives containers their parts of one GPU's memory, and takes them back. Callers hold the GPU's lock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from driver.devices.memory_limits import SMALLEST_LIMIT_BYTES
from driver.errors import ClaimBlocked, ClaimRefused, DriverError
from driver.nvml.memory_limits import Cgroup, MemoryLimits
from driver.process.log import get_logger
from kubeletplugin.kubelet.wire.containers import ContainerName
from kubeletplugin.sharing.memory import division
from kubeletplugin.sharing.memory.allowances import Allowance, Allowances, Device
from kubeletplugin.sharing.memory.cgroups import Cgroups
from kubeletplugin.sharing.memory.division import MIB, Portion
from kubeletplugin.sharing.memory.gpu_limits import GpuLimits
from kubeletplugin.sharing.memory.ledger import Ledger, Part, PartKey

Listed = Mapping[str, frozenset[ContainerName]]
"""By CDI device, the containers that the kubelet lists for it."""

_log = get_logger("memory")


@dataclass(frozen=True, slots=True)
class MemoryPorts:
    """What is needed to keep and to enforce the parts. ``step(name)`` lets tests stop at a step."""

    ledger: Ledger
    limits: GpuLimits
    cgroups: Cgroups
    allowances: Allowances
    step: Callable[[str], None]


class OneGpu:
    """The parts on one GPU as they are now, without those of containers whose control group is gone.

    Every method may raise NvmlError and StorageError, and can then be repeated.
    """

    def __init__(self, pci: str, ports: MemoryPorts) -> None:
        self.pci = pci
        self._ports = ports
        self._parts: dict[PartKey, Part] = {}
        # The UIDs of claims whose file has to be written.
        self._changed: set[str] = set()
        self._gpu_bytes: int | None = None
        # Whether a container may have more than its claim is guaranteed.
        self.bursts = False
        # What containers used when it was last read.
        self._seen_bytes: dict[PartKey, int] = {}
        # A container with several parts has one group, which is looked up once.
        exists: dict[Cgroup, bool] = {}
        for part in ports.ledger.on_gpu(pci):
            if part.cgroup not in exists:
                exists[part.cgroup] = ports.cgroups.is_there(part.cgroup)
            if exists[part.cgroup]:
                self._parts[part.key] = part
            else:
                self._changed.add(part.claim_uid)

    def admit(self, part: Part, listed: Listed) -> Portion:
        """Limit a container to its part before its first process runs; the others are lowered first.

        ``part`` has no portion yet. Raises ClaimRefused if it gets less than a program needs, ClaimBlocked if
        the others leave too little, NotHeld if NVML does not hold a limit.
        """
        key, device = part.key, (part.claim_uid, part.cdi_device)
        # It is there if the hook asks again about a container whose answer it has missed.
        before = self._parts.pop(key, None)
        allowed = self._allowed(device)
        own = allowed.get(device)
        if own is None:
            raise ClaimRefused(f"claim {part.claim_uid} has just been unprepared", "delete the pod")
        targets = self._targets(own, listed, part)
        target = targets.pop(key)
        _refuse_too_little(own, part, target)
        # The guarantee of this container may be what other claims have as a burst.
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
        # The ledger before NVML, since the limit is new: after a crash it must not say less than NVML.
        self.write()
        self._ports.step("memory noted")
        self._hold(part.cgroup, allowed)
        self._ports.step("memory limited")
        return portion

    def restore(self) -> dict[Device, str]:
        """Set every limit that differs from the ledger; returns the reasons of those that failed, by device.

        A reload of the NVIDIA driver loses all limits.
        """
        if not self._parts:
            return {}
        allowed = self._allowed()
        groups = {part.cgroup: part for part in self._parts.values()}
        limits = self._ports.limits.read(self.pci, (group.path for group in groups))
        faults: dict[Device, str] = {}
        for group in groups:
            total = self._total(group, allowed)
            if self._ports.limits.is_held(self.pci, group.path, total, limits.get(group.path)):
                continue
            try:
                self._hold(group, allowed)
                _log.warning("memory limit differed from the wanted one and was set again", cgroup=group.path)
            except DriverError as error:
                faults |= self._fault(group, error)
        return faults

    def divide(self, listed: Listed) -> dict[Device, str]:
        """Divide again what each claim may have now; returns the reasons of failed limits, by device."""
        faults: dict[Device, str] = {}
        allowed = self._allowed()
        by_device = {device: one for device, one in allowed.items() if self._parts_of(device)}
        targets: dict[PartKey, Portion] = {}
        for one in by_device.values():
            targets |= self._targets(one, listed)
        # All that have to come down first: only what they leave can be given to others.
        for key, target in targets.items():
            try:
                self._lower({key: target}, allowed)
            except DriverError as error:
                faults |= self._fault(key[2], error)
        self.write()
        for device, one in by_device.items():
            now = {part.key: part.portion for part in self._parts_of(device)}
            more = division.raised(now, targets, one.memory, min(self._left(one), self._left_of_gpu(allowed)))
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
        """Forget the parts of a claim. A container that is still there stays limited till it ends."""
        for part in [part for part in self._parts.values() if part.claim_uid == claim_uid]:
            del self._parts[part.key]
            try:
                self._lower_leaving(part)
            except DriverError as error:
                _log.warning("memory limit stays until its control group is gone", error=error.logged)
        self._changed.discard(claim_uid)
        self._ports.ledger.forget(claim_uid, self.pci)

    def _lower_leaving(self, part: Part) -> None:
        allowed = self._allowed()
        one, total = allowed.get((part.claim_uid, part.cdi_device)), self._total(part.cgroup, allowed)
        # The container has parts of other claims on this GPU: it keeps those.
        if total.hard_bytes:
            self._set(part.cgroup, total)
        # It gives its guarantee back. Without MPS no soft limit was set.
        elif one is None or one.uses_mps:
            self._set(part.cgroup, Portion(0, part.portion.hard_bytes))

    def write(self) -> None:
        """Write the files of the claims whose parts have changed."""
        for uid in sorted(self._changed):
            held = [part for part in self._parts.values() if part.claim_uid == uid]
            self._ports.ledger.put(uid, self.pci, held)
            self._changed.discard(uid)

    def _allowed(self, *more: Device) -> Mapping[Device, Allowance]:
        live = [(part.claim_uid, part.cdi_device) for part in self._parts.values()]
        found = self._ports.allowances.on_gpu(self.pci, self._memory_bytes, (*live, *more))
        self.bursts = any(one.bursts for one in found.values())
        return found

    def _memory_bytes(self) -> int:
        if self._gpu_bytes is None:
            self._gpu_bytes = self._ports.limits.shareable_bytes(self.pci)
        return self._gpu_bytes

    def _parts_of(self, device: Device) -> list[Part]:
        return [part for part in self._parts.values() if (part.claim_uid, part.cdi_device) == device]

    def _targets(
        self, allowance: Allowance, listed: Listed, newcomer: Part | None = None
    ) -> dict[PartKey, Portion]:
        """The limits that each container with a device should have."""
        held = self._parts_of(allowance.device)
        # A container of this name is restarted: the one before gets nothing in its old group.
        again = {part.key for part in held if newcomer and part.name and part.name == newcomer.name}
        parts = [part for part in held if part.key not in again] + ([newcomer] if newcomer else [])
        to_come = division.expected_containers(
            listed.get(allowance.device[1], frozenset()),
            [part.name for part in parts],
            allowance.requests,
            newcomer.name if newcomer else None,
        )
        present = {part.key: part.name.container for part in parts}
        found = division.portions(allowance.memory, allowance.most_bytes, present, to_come)
        return {**found, **dict.fromkeys(again, Portion())}

    def _lower(self, targets: Mapping[PartKey, Portion], allowed: Mapping[Device, Allowance]) -> None:
        """Lower the limits of containers to their targets, but not below what they use."""
        groups = {key[2] for key in targets}
        by_path = self._ports.limits.read(self.pci, (group.path for group in groups))
        for key, target in targets.items():
            group, part = key[2], self._parts[key]
            limits = by_path.get(group.path)
            # The limit is lost or too high, so the container may have allocated more than its part.
            if limits is None or limits.hard_bytes > self._total(group, allowed).hard_bytes:
                limits = self._hold(group, allowed)
            self._seen_bytes[key] = self._used(part, limits)
            portion = division.lowered(part.portion, target, self._seen_bytes[key])
            if portion == part.portion:
                continue
            self._parts[key] = replace(part, portion=portion)
            try:
                limits = self._hold(group, allowed)
                # Until the limit was set the container could still allocate, so its use is read once more.
                used_bytes = self._used(part, limits)
                if used_bytes > portion.hard_bytes:
                    portion = division.lowered(part.portion, target, used_bytes)
                    self._parts[key] = replace(part, portion=portion)
                    limits = self._hold(group, allowed)
            # Whatever ends it: the ledger must not say less than what NVML may still allow.
            except BaseException:
                self._parts[key] = part
                raise
            by_path[group.path] = limits
            self._seen_bytes[key] = self._used(self._parts[key], limits)
            self._changed.add(part.claim_uid)
            self._ports.step("memory lowered")

    def _room_for(self, own: Allowance, target: Portion) -> Portion:
        """The limits of a container beside the present ones; raises ClaimBlocked if too little is left."""
        others = [
            replace(part.portion, hard_bytes=self._held_bytes(part)) for part in self._parts_of(own.device)
        ]
        gpu_room_bytes = self._left_of_gpu(self._allowed(own.device))
        portion = division.admitted(target, own.memory, others, self._left(own), gpu_room_bytes)
        if portion.hard_bytes:
            return portion
        held_bytes = sum(one.hard_bytes for one in others)
        if gpu_room_bytes < target.soft_bytes:
            raise ClaimBlocked(
                f"the container is guaranteed {_mib(target.soft_bytes)} of GPU {self.pci}, but only "
                f"{_mib(max(0, gpu_room_bytes))} are free: other claims still use the rest as a burst",
                "it is tried again; only the other claims can free this memory",
            )
        raise ClaimBlocked(
            f"the container needs {_mib(target.soft_bytes)} of the {_mib(own.memory.guaranteed_bytes)} of "
            f"{own.name}, but the claim's {len(others)} other containers use or may use {_mib(held_bytes)}",
            "it is tried again; end containers of the claim, or give each its own part in the configuration",
        )

    def _left(self, own: Allowance) -> int:
        """The bytes that are left of the most that a claim may have now."""
        return own.most_bytes - sum(map(self._held_bytes, self._parts_of(own.device)))

    def _held_bytes(self, part: Part) -> int:
        """The bytes that a container may have, or uses. It uses more only if its limit was lost once."""
        return max(part.portion.hard_bytes, self._seen_bytes.get(part.key, 0))

    def _left_of_gpu(self, allowed: Mapping[Device, Allowance]) -> int:
        """The bytes that are left of the GPU."""
        # Without bursts and with all allowances known, the scheduler has made sure that everything fits.
        known = all((part.claim_uid, part.cdi_device) in allowed for part in self._parts.values())
        if known and not any(one.bursts for one in allowed.values()):
            return max((one.memory.most_bytes for one in allowed.values()), default=0)
        return self._memory_bytes() - sum(map(self._held_bytes, self._parts.values()))

    def _total(self, group: Cgroup, allowed: Mapping[Device, Allowance]) -> Portion:
        """The sum of a group's parts, of all claims: NVML has one pair of limits for a group on a GPU."""
        # Only an MPS server heeds a soft limit. If a group is deleted, its soft limit stays counted in the
        # groups above it for ever (NVIDIA's "MPS v3 Memory Partitioning"). So without MPS none is set.
        soft_bytes = hard_bytes = 0
        for part in self._parts.values():
            if part.cgroup == group:
                one = allowed.get((part.claim_uid, part.cdi_device))
                hard_bytes += part.portion.hard_bytes
                soft_bytes += part.portion.soft_bytes if one is not None and one.uses_mps else 0
        return Portion(soft_bytes, hard_bytes)

    def _used(self, part: Part, limits: MemoryLimits) -> int:
        """The bytes that a container uses of a part. Its other parts on the GPU count as filled first."""
        # NVML only says what the group uses as a whole.
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
        """The devices whose limit could not be set, with the reason; none if the container has just ended."""
        if not self._ports.cgroups.is_there(group):
            for part in [part for part in self._parts.values() if part.cgroup == group]:
                del self._parts[part.key]
                self._changed.add(part.claim_uid)
            return {}
        _log.warning("memory limit is not held", cgroup=group.path, error=error.logged)
        concerned: Iterable[Part] = (part for part in self._parts.values() if part.cgroup == group)
        return {(part.claim_uid, part.cdi_device): str(error) for part in concerned}


def _refuse_too_little(own: Allowance, part: Part, target: Portion) -> None:
    """Raise ClaimRefused if a container would get less than a program needs to start."""
    if target.soft_bytes >= SMALLEST_LIMIT_BYTES:
        return
    raise ClaimRefused(
        f"{part.name} would get {_mib(target.soft_bytes)} of the {_mib(own.memory.guaranteed_bytes)} of "
        f"{own.name}, but a program needs {_mib(SMALLEST_LIMIT_BYTES)} to start",
        "ask for more memory, or use the claim in fewer containers",
    )


def _mib(amount_bytes: int) -> str:
    return f"{amount_bytes // MIB} MiB"
