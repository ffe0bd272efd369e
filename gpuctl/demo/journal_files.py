"""Reads the kubelet plugin's journal from outside, for claims that still hold devices."""

from __future__ import annotations

from pathlib import Path

from driver.errors import StorageError
from kubeletplugin.claims.journal.entry import MalformedEntry, decode


def holding(folder: Path) -> tuple[str, ...]:
    """The files of claims that hold devices, sorted. Raises StorageError for one that cannot be read."""
    found = []
    for path in sorted(folder.glob("*.json")):
        try:
            if decode(path.read_bytes()).holds:
                found.append(path.name)
        except FileNotFoundError:
            continue  # the plugin removed it meanwhile
        except (OSError, MalformedEntry) as error:
            raise StorageError(
                f"the journal file {path} cannot be read: {error}", "see the plugin's log"
            ) from error
    return tuple(found)
