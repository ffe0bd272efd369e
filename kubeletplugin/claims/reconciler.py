"""Compares the journal with the CDI folder, the API and the kubelet: lets go of what nobody will unprepare.

A claim that was deleted while the plugin was away may never be unprepared by the kubelet. It is let
go when the API says that it is gone *and* the kubelet says that no container has it. Whenever one of
the two does not answer, the claim is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from driver.claims.allocation import read_claim
from driver.errors import ClaimRefused, DriverError, NodeIncomplete
from driver.process.log import get_logger
from kubeletplugin.cdi.memory_hook import MemoryHook
from kubeletplugin.claims.files import ClaimFiles
from kubeletplugin.claims.preparer import Preparer
from kubeletplugin.claims.specs import Specs
from kubeletplugin.host.driver_files import DriverFiles
from kubeletplugin.journal.entry import Entry
from kubeletplugin.journal.identity import Identity, boottime_ns
from kubeletplugin.journal.journal import Journal

TOMBSTONE_SECONDS = 600.0

Verdict = Literal["wanted", "gone", "unknown"]


class Reconciler:
    """One pass looks at every entry; a pass that fails for one claim goes on with the next.

    ``get_claim(namespace, name)`` raises ClaimRefused when there is no such claim.
    ``in_use()`` gives the CDI device names that containers of this node have; raises DriverError.
    """

    def __init__(
        self,
        identity: Identity,
        journal: Journal,
        preparer: Preparer,
        written: tuple[Specs, ClaimFiles],
        get_claim: Callable[[str, str], dict[str, Any]],
        in_use: Callable[[], frozenset[str]],
    ) -> None:
        self._identity = identity
        self._journal = journal
        self._preparer = preparer
        self._specs, self._files = written
        self._get_claim = get_claim
        self._in_use = in_use
        self._suspects: set[str] = set()
        self._made_of: dict[str, tuple[DriverFiles, MemoryHook | None]] = {}
        self._log = get_logger("reconciler")

    def restore_specs(self) -> None:
        """Write the CDI specs again that were lost, or that would name another driver's files or hook now.

        Containers that start again need them. A driver or this process may have been replaced between two
        passes, so each claim is remembered with what its spec was last seen to be made of.
        """
        files, entries = self._driver_files(), self._journal.entries()
        self._made_of = {one.uid: self._made_of[one.uid] for one in entries if one.uid in self._made_of}
        for entry in entries:
            try:
                if self._preparer.restore(entry):
                    self._log.warning("CDI spec was lost and is written again", uid=entry.uid)
                elif self._may_be_outdated(entry, files) and self._preparer.renew(entry):
                    self._log.info("CDI spec names files of another driver or hook now", uid=entry.uid)
            except DriverError as error:
                self._made_of.pop(entry.uid, None)
                self._log.warning("CDI spec is lost or out of date", uid=entry.uid, error=str(error))

    def _may_be_outdated(self, entry: Entry, files: DriverFiles | None) -> bool:
        """Whether the claim's spec may not be what it would be if it were made now.

        While there is no driver, what was there before stays. So does what another version of the plugin has
        written, unless it names another version of the driver. A container that starts again asks for its
        memory by the hook of its spec, and is to ask by that of this version.
        """
        if files is None or not entry.holds:
            return False
        made_of = files, self._specs.memory_hook() if entry.is_limited else None
        before, self._made_of[entry.uid] = self._made_of.get(entry.uid), made_of
        if before is None and not entry.is_limited:
            return self._files.name_another_driver(entry, files.version)
        return before != made_of

    def _driver_files(self) -> DriverFiles | None:
        try:
            return self._specs.driver_files()
        except NodeIncomplete:
            return None

    def run_once(self) -> tuple[str, ...]:
        """Look at every entry once; the UIDs of the claims that were let go."""
        released = []
        suspects = set()
        for entry in self._journal.entries():
            try:
                if not entry.holds:
                    self._forget_if_old(entry)
                elif self._verdict(entry) != "gone" or self._is_used(entry):
                    continue
                elif not entry.is_named and entry.uid not in self._suspects:
                    # Nobody but the kubelet knows this claim: believe it when it says the same again.
                    suspects.add(entry.uid)
                elif self._release(entry):
                    released.append(entry.uid)
            except DriverError as error:
                self._log.warning("claim kept, its state is not known", uid=entry.uid, error=str(error))
        self._suspects = suspects
        return tuple(released)

    def finish_releases(self) -> tuple[str, ...]:
        """Try again to take back what an unprepare had to leave behind; the UIDs of the claims let go.

        The kubelet tries again too, as long as it remembers the claim.
        """
        released = []
        for entry in self._journal.entries():
            if entry.state == "releasing":
                try:
                    if self._release(entry):
                        released.append(entry.uid)
                except DriverError as error:
                    self._log.warning("claim not let go yet", uid=entry.uid, error=str(error))
        return tuple(released)

    def _verdict(self, entry: Entry) -> Verdict:
        if not entry.is_named:
            return "gone"
        try:
            stored = self._get_claim(entry.namespace, entry.name)
        except ClaimRefused:
            return "gone"
        if stored.get("metadata", {}).get("uid") != entry.uid:
            return "gone"
        if stored.get("status", {}).get("allocation") is None:
            return "gone"
        claim = read_claim(stored, entry.uid, self._identity.driver)
        allocated = {(device.pool, device.device) for device in claim.devices}
        # A claim may have lost its allocation and got another one, on another node for instance.
        return (
            "wanted" if any((one.pool, one.allocated_name) in allocated for one in entry.devices) else "gone"
        )

    def _is_used(self, entry: Entry) -> bool:
        used = self._in_use()
        # NVIDIA's driver gave containers a CDI device that is named as it published the device, before 25.12.
        names = {name for one in entry.devices for name in (one.cdi_device, one.published_as) if name}
        return not names.isdisjoint(used)

    def _release(self, entry: Entry) -> bool:
        released = self._preparer.release(entry.uid, lambda now: now == entry)
        if released:
            self._log.info(
                "claim let go, nobody uses it any more",
                uid=entry.uid,
                claim=f"{entry.namespace}/{entry.name}",
            )
        return released

    def _forget_if_old(self, entry: Entry) -> None:
        same_boot = entry.boot_id == self._identity.boot_id
        if not same_boot or boottime_ns() - entry.changed_ns > TOMBSTONE_SECONDS * 1e9:
            self._preparer.forget(entry)
