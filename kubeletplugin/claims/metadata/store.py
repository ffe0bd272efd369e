"""Keeps the metadata files of claims in a folder of the plugin: one for each request."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from driver.process.durable import (
    TEMPORARY_PREFIX,
    make_private_folder,
    remove,
    remove_unfinished,
    storage_errors,
    write_atomically,
)
from kubeletplugin.kubelet.wire.names import claim_of_metadata_file, metadata_file_name


class MetadataStore:
    """Files that are there whole or not at all. What they say ends with the boot, so nothing is fsynced."""

    def __init__(self, folder: Path) -> None:
        """Make the folder where it is missing; raises StorageError."""
        self.folder = folder
        # A file is mounted by itself, so containers need no way through the folder.
        make_private_folder(folder)

    def write(self, uid: str, request: str, data: bytes) -> None:
        """Write the file of a request, which everybody may read in its container. Raises StorageError."""
        write_atomically(self._path(uid, request), data, 0o644)

    def has(self, uid: str, request: str) -> bool:
        """Whether the file of a request is there."""
        return os.access(self._path(uid, request), os.F_OK)

    def remove(self, uid: str, request: str) -> None:
        """Remove the file of a request if it is there. Raises StorageError."""
        remove(self._path(uid, request))

    def remove_all(self, uid: str) -> None:
        """Remove all files of a claim. Raises StorageError."""
        for name in self._names():
            if claim_of_metadata_file(name) == uid:
                remove(f"{self.folder}/{name}")

    def uids(self) -> tuple[str, ...]:
        """The claims that have a file here, sorted. Raises StorageError."""
        return tuple(sorted({uid for name in self._names() if (uid := claim_of_metadata_file(name))}))

    def remove_litter(self, alone: Callable[[], bool]) -> None:
        """Remove unfinished files of a process that is gone; ``alone`` as ``remove_unfinished`` has it.

        Raises StorageError.
        """
        remove_unfinished(self.folder, lambda name: claim_of_metadata_file(name) is not None, alone)

    def _names(self) -> list[str]:
        with storage_errors(self.folder, "listing"):
            return [name for name in os.listdir(self.folder) if not name.startswith(TEMPORARY_PREFIX)]  # noqa: PTH208 - text

    def _path(self, uid: str, request: str) -> str:
        return f"{self.folder}/{metadata_file_name(uid, request)}"
