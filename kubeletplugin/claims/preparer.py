"""Prepares and unprepares claims: plan, journal, partitions, CDI spec, answer; and back.

Every step may be the last before a crash. What a step leaves behind is either found again by the
next call for the claim, which does the rest or undoes it, or by the reconciler.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from driver.claims.allocation import read_claim
from driver.errors import (
    ApiError,
    ClaimRefused,
    DeviceHeld,
    DriverError,
    NodeIncomplete,
    NvmlError,
    StorageError,
)
from driver.nvml.api import GpuLost, NotFound
from driver.process.log import get_logger
from kubeletplugin.cdi.store import CdiStore
from kubeletplugin.claims.gpu_spec import GpuSpecs, changed_board
from kubeletplugin.claims.plan import answer, gpus_held, gpus_of, plan, refuse_if_held
from kubeletplugin.journal.entry import Entry, HeldDevice, PartitionRecord
from kubeletplugin.journal.identity import Identity, boottime_ns
from kubeletplugin.journal.journal import Journal
from kubeletplugin.journal.locks import KeyedLocks, claim_key, gpu_key
from kubeletplugin.kinds.partition.gpu_instances import InstanceInUse
from kubeletplugin.kinds.partition.of_claims import ClaimPartitions, without_records
from kubeletplugin.sharing.gpus import NotReady
from kubeletplugin.sharing.of_claims import ClaimShares
from kubeletplugin.wire.claim_call import Call, ClaimRef, PreparedDevice
from kubeletplugin.wire.names import cdi_qualified_name, is_safe_uid
from kubeletplugin.wire.planned import PlannedDevice

T = TypeVar("T")

_log = get_logger("preparer")

_WAITED_FOR = (ApiError, DeviceHeld, InstanceInUse, NodeIncomplete, NotReady, NvmlError)
_NOT_SOON = (GpuLost, NotFound)
_FIRST_DELAY_SECONDS = 0.25
_LONGEST_DELAY_SECONDS = 2.0
_LOCK_SECONDS = 40.0
_UNPREPARE_SECONDS = 5.0
_ANSWER_SECONDS = 2.0
_MOST_WAITING = 12
"""Calls that may wait at once: the others of the server's workers stay free, for unprepare above all."""


@dataclass(frozen=True, slots=True)
class Ports:
    """What the preparer asks of the world besides the hardware.

    ``get_claim(namespace, name)`` is the API object, raising ApiError or ClaimRefused when there is
    none. ``published_uuid(device)`` is the GPU UUID in this node's ResourceSlice, None when unknown.
    ``complain(claim, error)`` tells the user once that a call waits. ``note(claim, text)`` tells what the
    hardware does not do for a claim that is prepared all the same. ``step(name)`` follows the steps.
    ``left_behind(uid)`` hears of a claim whose partitions could not all be destroyed.
    """

    get_claim: Callable[[str, str], dict[str, Any]]
    published_uuid: Callable[[str], str | None]
    complain: Callable[[ClaimRef, DriverError], None]
    note: Callable[[ClaimRef, str], None]
    step: Callable[[str], None]
    left_behind: Callable[[str], None]


class Preparer:
    """The claims of one node. Any number of calls may run at once."""

    def __init__(
        self,
        identity: Identity,
        journal: Journal,
        locks: KeyedLocks,
        specs: GpuSpecs,
        partitions: ClaimPartitions,
        shares: ClaimShares,
        store: CdiStore,
        ports: Ports,
        patience_seconds: float,
    ) -> None:
        self._identity = identity
        self._journal = journal
        self._locks = locks
        self._specs = specs
        self._partitions = partitions
        self._shares = shares
        self._store = store
        self._ports = ports
        self._patience_seconds = patience_seconds
        self._waiting = threading.BoundedSemaphore(_MOST_WAITING)

    def prepare(self, claim: ClaimRef, call: Call) -> tuple[PreparedDevice, ...]:
        """Hand the claim's devices out: afterwards its CDI spec is there, and stays.

        What passes by itself is waited for up to the patience, since the kubelet comes back only after
        60 to 90 s. Raises DriverError; then the claim holds nothing that it did not hold before.
        """
        if not is_safe_uid(claim.uid):
            raise ClaimRefused(
                f"the claim's UID {claim.uid[:64]!r} is no UID", "ask with the UID of the API object"
            )
        return self._patiently(
            claim, call, lambda: self._prepare_once(claim, call), self._patience_seconds, tell=True
        )

    def unprepare(self, claim: ClaimRef, call: Call) -> None:
        """Take the claim's devices back. A claim that was never prepared is fine.

        Needs neither the API nor, unless partitions have to be destroyed, NVML. A partition that a process
        still uses is waited for, not as long as in prepare, since the kubelet comes back soon. Raises
        DriverError; what could not be taken back stays in the journal and is tried again.
        """
        if is_safe_uid(claim.uid):
            patience_seconds = min(self._patience_seconds, _UNPREPARE_SECONDS)
            self._patiently(
                claim, call, lambda: self.release(claim.uid, lambda _: True), patience_seconds, tell=False
            )

    def _patiently(
        self, claim: ClaimRef, call: Call, work: Callable[[], T], patience_seconds: float, *, tell: bool
    ) -> T:
        """Do the work, again and again while what stands in its way may pass, and somebody waits for it."""
        end = time.monotonic() + min(patience_seconds, call.remaining_seconds() - _ANSWER_SECONDS)
        delay, complained = _FIRST_DELAY_SECONDS, not tell
        while True:
            try:
                return work()
            except _WAITED_FOR as error:
                hopeless = not error.retryable or isinstance(error, _NOT_SOON)
                if hopeless or time.monotonic() + delay > end or not call.is_active():
                    raise
                if not complained:
                    self._ports.complain(claim, error)
                    complained = True
                if not self._waiting.acquire(blocking=False):
                    raise
            try:
                self._journal.wait_for_release(delay)
            finally:
                self._waiting.release()
            delay = min(2 * delay, _LONGEST_DELAY_SECONDS)

    def release(self, uid: str, still: Callable[[Entry | None], bool]) -> bool:
        """Let go of a claim's devices if ``still`` holds of its entry once its locks are held.

        Raises DriverError; the journal then says what the claim still has.
        """
        with self._locks.holding([claim_key(uid)], _LOCK_SECONDS):
            entry = self._journal.get(uid)
            if not still(entry):
                return False
            if entry is not None and not entry.holds:
                return True
            gpus = sorted({device.pci for device in entry.devices}) if entry else []
            with self._locks.holding([gpu_key(pci) for pci in gpus], _LOCK_SECONDS):
                self._store.remove(uid)
                self._ports.step("spec removed")
                if entry is not None:
                    self._take_back(entry)
                self._bury(uid, entry)
                self._ports.step("released")
            return True

    def _take_back(self, entry: Entry) -> None:
        self._shares.leave(entry)
        try:
            self._partitions.take_back(entry)
        except DriverError:
            self._ports.left_behind(entry.uid)
            raise

    def forget(self, tomb: Entry) -> None:
        """Remove a tombstone, unless the claim came back meanwhile. Raises StorageError."""
        with self._locks.holding([claim_key(tomb.uid)], _LOCK_SECONDS):
            if self._journal.get(tomb.uid) == tomb:
                self._journal.forget(tomb.uid)

    def _bury(self, uid: str, entry: Entry | None) -> None:
        """Leave a tombstone, so that a prepare that is still on its way cannot bring the claim back."""
        tomb = Entry(
            uid,
            entry.namespace if entry else "",
            entry.name if entry else "",
            "released",
            self._identity.boot_id,
            boottime_ns(),
        )
        try:
            self._journal.put(tomb)
        except StorageError:
            # A full disk takes no tombstone, but it lets a file go; a late retry is the smaller evil.
            self._journal.forget(uid)

    def _prepare_once(self, ref: ClaimRef, call: Call) -> tuple[PreparedDevice, ...]:
        known = self._journal.get(ref.uid)
        if known is not None and self._is_finished(known):
            gpus = sorted({device.pci for device in known.devices}) if known.shares else []
            with self._locks.holding([claim_key(ref.uid), *map(gpu_key, gpus)], _LOCK_SECONDS):
                entry = self._journal.get(ref.uid)
                if entry is not None and self._is_intact(entry):
                    return self._answer(self._verify(entry).devices)
        claim = read_claim(self._ports.get_claim(ref.namespace, ref.name), ref.uid, self._identity.driver)
        planned = plan(claim, self._identity.pool)
        held = {device.pci for device in known.devices} if known is not None else set()
        gpus = sorted(self._shares.reach(held.union(str(pci) for pci in gpus_of(planned))))
        with self._locks.holding([claim_key(ref.uid), *map(gpu_key, gpus)], _LOCK_SECONDS):
            entry = self._journal.get(ref.uid)
            if entry is not None and self._is_intact(entry):
                return self._answer(self._verify(entry).devices)
            self._refuse_late(entry, call)
            entry = self._without_former_devices(entry, planned)
            self._shares.clear(gpus, ref.uid)
            places = self._partitions.located(planned, entry)
            for device, place in zip(planned, places, strict=True):
                refuse_if_held(device, place, ref.uid, self._journal.holders(str(device.pci)))
            return self._answer(self._carry_out(ref, planned, places, entry))

    def _without_former_devices(
        self, entry: Entry | None, planned: tuple[PlannedDevice, ...]
    ) -> Entry | None:
        """The claim's entry, once what was made for an earlier allocation of the claim is taken back."""
        wanted = {device.allocated.device for device in planned}
        if entry is None or not entry.holds or wanted.issuperset(held.device for held in entry.devices):
            return entry
        self._take_back(entry)
        return self._journal.get(entry.uid)

    def _carry_out(
        self,
        ref: ClaimRef,
        planned: tuple[PlannedDevice, ...],
        places: tuple[PartitionRecord | None, ...],
        before: Entry | None,
    ) -> tuple[HeldDevice, ...]:
        identities = self._specs.identities(gpus_of(planned))
        held = self._shares.held(ref.uid, planned, places, identities)
        for device in held:
            published = self._ports.published_uuid(device.device)
            if published is not None and published != device.uuid:
                raise changed_board(device.device, published, device.uuid)
        for wanted in planned:
            if wanted.takes_whole and identities[str(wanted.pci)].mig_enabled:
                self._partitions.ready_for_whole(wanted.pci)
        if not held:
            return held
        entry = Entry(
            ref.uid, ref.namespace, ref.name, "preparing", self._identity.boot_id, boottime_ns(), held
        )
        try:
            if any(wanted.made_on_request for wanted in planned):
                if entry.shares:
                    self._begin(entry)  # else the making of the first partition writes it down
                entry = self._partitions.make(entry)
                self._share(ref, entry)
                spec = self._specs.spec(entry.devices, identities)
            else:
                # All that can be refused is refused before the claim holds its devices.
                spec = self._specs.spec(held, identities)
                self._begin(entry)
                self._share(ref, entry)
            return self._commit(entry, spec).devices
        except DriverError:
            self._undo(ref.uid, before)
            raise

    def _begin(self, entry: Entry) -> None:
        self._journal.put(entry)
        self._ports.step("begun")

    def _share(self, ref: ClaimRef, entry: Entry) -> None:
        for note in self._shares.join(entry):
            self._ports.note(ref, note)

    def _commit(self, entry: Entry, spec: bytes) -> Entry:
        self._store.write(entry.uid, spec)
        self._ports.step("spec written")
        done = replace(
            entry,
            state="prepared",
            boot_id=self._identity.boot_id,
            changed_ns=boottime_ns(),
            spec_sha256=hashlib.sha256(spec).hexdigest(),
        )
        self._journal.put(done)
        self._ports.step("committed")
        return done

    def _undo(self, uid: str, before: Entry | None) -> None:
        """Give back what a failed prepare took; an entry of before stays, but for what was destroyed.

        A partition that cannot be destroyed now stays in the journal as ``releasing``.
        """
        taken = self._journal.get(uid)
        if before is None or not before.holds:
            self._store.remove(uid)
        if taken is not None and taken.holds:
            if before is not None and before.rebuilt:
                self._journal.put(before)  # its pods may run: their GPUs stay as they are
            try:
                self._take_back(taken)
            except DriverError as error:
                _log.warning("partition of a failed prepare stays", uid=uid, error=str(error))
                return
        if before is None:
            self._journal.forget(uid)
        else:
            self._journal.put(without_records(before))

    def _verify(self, entry: Entry) -> Entry:
        """Check a finished claim against the hardware; write its spec again if it was lost or is stale."""
        self._shares.join(entry)
        spec = self._specs.spec(entry.devices, self._specs.identities(gpus_held(entry.devices)))
        digest = hashlib.sha256(spec).hexdigest()
        if digest == entry.spec_sha256 and self._store.read(entry.uid) == spec:
            return entry
        return self._commit(entry, spec)

    def _is_finished(self, entry: Entry) -> bool:
        """Whether the claim was prepared in this boot; before, nothing is left of it but the record."""
        return entry.state == "prepared" and entry.boot_id == self._identity.boot_id and not entry.rebuilt

    def _is_intact(self, entry: Entry) -> bool:
        return self._is_finished(entry) and self._partitions.intact(entry)

    def _refuse_late(self, entry: Entry | None, call: Call) -> None:
        """Stop a call that began before the claim was unprepared: its pod is gone."""
        buried = entry is not None and not entry.holds and entry.boot_id == self._identity.boot_id
        if entry is not None and buried and call.started_ns < entry.changed_ns:
            raise ClaimRefused(
                f"claim {entry.uid} was unprepared while this call was waiting",
                "nothing has to be done: the kubelet asks again if it needs the claim",
            )
        if not call.is_active():
            raise ClaimRefused(
                "the kubelet gave this call up before anything was done", "nothing: the kubelet asks again"
            )

    def _answer(self, held: tuple[HeldDevice, ...]) -> tuple[PreparedDevice, ...]:
        return answer(held, {device.cdi_device: cdi_qualified_name(device.cdi_device) for device in held})
