"""Lays out and removes what containers of a claim are started with: its CDI spec, and what that mounts."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable

from driver.errors import StorageError
from kubeletplugin.claims.cdi.store import CdiStore
from kubeletplugin.claims.journal.entry import Entry
from kubeletplugin.claims.metadata.claim_metadata import ClaimMetadata
from kubeletplugin.claims.specs import Spec, with_written_devices
from kubeletplugin.kubelet.wire.timing import NO_TIMING, Timing


class ClaimFiles:
    """The files of the claims of one node. Callers hold the claim's lock.

    A runtime may start a container as soon as it sees the spec, so that is written last and removed first.
    """

    def __init__(
        self,
        store: CdiStore,
        metadata: ClaimMetadata,
        step: Callable[[str], None],
        timing: Timing = NO_TIMING,
    ) -> None:
        self._store = store
        self._metadata = metadata
        self._step = step
        self._timing = timing

    def write(self, entry: Entry, spec: Spec, *, is_new: bool = False) -> None:
        """Write the spec of a claim whose devices are made, and its metadata. Raises StorageError.

        All of the metadata is written for a claim that ``is_new``, else what is missing of it.
        """
        started = time.perf_counter()
        if is_new:
            self._metadata.write(entry)
        else:
            self._metadata.complete(entry)
        self._step("metadata written")
        if entry.is_taken_over:
            self._store.remove_former(entry.uid)
        self._store.write(entry.uid, spec.data)
        self._timing.files(time.perf_counter() - started)

    def remove(self, uid: str, entry: Entry | None) -> None:
        """Remove what is there of a claim; ``entry`` is what the journal has of it. Raises StorageError."""
        if entry is not None and entry.is_taken_over:
            self._store.remove_former(uid)
        self._store.remove(uid)
        if entry is not None:
            self._metadata.remove(entry)

    def are_there(self, entry: Entry, spec: Spec) -> bool:
        """Whether everything is there, and the spec is this one. Raises StorageError."""
        if spec.sha256 != entry.spec_sha256 or self._store.read(entry.uid) != spec.data:
            return False
        return self._metadata.is_complete(entry)

    def renewed(self, entry: Entry, spec: Spec) -> Spec | None:
        """What is to take the place of the claim's spec, where it would be ``spec`` now; None where it stays.

        Of a rebuilt entry nobody but the spec that is there knows the mounts and hooks. Raises StorageError.
        """
        return with_written_devices(spec, self._store.read(entry.uid) or b"") if entry.rebuilt else spec

    def name_another_driver(self, entry: Entry, version: str) -> bool:
        """Whether the spec names libraries of the NVIDIA driver, and none of this version."""
        data = self._store.read(entry.uid) or b""
        return b".so." in data and f".so.{version}".encode() not in data

    def are_as_written(self, entry: Entry) -> bool:
        """Whether everything is there, and the spec as it was written."""
        try:
            data = self._store.read(entry.uid)
        except StorageError:
            return False
        if data is None or hashlib.sha256(data).hexdigest() != entry.spec_sha256:
            return False
        return self._metadata.is_complete(entry)
