"""Has the metadata files of claims written, made whole and removed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from driver.errors import DriverError
from driver.process.log import get_logger
from kubeletplugin.claims.journal.entry import Entry, HeldDevice
from kubeletplugin.claims.journal.journal import Journal
from kubeletplugin.claims.journal.locks import KeyedLocks, claim_key
from kubeletplugin.claims.metadata.attributes import told_attributes
from kubeletplugin.claims.metadata.document import ToldClaim, ToldDevice, document
from kubeletplugin.claims.metadata.mounts import pod_claim_name, possible_requests, requests_of
from kubeletplugin.claims.metadata.store import MetadataStore
from kubeletplugin.devices.kinds.kind import HeldKinds

_LOCK_SECONDS = 2.0

_log = get_logger("metadata")


class ClaimMetadata:
    """The files of the claims of one node. Callers hold the claim's lock."""

    def __init__(
        self, store: MetadataStore, kinds: HeldKinds, published: Callable[[str], Mapping[str, Any]]
    ) -> None:
        """``published(device)`` gives the attributes of a device as the node's slices have them."""
        self._store = store
        self._kinds = kinds
        self._published = published

    def write(self, entry: Entry) -> None:
        """Write what containers may read of the claim's devices, which are made. Raises StorageError."""
        self._write(entry, requests_of(entry))

    def complete(self, entry: Entry) -> None:
        """Write the files that are missing, and leave the others as they are. Raises StorageError.

        What is there was written when the claim was prepared, with slices that may be gone by now.
        """
        there = self._store.has
        missing = {one: held for one, held in requests_of(entry).items() if not there(entry.uid, one)}
        self._write(entry, missing)

    def is_complete(self, entry: Entry) -> bool:
        """Whether every request of the claim has its file."""
        return all(self._store.has(entry.uid, request) for request in requests_of(entry))

    def remove(self, entry: Entry) -> None:
        """Remove the files of a claim, if there are any. Raises StorageError."""
        if entry.rebuilt:  # nobody knows its requests
            self._store.remove_all(entry.uid)
        for request in possible_requests(entry):
            self._store.remove(entry.uid, request)

    def _write(self, entry: Entry, requests: Mapping[str, tuple[HeldDevice, ...]]) -> None:
        claim = ToldClaim(entry.namespace, entry.name, entry.uid, pod_claim_name(entry))
        for request, devices in requests.items():
            told = [self._told(held) for held in devices]
            self._store.write(entry.uid, request, document(claim, devices[0].request, told))

    def _told(self, held: HeldDevice) -> ToldDevice:
        attributes = told_attributes(held, self._kinds.of(held), self._published(held.device))
        return ToldDevice(held.pool, held.allocated_name, attributes)


def sweep(
    store: MetadataStore, journal: Journal, locks: KeyedLocks, alone: Callable[[], bool]
) -> tuple[str, ...]:
    """Remove the files of claims that hold nothing: those of earlier boots, and what a crash has left.

    A claim's entry is there before its files are. What cannot be removed is logged and stays: nobody reads
    it. Returns the UIDs of the claims whose files were removed.
    """
    removed = []
    try:
        store.remove_litter(alone)
        uids = store.uids()
    except DriverError as error:
        _log.warning("metadata files stay", error=str(error))
        return ()
    held = {entry.uid for entry in journal.held()}
    for uid in uids:
        try:
            if uid not in held and _swept(uid, store, journal, locks):
                removed.append(uid)
        except DriverError as error:
            _log.warning("metadata files stay", uid=uid, error=str(error))
    return tuple(removed)


def _swept(uid: str, store: MetadataStore, journal: Journal, locks: KeyedLocks) -> bool:
    """Whether the files of a claim are nobody's, and were removed. Raises StorageError, ClaimBlocked."""
    with locks.holding([claim_key(uid)], _LOCK_SECONDS):
        entry = journal.get(uid)
        if uid in journal.unreadable() or (entry is not None and entry.holds):
            return False
        store.remove_all(uid)
    return True
