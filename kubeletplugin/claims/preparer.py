"""Prepares and unprepares claims, in one order of steps for all kinds of devices.

Every step may be the last before a crash. What a step leaves behind is found by the next call for the claim,
which does the rest or undoes it, or by the reconciler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from driver.claims.allocation import Claim
from driver.errors import ClaimBlocked, ClaimRefused, DeviceHeld, DriverError, StorageError
from driver.process.log import get_logger
from kubeletplugin.claims.files import ClaimFiles, Spec, Specs
from kubeletplugin.claims.journal.entry import Entry, HeldDevice, standing
from kubeletplugin.claims.journal.identity import Era, Identity, boottime_ns
from kubeletplugin.claims.journal.journal import Journal
from kubeletplugin.claims.journal.locks import KeyedLocks, claim_key, gpu_key
from kubeletplugin.claims.journal.record_folder import RecordIndex
from kubeletplugin.claims.patience import LOCK_SECONDS, Patience, lock_seconds
from kubeletplugin.claims.plan import (
    Allocations,
    answer,
    gpus_of,
    has_allocated,
    has_former,
    located,
    own_devices,
    plan,
    with_board,
)
from kubeletplugin.claims.ports import Ports
from kubeletplugin.claims.release import Progress, TakingBack, without_made
from kubeletplugin.devices.fabric.claim_partitions import ClaimFabric
from kubeletplugin.devices.kinds.kind import HeldKinds, Look
from kubeletplugin.devices.kinds.unknown import refuse_unknown
from kubeletplugin.kubelet.wire.claim_call import Call, ClaimRef, PreparedDevice
from kubeletplugin.kubelet.wire.names import is_safe_uid
from kubeletplugin.kubelet.wire.planned import PlannedDevice
from kubeletplugin.sharing.claim_sharing import ClaimShares
from kubeletplugin.sharing.gpus import NotReady

_log = get_logger("preparer")

_UNPREPARE_SECONDS = 5.0


class Preparer:
    """The claims of one node. Any number of calls may run at once.

    ``leftovers`` finds the records of shares and of fabric partitions: GPUs without any were left as they
    are without them, so a claim of whole GPUs has nothing to do there.
    """

    def __init__(
        self,
        identity: Identity,
        journal: Journal,
        locks: KeyedLocks,
        kinds: HeldKinds,
        shares: ClaimShares,
        fabric: ClaimFabric,
        leftovers: RecordIndex,
        specs: Specs,
        files: ClaimFiles,
        ports: Ports,
        patience_seconds: float,
    ) -> None:
        self._identity = identity
        self._journal = journal
        self._locks = locks
        self._kinds = kinds
        self._shares = shares
        self._fabric = fabric
        self._leftovers = leftovers
        self._specs = specs
        self._files = files
        self._ports = ports
        self._allocations = Allocations(ports, identity.driver)
        self._taking_back = TakingBack(identity, journal, kinds, shares, fabric, files, ports)
        self._during = ports.timing.during
        self._patience = Patience(journal.wait_for_release)
        self._patience_seconds = patience_seconds

    def prepare(self, claim: ClaimRef, call: Call) -> tuple[PreparedDevice, ...]:
        """Prepare the claim's devices: afterwards its CDI spec is there, and stays.

        Waits up to the patience for what passes by itself, since the kubelet tries again only after 60 to 90
        s. Raises DriverError; then the claim holds nothing that it did not hold before.
        """
        if not is_safe_uid(claim.uid):
            raise ClaimRefused(
                f"the claim's UID {claim.uid[:64]!r} is no UID", "ask with the UID of the API object"
            )
        return self._patience.until_done(
            call,
            lambda: self._prepare_releasing_unneeded(claim, call),
            self._patience_seconds,
            lambda error: self._ports.complain(claim, error),
        )

    def unprepare(self, claim: ClaimRef, call: Call) -> DriverError | None:
        """Take the claim's devices back. A claim that was never prepared is fine.

        Needs neither the API nor, unless something has to be destroyed, NVML. Waits for a partition that a
        process still uses, but not as long as prepare does, since the kubelet tries again soon.

        If something cannot be taken back yet and the journal says so, unprepare still succeeds and returns
        the error: no container has the devices any more, so the pod need not wait, and the reconciler
        releases them later. Raises DriverError if the claim stays as it was.
        """
        if not is_safe_uid(claim.uid):
            return None

        def still(entry: Entry | None) -> bool:
            _refuse_late_unprepare(entry, call, self._identity.boot_id)
            return True

        seconds = min(self._patience_seconds, _UNPREPARE_SECONDS)
        try:
            self._patience.until_done(
                call, lambda: self.release(claim.uid, still, lambda: lock_seconds(call)), seconds
            )
        except LateCall:
            raise
        except DriverError as error:
            entry = self._journal.get(claim.uid)
            if entry is None or entry.state != "releasing":
                raise
            return error
        return None

    def release(
        self,
        uid: str,
        still: Callable[[Entry | None], bool],
        patience: Callable[[], float] = lambda: LOCK_SECONDS,
    ) -> bool:
        """Release a claim's devices if ``still(entry)`` is true once its locks are held; whether it was.

        ``patience()`` is how long to wait for a lock. Raises DriverError; the journal then says what the
        claim still has.
        """
        with self._locks.holding([claim_key(uid)], patience()):
            entry = self._journal.get(uid)
            places = entry.places if entry is not None and entry.holds else ()
            keys = [gpu_key(place) for place in places]
            with self._locks.holding(keys, patience()), self._ports.releasing(uid):
                if not still(entry):
                    return False
                if entry is not None and not entry.holds:
                    return True
                if entry is not None:
                    refuse_unknown(entry, self._kinds)
                self._taking_back.everything(uid, entry)
                self._leave_tombstone(uid, entry)
                self._ports.step("released")
            return True

    def adopt(self, entry: Entry) -> bool:
        """Take over what another driver prepared for a claim; False if the journal has the claim already.

        A spec of ours replaces that driver's. Its devices have the same names, since a container that starts
        again asks for these. If it cannot be made yet, that driver's spec stays until it can. Raises
        StorageError, ClaimBlocked.
        """
        keys = [claim_key(entry.uid), *map(gpu_key, entry.places)]
        with self._locks.holding(keys, LOCK_SECONDS):
            if self._journal.get(entry.uid) is not None:
                return False
            try:
                spec = self._specs.spec(entry, self._ports.look())
            except DriverError as error:
                _log.warning("CDI spec of a claim of another driver stays", uid=entry.uid, error=error.logged)
                self._journal.put(entry)
                return True
            self._journal.put(replace(entry, spec_sha256=spec.sha256))
            self._ports.step("taken over")
            self._files.write(entry, spec)
            return True

    def restore(self, entry: Entry) -> bool:
        """Write the files of a prepared claim again that were lost or damaged; whether there were any.

        A container that starts again needs them, and the kubelet does not prepare the claim again for that.
        Raises DriverError.
        """
        if not self._is_finished(entry, self._identity.era()) or self._files.are_as_written(entry):
            return False
        with self._unchanged(entry) as is_unchanged:
            if not is_unchanged or not self._is_intact(entry, self._identity.era()):
                return False
            if self._files.are_as_written(entry):
                return False  # a prepare that had committed its entry has written them meanwhile
            spec = self._specs.spec(entry, self._ports.look())
            if spec.sha256 == entry.spec_sha256:
                # The entry keeps its time, so that an unprepare that waits for this lock is not late.
                self._files.write(entry, spec)
            else:
                self._commit(entry, spec)
            return True

    def renew(self, entry: Entry) -> bool:
        """Write the CDI spec of a prepared claim again if it would differ now; whether it did.

        An update of the NVIDIA driver removes the files that the spec mounts. A container that starts again
        needs the new ones, and the kubelet does not prepare the claim again for that. Raises DriverError.
        """
        with self._unchanged(entry) as is_unchanged:
            if not is_unchanged or not self._is_as_made(entry):
                return False
            spec = self._files.renewed(entry, self._specs.spec(entry, self._ports.look()))
            if spec is None or spec.sha256 == entry.spec_sha256:
                return False
            self._commit(entry, spec)
            return True

    def forget(self, tomb: Entry) -> None:
        """Remove a tombstone, unless the claim came back meanwhile. Raises StorageError."""
        with self._unchanged(tomb) as is_unchanged:
            if is_unchanged:
                self._journal.forget(tomb.uid)

    @contextmanager
    def _unchanged(self, entry: Entry) -> Iterator[bool]:
        """Hold the claim's lock; gives whether the journal still has the entry that was read before.

        A loop over the journal's entries comes to an entry late. Its claim may have been released meanwhile,
        and would come back if the old entry were written.
        """
        with self._locks.holding([claim_key(entry.uid)], LOCK_SECONDS):
            yield self._journal.get(entry.uid) == entry

    def _leave_tombstone(self, uid: str, entry: Entry | None) -> None:
        """Leave a tombstone, so that a prepare that is still on its way cannot bring the claim back."""
        namespace, name = (entry.namespace, entry.name) if entry else ("", "")
        tomb = Entry(uid, namespace, name, "released", self._identity.boot_id, boottime_ns())
        try:
            self._journal.put(tomb)
        except StorageError:
            # A full disk takes no tombstone, but lets a file be removed; a late retry is the smaller evil.
            self._journal.forget(uid)

    def _prepare_releasing_unneeded(self, ref: ClaimRef, call: Call) -> tuple[PreparedDevice, ...]:
        """Prepare the claim; first release a claim in its way that nobody needs any more."""
        try:
            return self._prepare_once(ref, call)
        except DeviceHeld as held:
            if not any(self._ports.let_go(uid) for uid in held.holders):
                raise
        return self._prepare_once(ref, call)

    def _prepare_once(self, ref: ClaimRef, call: Call) -> tuple[PreparedDevice, ...]:
        era = self._identity.era()
        known, claim = self._journal.get(ref.uid), None
        if known is not None and self._is_finished(known, era):
            claim = self._allocations.changed(ref, known, call)
            gpus = known.places if known.shares else ()
            with self._locks.holding([claim_key(ref.uid), *map(gpu_key, gpus)], lock_seconds(call)):
                if claim is None and self._journal.get(ref.uid) == known and self._is_intact(known, era):
                    return answer(self._verify(known).devices)
        claim = claim or self._allocations.of(ref)
        planned = plan(claim, self._identity.pool, self._kinds)
        wanted = {*(known.places if known is not None else ()), *gpus_of(planned)}
        # Some were shared with others, or are in one partition with them: clearing needs the locks of all.
        seconds, gpus = lock_seconds(call), tuple(sorted(wanted | self._leftovers.places_beside(wanted)))
        with self._locks.holding([claim_key(ref.uid), *map(gpu_key, gpus)], seconds):
            era = self._identity.era()  # the wait for the locks may have been long
            entry, left_behind = self._journal.get(ref.uid), self._leftovers.places_beside(gpus)
            is_locked = entry is None or not entry.holds or set(gpus).issuperset(entry.places)
            # An entry written since the call came in may come from a newer read of the claim than ours.
            is_current = entry is not None and (
                _is_newer(entry, call, era.boot_id) or has_allocated(entry, claim)
            )
            can_verify = is_current and (is_locked or (entry is not None and not entry.shares))
            if entry is not None and can_verify and self._is_intact(entry, era):
                return answer(self._verify(entry).devices)
            if not is_locked:
                raise NotReady(f"claim {ref.uid} came to other devices meanwhile", "it is tried again")
            _refuse_late_prepare(entry, call, era.boot_id)
            if entry is not None:
                refuse_unknown(entry, self._kinds)
            entry = self._without_former_devices(entry, claim)
            if left_behind:
                self._shares.clear(gpus, ref.uid)
                self._fabric.clear(gpus)
            look = self._ports.look()
            with self._during("locate"):
                held = self._located(ref, planned, entry, era, look)
            if not held:
                return ()
            return answer(self._carry_out(ref, claim.pod_claim_name, held, entry, era, look))

    def _without_former_devices(self, entry: Entry | None, claim: Claim) -> Entry | None:
        """The claim's entry; None once the devices of an earlier allocation are taken back.

        Raises DeviceHeld while a container has one of those.
        """
        if entry is None or not entry.holds or not has_former(entry, claim):
            return entry
        if self._ports.is_used(entry):
            raise DeviceHeld(
                f"claim {entry.uid} was allocated other devices, and a container still has those of before",
                "they are taken back when that container has ended",
            )
        with self._ports.releasing(entry.uid):
            self._taking_back.everything(entry.uid, entry)
            self._journal.forget(entry.uid)
        return None

    def _located(
        self,
        ref: ClaimRef,
        planned: Sequence[PlannedDevice],
        before: Entry | None,
        era: Era,
        look: Look,
    ) -> tuple[HeldDevice, ...]:
        """The devices as the claim will hold them; everything that can be refused is refused here."""
        own = own_devices(before, era, self._kinds)
        held = []
        for device in planned:
            found = located(
                device, own.get(device.allocated.device), ref.uid, look, self._kinds, self._journal
            )
            held.append(with_board(found, self._ports.published_uuid(found.device)))
        if all(device.wish is None for device in planned):
            return tuple(held)
        return self._shares.shared(ref.uid, planned, held)

    def _carry_out(
        self,
        ref: ClaimRef,
        pod_claim_name: str,
        held: tuple[HeldDevice, ...],
        before: Entry | None,
        era: Era,
        look: Look,
    ) -> tuple[HeldDevice, ...]:
        partition = self._fabric.partition_of(ref, held, look)
        changes = any(self._kinds.of(device).changes(device) for device in held)
        entry = Entry(ref.uid, ref.namespace, ref.name, "preparing", era.boot_id, boottime_ns(), held)
        entry = replace(entry, driver_generation=era.driver_generation, pod_claim_name=pod_claim_name)
        shares = entry.shares
        progress = Progress(self._journal, entry, self._ports.step, is_written=False)
        try:
            if shares or partition is not None or changes:
                # From here on a crash may leave something on the hardware, so the journal has to know.
                progress.write("begun", "preparing")
            if partition is not None:
                self._fabric.join(progress.entry, partition)
            with self._during("hardware"):
                for index, device in enumerate(held):
                    note = progress.noting(index, "preparing")
                    progress.is_now(index, self._kinds.of(device).make(progress.entry, index, look, note))
            with self._during("sharing"):
                for text in self._shares.join(progress.entry) if shares else ():
                    self._ports.note(ref, text)
            spec = self._specs.spec(progress.entry, look)
            return self._commit(progress.entry, spec, is_new=True).devices
        except Exception:  # an unforeseen error leaves nothing behind, either
            self._undo(ref.uid, before)
            raise

    def _commit(self, entry: Entry, spec: Spec, *, is_new: bool = False) -> Entry:
        """Write the entry as prepared, then the files; the next call writes files that are missing."""
        changed_ns = (
            boottime_ns() if is_new else entry.changed_ns
        )  # a spec that is written again makes no call late
        done = replace(entry, state="prepared", changed_ns=changed_ns, spec_sha256=spec.sha256)
        self._journal.put(done)
        self._ports.step("committed")
        self._files.write(done, spec, is_new=is_new)
        self._ports.step("spec written")
        self._ports.prepared(done)
        return done

    def _undo(self, uid: str, before: Entry | None) -> None:
        """Give back what a failed prepare took; the entry from before stays, except for what was destroyed.

        What cannot be destroyed now stays in the journal as ``releasing``.
        """
        taken = self._journal.get(uid)
        if before is None or not before.holds:
            self._files.remove(uid, taken)
        if taken is not None and taken.holds:
            if before is not None and before.rebuilt:
                self._journal.put(before)  # its pods may run: their GPUs stay as they are
            try:
                self._taking_back.devices(taken)
            except DriverError as error:
                _log.warning("what a failed prepare made stays", uid=uid, error=error.logged)
                return
        if before is None:
            self._journal.forget(uid)
        else:
            self._journal.put(without_made(before, self._kinds))

    def _verify(self, entry: Entry) -> Entry:
        """Check a prepared claim against the hardware; write lost or outdated files again."""
        if entry.shares:
            self._shares.join(entry)
        spec = self._specs.spec(entry, self._ports.look())
        if self._files.are_there(entry, spec):
            return entry
        return self._commit(entry, spec)

    def _is_finished(self, entry: Entry, era: Era) -> bool:
        """Whether the claim is prepared in this era, and its entry has everything that is needed."""
        return self._kinds.standing(entry, era).is_prepared

    def _is_intact(self, entry: Entry, era: Era) -> bool:
        return self._is_finished(entry, era) and self._kinds.all_intact(entry)

    def _is_as_made(self, entry: Entry) -> bool:
        """Whether its devices are as they were made, perhaps by an earlier load of the NVIDIA driver."""
        now = self._kinds.standing(entry, self._identity.era())
        if now.is_prepared:
            return self._kinds.all_intact(entry)
        return now.state == "prepared" and now.ended != "boot" and self._kinds.outlive_driver(entry)


class LateCall(ClaimBlocked):
    """A call that came too late to be carried out; the kubelet asks again for what it needs.

    A call may wait for locks, or for what passes by itself, longer than the kubelet waits for the call. By
    then another pod may have the claim, or the claim was released. The error is retryable, since the next
    call is not late.
    """


def _refuse_late_prepare(entry: Entry | None, call: Call, boot_id: str) -> None:
    """Raise LateCall if the claim was unprepared after the call began, or the kubelet gave the call up.

    ``entry`` is the claim's newest, read under its locks; ``boot_id`` is that of the running boot.
    """
    if entry is not None and not entry.holds and _is_newer(entry, call, boot_id):
        raise LateCall(
            f"claim {entry.uid} was unprepared while this call was waiting",
            "nothing has to be done: the kubelet asks again if it needs the claim",
        )
    _refuse_given_up(call)


def _refuse_late_unprepare(entry: Entry | None, call: Call, boot_id: str) -> None:
    """Raise LateCall if the claim was prepared after the call began, perhaps for another pod, or the kubelet
    gave the call up. Arguments as above.

    A rebuilt entry counts as older than the call, whenever it was written.
    """
    now = standing(entry, Era(boot_id))
    if entry is not None and now.has_devices and not now.rebuilt and _is_newer(entry, call, boot_id):
        raise LateCall(
            f"claim {entry.uid} was prepared while this call to unprepare it was waiting",
            "nothing has to be done: the kubelet asks again if nobody needs the claim",
        )
    _refuse_given_up(call)


def _is_newer(entry: Entry, call: Call, boot_id: str) -> bool:
    """Whether the entry was written after the call came in; the clock is that of one boot."""
    return entry.boot_id == boot_id and call.started_ns < entry.changed_ns


def _refuse_given_up(call: Call) -> None:
    if not call.is_active():
        raise LateCall(
            "the kubelet gave this call up before anything was done", "nothing: the kubelet asks again"
        )
