"""Keeps the CDI specs of claims in the folder that the container runtime reads."""

from __future__ import annotations

import os
from pathlib import Path

from driver.devices.names import DRIVER_NAME
from driver.errors import StorageError
from driver.kube.decode import decode_json
from driver.process.durable import regular_only, remove, write_atomically
from kubeletplugin.kubelet.wire.names import cdi_spec_file_name, claim_of_cdi_spec, former_cdi_spec_file_name

# A spec has about 8 KiB. From 128 KiB on the C library maps memory for each read (mallopt(3)).
_MOST_AT_ONCE = 1 << 15


class CdiStore:
    """One spec file per claim, written atomically: the runtime sees a whole spec or none."""

    def __init__(self, folder: Path, driver: str = DRIVER_NAME) -> None:
        """``driver`` is the DRA driver whose devices the specs have."""
        self._folder = folder
        self._driver = driver

    def read(self, uid: str) -> bytes | None:
        """The spec of a claim, None if there is none; raises StorageError if it cannot be read."""
        path = self._path(uid)
        try:
            return _content(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageError(f"reading {path} failed: {error.strerror}", "check the disk") from error

    def write(self, uid: str, spec: bytes) -> None:
        """Write a claim's spec; raises StorageError."""
        # The runtime watches the folder by inotify. The unfinished file must be in the same folder: a CDI
        # library up to 1.0 does not notice a file that is moved in from elsewhere, a subfolder included.
        # Its name must not end in .json, so that the runtime reads its specs again once, not twice.
        write_atomically(self._path(uid), spec, 0o644)

    def remove(self, uid: str) -> None:
        """Remove a claim's spec if there is one; raises StorageError."""
        remove(self._path(uid))

    def remove_former(self, uid: str) -> None:
        """Remove the spec of NVIDIA's own driver for a claim, if there is one; raises StorageError."""
        # A runtime drops a device that two files of one folder have, so this comes before writing our own.
        remove(f"{self._folder}/{former_cdi_spec_file_name(uid)}")

    def uids(self) -> tuple[str, ...]:
        """The claims that have a spec here, sorted."""
        try:
            names = [path.name for path in self._folder.iterdir()]
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise StorageError(
                f"listing {self._folder} failed: {error.strerror}", "set --cdi-dir to a folder of the runtime"
            ) from error
        return tuple(sorted(uid for name in names if (uid := self._claim_of(name)) is not None))

    def names(self, text: str) -> bool:
        """Whether the spec of any claim contains this ASCII text; raises StorageError."""
        return any(text.encode() in (self.read(uid) or b"") for uid in self.uids())

    def device_names(self, uid: str) -> tuple[str, ...]:
        """The CDI device names in a claim's spec; empty if it is missing or not valid."""
        try:
            spec = decode_json(self.read(uid) or b"{}")
            return tuple(str(device["name"]) for device in spec.get("devices", ()))
        except (ValueError, KeyError, TypeError, AttributeError):
            return ()

    def is_spec(self, file_name: str) -> bool:
        """Whether a file of this name is the spec of a claim."""
        return self._claim_of(file_name) is not None

    def _claim_of(self, file_name: str) -> str | None:
        return claim_of_cdi_spec(file_name, self._driver)

    def _path(self, uid: str) -> str:
        return f"{self._folder}/{cdi_spec_file_name(uid, self._driver)}"


def _content(path: str) -> bytes:
    """All of a file; raises OSError."""
    # Each call of the kubelet comes here. A Python file object would take several system calls more.
    descriptor = regular_only(path, os.O_RDONLY)
    try:
        parts = [os.read(descriptor, _MOST_AT_ONCE)]
        while len(parts[-1]) == _MOST_AT_ONCE:
            parts.append(os.read(descriptor, _MOST_AT_ONCE))
    finally:
        os.close(descriptor)
    return b"".join(parts)
