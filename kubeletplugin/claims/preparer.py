"""Prepares and unprepares claims, in one order of steps for all kinds of devices.

A crash may follow any step. The next call for the claim, or the reconciler, finds in the journal how far the
work came, and finishes or undoes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from driver.claims.allocation import Claim
from driver.errors import ClaimBlocked, ClaimRefused, DeviceHeld, DriverError, StorageError
from driver.process.log import get_logger
from kubeletplugin.claims.files import ClaimFiles, Spec, Specs
from kubeletplugin.claims.journal.entry import Entry, HeldDevice, Identity, boottime_ns
from kubeletplugin.claims.journal.journal import Journal, Progress
from kubeletplugin.claims.journal.locks import KeyedLocks, claim_key, gpu_key
from kubeletplugin.claims.journal.record_folder import RecordIndex
from kubeletplugin.claims.patience import LOCK_SECONDS, Patience, lock_seconds
from kubeletplugin.claims.plan import (
    Allocations,
    answer,
    gpus_of,
    has_allocated,
    has_former,
    locate,
    own_devices,
    plan,
    with_board,
)
from kubeletplugin.claims.ports import Ports
from kubeletplugin.claims.release import Release
from kubeletplugin.devices.fabric.claim_partitions import ClaimFabric
from kubeletplugin.devices.kinds.kind import HardwareNow, NodeKinds
from kubeletplugin.devices.kinds.unknown import refuse_unknown
from kubeletplugin.kubelet.wire.claim_call import Call, ClaimRef, PreparedDevice
from kubeletplugin.kubelet.wire.names import is_safe_uid
from kubeletplugin.kubelet.wire.planned import PlannedDevice
from kubeletplugin.sharing.claim_sharing import ClaimShares
from kubeletplugin.sharing.gpus import NotReady

_log = get_logger("preparer")

# Less than prepare waits: after a failed unprepare the kubelet tries again within 10 to 15 s.
_UNPREPARE_SECONDS = 5.0


class Preparer:
    """Prepares and unprepares the claims of one node. Any number of calls may run at once.

    ``leftovers`` finds the records of shares and of fabric partitions. A GPU without such a record has
    nothing that must be cleared before a claim gets it.
    """

    def __init__(
        self,
        identity: Identity,
        journal: Journal,
        locks: KeyedLocks,
        kinds: NodeKinds,
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
        self._release = Release(journal, kinds, shares, fabric, files, ports)
        self._during = ports.listeners.timing.during
        self._patience = Patience(journal.wait_for_release)
        self._patience_seconds = patience_seconds

    def prepare(self, claim: ClaimRef, call: Call) -> tuple[PreparedDevice, ...]:
        """Prepare the claim's devices. When this returns, the claim's CDI spec is written.

        Raises DriverError; the claim then holds nothing that it did not hold before.
        """
        if not is_safe_uid(claim.uid):
            raise ClaimRefused(
                f"the claim's UID {claim.uid[:64]!r} is not a valid UID", "use the UID of the API object"
            )
        # Errors that pass by themselves are waited for here: after a failed prepare the kubelet tries again
        # only when it syncs the pod the next time, 60 to 90 s later.
        return self._patience.until_done(
            call,
            lambda: self._prepare_releasing_unneeded(claim, call),
            self._patience_seconds,
            lambda error: self._ports.cluster.complain(claim, error),
        )

    def unprepare(self, claim: ClaimRef, call: Call) -> DriverError | None:
        """Take the claim's devices back. It is no error if the claim was never prepared.

        Needs neither the API server nor, unless something has to be destroyed, NVML. Waits some seconds for a
        partition that a process still uses.

        If something cannot be taken back yet and the journal says so, unprepare still succeeds and returns
        the error: no container has the devices any more, so the pod need not wait, and the reconciler
        releases them later. Raises DriverError if the claim stays as it was.
        """

        # The UID becomes part of file names, so nothing was ever prepared under such a one.
        if not is_safe_uid(claim.uid):
            return None

        def is_due(entry: Entry | None) -> bool:
            _refuse_late_unprepare(entry, call)
            return True

        seconds = min(self._patience_seconds, _UNPREPARE_SECONDS)
        try:
            self._patience.until_done(
                call, lambda: self.release(claim.uid, is_due, lambda: lock_seconds(call)), seconds
            )
        except LateCall:
            raise
        except DriverError as error:
            entry = self._journal.get(claim.uid)
            if entry is None or entry.state != "releasing":
                raise
            # An error here would keep the pod in Terminating until the kubelet's retries succeed.
            return error
        return None

    def release(
        self,
        uid: str,
        is_due: Callable[[Entry | None], bool],
        lock_seconds: Callable[[], float] = lambda: LOCK_SECONDS,
    ) -> bool:
        """Release a claim's devices if ``is_due(entry)`` is true once its locks are held; returns that.

        ``lock_seconds()`` is how long to wait for a lock. Raises DriverError; the journal then says what the
        claim still has.
        """
        with self._locks.holding([claim_key(uid)], lock_seconds()):
            # Only the entry says which GPUs to lock, and it changes only under the claim's lock.
            entry = self._journal.get(uid)
            places = entry.places if entry is not None and entry.holds else ()
            keys = [gpu_key(place) for place in places]
            with self._locks.holding(keys, lock_seconds()), self._ports.watch.releasing(uid):
                # Asked only now, since the wait for the locks may have been long.
                if not is_due(entry):
                    return False
                if entry is not None and not entry.holds:
                    return True
                if entry is not None:
                    refuse_unknown(entry)
                self._release.claim(uid, entry)
                self._leave_tombstone(uid, entry)
                self._ports.listeners.step("released")
            return True

    def adopt(self, entry: Entry) -> bool:
        """Take over what another driver prepared for a claim; False if the journal has the claim already.

        Our spec replaces that driver's spec. If ours cannot be made yet, that driver's spec stays until it
        can. Raises StorageError, ClaimBlocked.
        """
        keys = [claim_key(entry.uid), *map(gpu_key, entry.places)]
        with self._locks.holding(keys, LOCK_SECONDS):
            if self._journal.get(entry.uid) is not None:
                return False
            try:
                # It has the device names of that driver's spec: the kubelet has told the runtime those, and a
                # container that starts again asks for them.
                spec = self._specs.spec(entry, self._kinds.hardware_now())
            except DriverError as error:
                _log.warning(
                    "cannot replace the CDI spec of a claim that another driver prepared",
                    uid=entry.uid,
                    error=error.logged,
                )
                self._journal.put(entry)
                return True
            self._journal.put(replace(entry, spec_sha256=spec.sha256))
            self._ports.listeners.step("taken over")
            self._files.write(entry, spec)
            return True

    def restore(self, entry: Entry) -> bool:
        """Write the lost or damaged files of a prepared claim again. Returns whether there were any.

        A container that starts again needs them, and the kubelet does not prepare the claim again for that.
        Raises DriverError.
        """
        if not self._is_finished(entry) or self._files.are_as_written(entry):
            return False
        with self._unchanged(entry) as is_unchanged:
            if not is_unchanged or not self._is_intact(entry):
                return False
            # Prepare writes the entry before the files, so the files may have come while this waited.
            if self._files.are_as_written(entry):
                return False
            spec = self._specs.spec(entry, self._kinds.hardware_now())
            if spec.sha256 == entry.spec_sha256:
                # The entry is not written again: an unprepare that waits for this lock would be refused as
                # late if the entry were younger than its call.
                self._files.write(entry, spec)
            else:
                self._commit(entry, spec)
            return True

    def renew(self, entry: Entry) -> bool:
        """Write the CDI spec of a prepared claim again if it would differ now. Returns whether it did.

        An update of the NVIDIA driver removes the files that the spec mounts. A container that starts again
        needs the new ones, and the kubelet does not prepare the claim again for that. Raises DriverError.
        """
        with self._unchanged(entry) as is_unchanged:
            if not is_unchanged or not self._is_as_made(entry):
                return False
            spec = self._specs.spec(entry, self._kinds.hardware_now())
            if spec.sha256 == entry.spec_sha256:
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
        """Hold the claim's lock, and yield whether the journal still has this entry.

        A loop over the journal's entries may come to an entry late. Its claim may have been released by then,
        and would come back if the old entry were written.
        """
        with self._locks.holding([claim_key(entry.uid)], LOCK_SECONDS):
            yield self._journal.get(entry.uid) == entry

    def _leave_tombstone(self, uid: str, entry: Entry | None) -> None:
        """Replace the entry by a tombstone, so that a late prepare cannot bring the claim back."""
        namespace, name = (entry.namespace, entry.name) if entry else ("", "")
        tomb = Entry(uid, namespace, name, "released", boottime_ns())
        try:
            self._journal.put(tomb)
        except StorageError:
            # A full disk refuses new files, but a file can be removed. Without the tombstone a late prepare
            # would be carried out; that is better than devices that stay held.
            self._journal.forget(uid)

    def _prepare_releasing_unneeded(self, ref: ClaimRef, call: Call) -> tuple[PreparedDevice, ...]:
        """Prepare the claim.

        If a claim that nobody needs any more has its devices, release that one first.
        """
        try:
            return self._prepare_once(ref, call)
        except DeviceHeld as held:
            if not any(self._ports.release_unneeded(uid) for uid in held.holders):
                raise
        return self._prepare_once(ref, call)

    def _prepare_once(self, ref: ClaimRef, call: Call) -> tuple[PreparedDevice, ...]:
        known, claim = self._journal.get(ref.uid), None
        # The usual retry: the claim is prepared, and is answered from the journal under as few locks as
        # possible. Only shares depend on what other claims have on the GPU, so only they need the GPUs'
        # locks.
        if known is not None and self._is_finished(known):
            claim = self._allocations.changed(ref, known, call)
            shared = known.places if known.shares else ()
            with self._locks.holding([claim_key(ref.uid), *map(gpu_key, shared)], lock_seconds(call)):
                if claim is None and self._journal.get(ref.uid) == known and self._is_intact(known):
                    return self._answer(self._verify(known).devices)
        claim = claim or self._allocations.read(ref)
        planned = plan(claim, self._identity.pool)
        wanted = {*(known.places if known is not None else ()), *gpus_of(planned)}
        # A leftover share or fabric partition may span other GPUs too, and clearing it needs the locks of
        # all.
        seconds, gpus = lock_seconds(call), wanted | self._leftovers.places_beside(wanted)
        with self._locks.holding([claim_key(ref.uid), *map(gpu_key, gpus)], seconds):
            # Everything is read again, since the wait for the locks may have been long.
            generation = self._journal.generation()
            entry, left_behind = self._journal.get(ref.uid), self._leftovers.places_beside(gpus)
            is_locked = entry is None or not entry.holds or gpus.issuperset(entry.places)
            # An entry written since the call came in may come from a newer read of the claim than ours.
            is_current = entry is not None and (_is_newer(entry, call) or has_allocated(entry, claim))
            can_verify = is_current and (is_locked or (entry is not None and not entry.shares))
            if entry is not None and can_verify and self._is_intact(entry):
                return self._answer(self._verify(entry).devices)
            if not is_locked:
                # Taking the missing locks now could deadlock: locks are taken in one order.
                raise NotReady(
                    f"claim {ref.uid} was given other devices during this call", "it is tried again"
                )
            _refuse_late_prepare(entry, call)
            if entry is not None:
                refuse_unknown(entry)
            entry = self._without_former_devices(entry, claim)
            if left_behind:
                self._shares.clear(gpus, ref.uid)
                self._fabric.clear(gpus)
            hardware = self._kinds.hardware_now()
            with self._during("locate"):
                held = self._locate_all(ref, planned, entry, hardware)
            if not held:
                return ()
            return self._answer(self._carry_out(ref, claim.pod_claim_name, held, entry, generation, hardware))

    def _answer(self, devices: tuple[HeldDevice, ...]) -> tuple[PreparedDevice, ...]:
        return answer(devices, self._identity.driver)

    def _without_former_devices(self, entry: Entry | None, claim: Claim) -> Entry | None:
        """Take back the devices of an earlier allocation, and return the entry that remains, None for none.

        Raises DeviceHeld while a container has one of those devices.
        """
        if entry is None or not entry.holds or not has_former(entry, claim):
            return entry
        if self._ports.cluster.uses(entry):
            raise DeviceHeld(
                f"claim {entry.uid} was allocated other devices, but a container still has the former ones",
                "they are released when that container has ended",
            )
        with self._ports.watch.releasing(entry.uid):
            self._release.claim(entry.uid, entry)
            self._journal.forget(entry.uid)
        return None

    def _locate_all(
        self,
        ref: ClaimRef,
        planned: Sequence[PlannedDevice],
        before: Entry | None,
        hardware: HardwareNow,
    ) -> tuple[HeldDevice, ...]:
        """Find the devices as the claim will hold them, before anything is changed.

        Everything that can be refused is refused here.
        """
        own = own_devices(before, self._journal)
        held = []
        for device in planned:
            before_device, kind = own.get(device.allocated.device), self._kinds.of_name(device.name)
            found = locate(device, before_device, ref.uid, hardware, kind, self._journal)
            held.append(with_board(found, self._ports.cluster.published.uuid_of(found.device)))
        if all(device.sharing is None for device in planned):
            return tuple(held)
        return self._shares.with_shares(ref.uid, planned, held)

    def _carry_out(
        self,
        ref: ClaimRef,
        pod_claim_name: str,
        held: tuple[HeldDevice, ...],
        before: Entry | None,
        generation: str,
        hardware: HardwareNow,
    ) -> tuple[HeldDevice, ...]:
        partition = self._fabric.partition_of(ref, held, hardware)
        changes = any(self._kinds.of(device).changes(device) for device in held)
        entry = Entry(ref.uid, ref.namespace, ref.name, "preparing", boottime_ns(), held)
        entry = replace(entry, driver_generation=generation, pod_claim_name=pod_claim_name)
        shares = entry.shares
        progress = Progress(self._journal, entry, self._ports.listeners.step, is_written=False)
        try:
            if shares or partition is not None or changes:
                # From here on a crash may leave something on the hardware, so the journal has to know. Whole
                # GPUs without a fabric partition are not changed, and save this write.
                progress.write("begun", "preparing")
            # Before anything else is done with the GPUs, above all before they are bound to vfio.
            if partition is not None:
                self._fabric.join(progress.entry, partition)
            with self._during("hardware"):
                for index, device in enumerate(held):
                    note = progress.note_for(index, "preparing")
                    progress.update(index, self._kinds.of(device).make(progress.entry, index, hardware, note))
            with self._during("sharing"):
                for text in self._shares.join(progress.entry) if shares else ():
                    self._ports.cluster.note(ref, text)
            with self._during("spec"):
                spec = self._specs.spec(progress.entry, hardware)
            return self._commit(progress.entry, spec, is_new=True).devices
        except Exception:  # not only DriverError: an unforeseen error must leave nothing behind, either
            self._undo(ref.uid, before)
            raise

    def _commit(self, entry: Entry, spec: Spec, *, is_new: bool = False) -> Entry:
        """Write the entry as prepared, then the files."""
        # Entry first: after a crash between the two, the next call finds the entry and writes the missing
        # files. A spec without an entry would be a lost claim. A spec that is
        # written again does not make the entry younger, so no waiting unprepare becomes late.
        changed_ns = boottime_ns() if is_new else entry.changed_ns
        done = replace(entry, state="prepared", changed_ns=changed_ns, spec_sha256=spec.sha256)
        self._journal.put(done)
        self._ports.listeners.step("committed")
        self._files.write(done, spec, is_new=is_new)
        self._ports.listeners.step("spec written")
        self._ports.listeners.prepared(done)
        return done

    def _undo(self, uid: str, before: Entry | None) -> None:
        """Take back what a failed prepare made.

        The entry from before stays, without the records of what was destroyed. If something cannot be
        destroyed now, the claim stays in the journal as ``releasing``.
        """
        taken = self._journal.get(uid)
        if before is None or not before.holds:
            self._files.remove(uid, taken)
        if taken is not None and taken.holds:
            if before is not None and before.state == "lost":
                # Its pods may be running. With this entry back in the journal, leaving the shares keeps their
                # GPUs as they are.
                self._journal.put(before)
            try:
                self._release.devices(taken)
            except DriverError as error:
                _log.warning("cannot undo a failed prepare", uid=uid, error=error.logged)
                return
        if before is None:
            self._journal.forget(uid)
        else:
            self._journal.put(self._release.without_made(before))

    def _verify(self, entry: Entry) -> Entry:
        """Check a prepared claim against the hardware, and write lost or outdated files again."""
        if entry.shares:
            self._shares.join(entry)
        with self._during("spec"):
            spec = self._specs.spec(entry, self._kinds.hardware_now())
            are_there = self._files.are_there(entry, spec)
        return entry if are_there else self._commit(entry, spec)

    def _is_finished(self, entry: Entry) -> bool:
        """Whether the claim is prepared with this load of the driver, and its entry is complete."""
        return self._journal.standing(entry).is_prepared

    def _is_intact(self, entry: Entry) -> bool:
        return self._is_finished(entry) and self._kinds.all_intact(entry)

    def _is_as_made(self, entry: Entry) -> bool:
        """Whether its devices are as they were made, even if the NVIDIA driver was loaded again since."""
        now = self._journal.standing(entry)
        if now.is_prepared:
            return self._kinds.all_intact(entry)
        return now.state == "prepared" and self._kinds.outlive_driver(entry)


class LateCall(ClaimBlocked):
    """A call came too late to be carried out.

    A call may wait for locks, or for errors that pass, longer than the kubelet waits for the call. By then
    another pod may have the claim, or the claim was released. The error is retryable: the kubelet calls again
    for what it still needs, and that call is not late.
    """


def _refuse_late_prepare(entry: Entry | None, call: Call) -> None:
    """Raise LateCall if the claim was unprepared after the call came in, or the kubelet gave the call up.

    ``entry`` is the claim's newest entry, read under its locks.
    """
    if entry is not None and not entry.holds and _is_newer(entry, call):
        raise LateCall(
            f"claim {entry.uid} was unprepared while this call waited",
            "nothing to do: the kubelet asks again if it needs the claim",
        )
    _refuse_given_up(call)


def _refuse_late_unprepare(entry: Entry | None, call: Call) -> None:
    """Raise LateCall if the claim was prepared after the call came in, or the kubelet gave the call up.

    It may then have been prepared for another pod. Arguments as above.
    """
    has_devices = entry is not None and entry.state in ("preparing", "prepared")
    if entry is not None and has_devices and _is_newer(entry, call):
        raise LateCall(
            f"claim {entry.uid} was prepared while this call to unprepare it waited",
            "nothing to do: the kubelet asks again if no pod needs the claim",
        )
    _refuse_given_up(call)


def _is_newer(entry: Entry, call: Call) -> bool:
    """Whether the entry was written after the call came in."""
    return call.started_ns < entry.changed_ns


def _refuse_given_up(call: Call) -> None:
    if not call.is_active():
        raise LateCall(
            "the kubelet cancelled this call before anything was done",
            "nothing to do: the kubelet asks again",
        )
