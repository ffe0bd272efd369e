"""Compares the journal with the CDI folder, the API server and the kubelet, and releases abandoned claims.

The kubelet may never unprepare a claim that was deleted while the plugin was away. Such a claim is released
when the API server says that it is gone *and* the kubelet says that no container has it. If one of the two
does not answer, the claim is kept. A claim that is gone while a container still has its devices is reported,
since the scheduler considers the devices free.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from driver.claims.allocation import read_claim
from driver.errors import ClaimRefused, DriverError, NodeIncomplete
from driver.process.log import get_logger
from kubeletplugin.claims.cdi.spec import MemoryHook
from kubeletplugin.claims.files import ClaimFiles, Specs
from kubeletplugin.claims.journal.entry import Entry, Identity, boottime_ns
from kubeletplugin.claims.journal.journal import Journal
from kubeletplugin.claims.patience import LOCK_SECONDS
from kubeletplugin.claims.plan import has_allocated
from kubeletplugin.claims.ports import Cluster
from kubeletplugin.claims.preparer import Preparer
from kubeletplugin.devices.host.driver_files import DriverFiles
from kubeletplugin.reports.node_watch import NodeWatch

# Far longer than any call of the kubelet waits: no prepare from before the tombstone is still on its way
# then.
TOMBSTONE_SECONDS = 600.0

# The API server and the kubelet are asked about one claim at most this often, however many calls wait for it.
ASK_SECONDS = 2.0

# How long a claim has to be gone before it is released for another one that waits. The kubelet stops listing
# a pod that was deleted by force while it still ends its containers. It gives them one second, and the
# runtime some more.
CERTAIN_SECONDS = 10.0

# Short, since a call of the kubelet for another claim waits meanwhile.
_UNNEEDED_LOCK_SECONDS = 2.0


class Reconciler:
    """One pass checks every entry. If it fails for one claim, it goes on with the next.

    ``watch`` gets all claims that are gone from the API server while containers have their devices.
    """

    def __init__(
        self,
        identity: Identity,
        journal: Journal,
        preparer: Preparer,
        written: tuple[Specs, ClaimFiles],
        cluster: Cluster,
        watch: NodeWatch,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._identity = identity
        self._journal = journal
        self._preparer = preparer
        self._specs, self._files = written
        self._cluster = cluster
        self._watch = watch
        self._clock = clock
        self._suspects: set[str] = set()
        self._asking = threading.Lock()
        self._asked: dict[str, float] = {}
        self._gone_since: dict[str, float] = {}
        self._deleted: frozenset[str] = frozenset()
        # What each claim's spec was last seen to name, by UID.
        self._made_of: dict[str, tuple[DriverFiles, MemoryHook | None]] = {}
        self._log = get_logger("reconciler")

    def restore_specs(self) -> None:
        """Write lost CDI specs again, and those that would name another driver's files or another hook now.

        Containers that start again need them. The NVIDIA driver may be replaced between two passes, so the
        files and the hook that each claim's spec names are remembered.
        """
        files, entries = self._driver_files(), self._journal.held()
        self._made_of = {one.uid: self._made_of[one.uid] for one in entries if one.uid in self._made_of}
        for entry in entries:
            try:
                if self._preparer.restore(entry):
                    self._log.warning("CDI spec was lost and has been written again", uid=entry.uid)
                elif self._may_be_outdated(entry, files) and self._preparer.renew(entry):
                    self._log.info(
                        "CDI spec renewed, since files of the NVIDIA driver or a hook changed", uid=entry.uid
                    )
            except DriverError as error:
                self._made_of.pop(entry.uid, None)
                self._log.warning(
                    "CDI spec is lost or outdated and cannot be written", uid=entry.uid, error=error.logged
                )

    def _may_be_outdated(self, entry: Entry, files: DriverFiles | None) -> bool:
        """Whether the claim's spec might differ if it were made now."""
        # Without a driver there is nothing better to write.
        if files is None or not entry.holds:
            return False
        # A container that starts again calls the hook that its spec names, so a claim with memory limits gets
        # the hook of this version.
        made_of = files, self._specs.memory_hook() if entry.is_limited else None
        before, self._made_of[entry.uid] = self._made_of.get(entry.uid), made_of
        # The first pass of this process: a spec that an earlier version of the plugin wrote stays, unless it
        # names another version of the driver.
        if before is None and not entry.is_limited:
            return self._files.name_another_driver(entry, files.version)
        return before != made_of

    def _driver_files(self) -> DriverFiles | None:
        """The driver's files, None if no driver is installed now."""
        try:
            return self._specs.driver_files()
        except NodeIncomplete:
            return None

    def run_once(self) -> tuple[str, ...]:
        """Check every entry once. Returns the UIDs of the released claims."""
        released = []
        suspects, deleted = set(), set()
        for entry in self._journal.entries():
            try:
                if not entry.holds:
                    self._forget_if_old(entry)
                elif not self._is_gone(entry):
                    continue
                elif self._cluster.uses(entry):
                    if entry.state != "lost":
                        deleted.add(entry.uid)
                elif not entry.is_named and entry.uid not in self._suspects:
                    # The API server cannot be asked for a claim without a name, so only the kubelet's word
                    # counts. It has to say the same in two passes.
                    suspects.add(entry.uid)
                elif self._release(entry):
                    released.append(entry.uid)
            except DriverError as error:
                self._log.warning(
                    "claim kept, since its state is not known", uid=entry.uid, error=error.logged
                )
        self._suspects = suspects
        with self._asking:
            self._set_deleted(frozenset(deleted))
        return tuple(released)

    def release_unneeded(self, uid: str) -> bool:
        """Release a claim that another one waits for, if nobody has needed it for ``CERTAIN_SECONDS``.

        Returns whether it did. Raises nothing.
        """
        with self._asking:
            now = self._clock()
            if now - self._asked.get(uid, -ASK_SECONDS) < ASK_SECONDS:
                return False
            self._asked = {one: at for one, at in self._asked.items() if now - at < ASK_SECONDS} | {uid: now}
        try:
            entry = self._journal.get(uid)
            if entry is None or not entry.holds or not entry.is_named:
                return False
            is_gone = self._is_gone(entry)
            is_used = is_gone and self._cluster.uses(entry)
            if self._gone_seconds(uid, is_gone, is_used) < CERTAIN_SECONDS:
                return False
            return self._release(entry, _UNNEEDED_LOCK_SECONDS)
        except DriverError as error:
            self._log.warning("claim kept, since its state is not known", uid=uid, error=error.logged)
            return False

    def _gone_seconds(self, uid: str, is_gone: bool, is_used: bool) -> float:
        """For how many seconds the claim has been gone and unused at every check; 0 if it is not so now."""
        with self._asking:
            since = self._gone_since.pop(uid, self._clock())
            if is_used:
                self._set_deleted(self._deleted | {uid})
            if not is_gone or is_used:
                return 0.0
            held = {entry.uid for entry in self._journal.held()}
            self._gone_since = {one: at for one, at in self._gone_since.items() if one in held}
            self._gone_since[uid] = since
            return self._clock() - since

    def _set_deleted(self, deleted: frozenset[str]) -> None:
        """Report the claims that are gone while containers have their devices. The lock is held."""
        if deleted != self._deleted:
            self._deleted = deleted
            self._watch.deleted(deleted)

    def finish_releases(self) -> tuple[str, ...]:
        """Try again to take back what an unprepare left behind; returns the UIDs of the released claims.

        The kubelet tries again too, as long as it remembers the claim.
        """
        released = []
        for entry in self._journal.held():
            if entry.state == "releasing":
                try:
                    if self._release(entry):
                        released.append(entry.uid)
                except DriverError as error:
                    self._log.warning("cannot release the claim yet", uid=entry.uid, error=error.logged)
        return tuple(released)

    def _is_gone(self, entry: Entry) -> bool:
        """Whether the API server no longer has the claim with these devices.

        Raises DriverError if it cannot say.
        """
        if not entry.is_named:
            return True
        try:
            stored = self._cluster.get_claim(entry.namespace, entry.name)
        except ClaimRefused:
            return True
        # A later claim may have the same name.
        if stored.get("metadata", {}).get("uid") != entry.uid:
            return True
        if stored.get("status", {}).get("allocation") is None:
            return True
        # The claim may have lost its allocation and got another one, perhaps on another node.
        return not has_allocated(entry, read_claim(stored, entry.uid, self._identity.driver))

    def _release(self, entry: Entry, lock_seconds: float = LOCK_SECONDS) -> bool:
        # Only if the entry is still the one that was checked: the claim may have been prepared again
        # meanwhile.
        released = self._preparer.release(entry.uid, lambda now: now == entry, lambda: lock_seconds)
        if released:
            self._log.info("claim released, since nothing uses it any more", uid=entry.uid, claim=entry.owner)
        return released

    def _forget_if_old(self, entry: Entry) -> None:
        if boottime_ns() - entry.changed_ns > TOMBSTONE_SECONDS * 1e9:
            self._preparer.forget(entry)
