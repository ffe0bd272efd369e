"""Prepares and unprepares claims, in one order of steps for all kinds of devices.

Every step may be the last before a crash. What a step leaves behind is either found again by the
next call for the claim, which does the rest or undoes it, or by the reconciler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from driver.claims.allocation import Claim
from driver.errors import ClaimRefused, DeviceHeld, DriverError, StorageError
from driver.process.log import get_logger
from kubeletplugin.claims.allocations import Allocations, has_allocated, has_former
from kubeletplugin.claims.files import ClaimFiles
from kubeletplugin.claims.journal.entry import Entry, HeldDevice
from kubeletplugin.claims.journal.identity import Era, Identity, boottime_ns
from kubeletplugin.claims.journal.journal import Journal
from kubeletplugin.claims.journal.locks import KeyedLocks, claim_key, gpu_key
from kubeletplugin.claims.late import LateCall, is_newer, refuse_late_prepare, refuse_late_unprepare
from kubeletplugin.claims.locating import located, own_devices, with_board
from kubeletplugin.claims.patience import LOCK_SECONDS, Patience, lock_seconds
from kubeletplugin.claims.plan import answer, gpus_of, plan
from kubeletplugin.claims.ports import Ports
from kubeletplugin.claims.progress import Progress
from kubeletplugin.claims.release import TakingBack, without_made
from kubeletplugin.claims.specs import Spec, Specs
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
    """The claims of one node. Any number of calls may run at once."""

    def __init__(
        self,
        identity: Identity,
        journal: Journal,
        locks: KeyedLocks,
        kinds: HeldKinds,
        shares: ClaimShares,
        fabric: ClaimFabric,
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
        self._specs = specs
        self._files = files
        self._ports = ports
        self._allocations = Allocations(ports, identity.driver)
        self._taking_back = TakingBack(identity, journal, kinds, shares, fabric, files, ports)
        self._during = ports.timing.during
        self._patience = Patience(journal.wait_for_release)
        self._patience_seconds = patience_seconds

    def prepare(self, claim: ClaimRef, call: Call) -> tuple[PreparedDevice, ...]:
        """Hand the claim's devices out: afterwards its CDI spec is there, and stays.

        What passes by itself is waited for up to the patience, since the kubelet comes back only after
        60 to 90 s. Raises DriverError; then the claim holds nothing that it did not hold before.
        """
        if not is_safe_uid(claim.uid):
            raise ClaimRefused(
                f"the claim's UID {claim.uid[:64]!r} is no UID", "ask with the UID of the API object"
            )
        return self._patience.until_done(
            call,
            lambda: self._prepare_after_the_gone(claim, call),
            self._patience_seconds,
            lambda error: self._ports.complain(claim, error),
        )

    def unprepare(self, claim: ClaimRef, call: Call) -> DriverError | None:
        """Take the claim's devices back. A claim that was never prepared is fine.

        Needs neither the API nor, unless something has to be destroyed, NVML. A partition that a process
        still uses is waited for, not as long as in prepare, since the kubelet comes back soon.

        What cannot be taken back yet is no failure once the journal says so: no container has the devices any
        more, they stay taken until the reconciler has let them go, and the pod need not wait for that. The
        answer then is what stands in the way. Raises DriverError for whatever else keeps the claim as it was.
        """
        if not is_safe_uid(claim.uid):
            return None

        def still(entry: Entry | None) -> bool:
            refuse_late_unprepare(entry, call, self._identity.boot_id)
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
        """Let go of a claim's devices if ``still`` holds of its entry once its locks are held.

        ``patience()`` is how long a lock may be waited for. Raises DriverError; the journal then says
        what the claim still has.
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
                self._bury(uid, entry)
                self._ports.step("released")
            return True

    def adopt(self, entry: Entry) -> bool:
        """Hold what another driver has prepared for a claim; False where the journal knows the claim already.

        A spec of ours takes the place of that driver's and has devices of the same names, since a container
        that starts again asks for these. Where it cannot be made yet, that driver's stays until it can.
        Raises StorageError, ClaimBlocked.
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

        A container that starts again needs it, and for that the kubelet does not ask again. Raises
        DriverError.
        """
        if not self._is_finished(entry, self._identity.era()) or self._files.are_as_written(entry):
            return False
        with self._unchanged(entry) as is_so:
            if not is_so or not self._is_intact(entry, self._identity.era()):
                return False
            if self._files.are_as_written(entry):
                return False  # a prepare that had noted its end has written them meanwhile
            spec = self._specs.spec(entry, self._ports.look())
            if spec.sha256 == entry.spec_sha256:
                # The entry stays as old as it is: an unprepare that waits for this is not late by it.
                self._files.write(entry, spec)
            else:
                self._commit(entry, spec)
            return True

    def renew(self, entry: Entry) -> bool:
        """Write the CDI spec of a prepared claim anew if it would differ now; whether that was so.

        What a spec mounts is gone once the driver's files are others, and for a container that starts again
        the kubelet does not ask again. Raises DriverError.
        """
        with self._unchanged(entry) as is_so:
            if not is_so or not self._is_as_made(entry):
                return False
            spec = self._files.renewed(entry, self._specs.spec(entry, self._ports.look()))
            if spec is None or spec.sha256 == entry.spec_sha256:
                return False
            self._commit(entry, spec)
            return True

    def forget(self, tomb: Entry) -> None:
        """Remove a tombstone, unless the claim came back meanwhile. Raises StorageError."""
        with self._unchanged(tomb) as is_so:
            if is_so:
                self._journal.forget(tomb.uid)

    @contextmanager
    def _unchanged(self, entry: Entry) -> Iterator[bool]:
        """Hold the claim's lock; whether the journal still has the entry that was read before.

        Whoever goes through the journal's entries comes to one late: until then its claim may have been
        released, and a claim that is acted on then would come back.
        """
        with self._locks.holding([claim_key(entry.uid)], LOCK_SECONDS):
            yield self._journal.get(entry.uid) == entry

    def _bury(self, uid: str, entry: Entry | None) -> None:
        """Leave a tombstone, so that a prepare that is still on its way cannot bring the claim back."""
        namespace, name = (entry.namespace, entry.name) if entry else ("", "")
        tomb = Entry(uid, namespace, name, "released", self._identity.boot_id, boottime_ns())
        try:
            self._journal.put(tomb)
        except StorageError:
            # A full disk takes no tombstone, but it lets a file go; a late retry is the smaller evil.
            self._journal.forget(uid)

    def _prepare_after_the_gone(self, ref: ClaimRef, call: Call) -> tuple[PreparedDevice, ...]:
        """Prepare the claim; where one is in the way that nobody needs any more, without that one."""
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
        before = known.places if known is not None else ()
        gpus = tuple(sorted(self._fabric.reach(self._shares.reach({*before, *gpus_of(planned)}))))
        with self._locks.holding([claim_key(ref.uid), *map(gpu_key, gpus)], lock_seconds(call)):
            era = self._identity.era()  # the wait for the locks may have been long
            entry = self._journal.get(ref.uid)
            is_locked = entry is None or not entry.holds or set(gpus).issuperset(entry.places)
            # What was written since the call came in may be from a later look at the claim than this one.
            is_so = entry is not None and (is_newer(entry, call, era.boot_id) or has_allocated(entry, claim))
            can_verify = is_so and (is_locked or (entry is not None and not entry.shares))
            if entry is not None and can_verify and self._is_intact(entry, era):
                return answer(self._verify(entry).devices)
            if not is_locked:
                raise NotReady(f"claim {ref.uid} came to other devices meanwhile", "it is tried again")
            refuse_late_prepare(entry, call, era.boot_id)
            if entry is not None:
                refuse_unknown(entry, self._kinds)
            entry = self._without_former_devices(entry, claim)
            self._shares.clear(gpus, ref.uid)
            self._fabric.clear(gpus)
            look = self._ports.look()
            with self._during("locate"):
                held = self._located(ref, planned, entry, era, look)
            if not held:
                return ()
            return answer(self._carry_out(ref, claim.pod_claim_name, held, entry, era, look))

    def _without_former_devices(self, entry: Entry | None, claim: Claim) -> Entry | None:
        """The claim's entry; none once what the claim had of an earlier allocation is taken back.

        Raises DeviceHeld while a container has that.
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
        """What the claim is about to hold; everything that can be refused is refused here."""
        own = own_devices(before, era, self._kinds)
        held = []
        for device in planned:
            found = located(
                device, own.get(device.allocated.device), ref.uid, look, self._kinds, self._journal
            )
            held.append(with_board(found, self._ports.published_uuid(found.device)))
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
        entry = Entry(ref.uid, ref.namespace, ref.name, "preparing", era.boot_id, boottime_ns(), held)
        entry = replace(entry, driver_generation=era.driver_generation, pod_claim_name=pod_claim_name)
        progress = Progress(self._journal, entry, self._ports.step, is_written=False)
        try:
            changes = any(self._kinds.of(device).changes(device) for device in held)
            if entry.shares or partition is not None or changes:
                # From here on something may be left on the hardware; before, nothing has to be known.
                progress.write("begun", "preparing")
            self._fabric.join(progress.entry, partition)
            with self._during("hardware"):
                for index, device in enumerate(held):
                    note = progress.noting(index, "preparing")
                    progress.is_now(index, self._kinds.of(device).make(progress.entry, index, look, note))
            with self._during("sharing"):
                for text in self._shares.join(progress.entry):
                    self._ports.note(ref, text)
            spec = self._specs.spec(progress.entry, look)
            return self._commit(progress.entry, spec, is_new=True).devices
        except Exception:  # what nobody foresaw leaves nothing behind, either
            self._undo(ref.uid, before)
            raise

    def _commit(self, entry: Entry, spec: Spec, *, is_new: bool = False) -> Entry:
        """Note the end, then write the files: what is not there (any more) the next call writes."""
        changed_ns = boottime_ns() if is_new else entry.changed_ns  # a spec written anew makes no call late
        done = replace(entry, state="prepared", changed_ns=changed_ns, spec_sha256=spec.sha256)
        self._journal.put(done)
        self._ports.step("committed")
        self._files.write(done, spec, is_new=is_new)
        self._ports.step("spec written")
        self._ports.prepared(done)
        return done

    def _undo(self, uid: str, before: Entry | None) -> None:
        """Give back what a failed prepare took; an entry of before stays, but for what was destroyed.

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
        """Check a finished claim against the hardware; write files again that were lost or are stale."""
        self._shares.join(entry)
        spec = self._specs.spec(entry, self._ports.look())
        if self._files.are_there(entry, spec):
            return entry
        return self._commit(entry, spec)

    def _is_finished(self, entry: Entry, era: Era) -> bool:
        """Whether the claim is prepared in this era, and nothing has to be known that is lost."""
        return self._kinds.standing(entry, era).is_prepared

    def _is_intact(self, entry: Entry, era: Era) -> bool:
        return self._is_finished(entry, era) and self._kinds.all_intact(entry)

    def _is_as_made(self, entry: Entry) -> bool:
        """Whether its devices are as they were made: also where another load of the driver made no change."""
        now = self._kinds.standing(entry, self._identity.era())
        if now.is_prepared:
            return self._kinds.all_intact(entry)
        return now.state == "prepared" and now.ended != "boot" and self._kinds.outlive_driver(entry)
