"""Removes the files of earlier boots before anything is read from them.

A boot ends every claim on the node, every MIG instance, time-slice and compute mode. A power cut may damage
files that were written to outlive the process only. So the first start within a boot removes the journal's
entries, the records of sharing, of the NVLink fabric and of containers' memory limits, and the CDI specs of
claims. The kubelet prepares its claims again. One file, the marker, names the boot in which this was done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from driver.errors import StorageError
from driver.kube.decode import decode_json
from driver.process.durable import (
    fsync_folder,
    regular_only,
    remove,
    remove_unfinished,
    storage_errors,
    write_durably,
)
from driver.process.log import get_logger
from kubeletplugin.claims.journal.entry import MalformedEntry, decode
from kubeletplugin.claims.journal.journal import uid_of_entry
from kubeletplugin.claims.journal.record_folder import MALFORMED, refuse_lack
from kubeletplugin.kubelet.wire.names import cdi_spec_file_name, claim_of_cdi_spec

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# Far more than an entry or a record has. A file of any size may lie where one is expected.
_LONGEST_BYTES = 1 << 24

_log = get_logger("boot")


def running_boot_id() -> str:
    """The id of the running boot."""
    # The kernel draws it once per boot, as a random UUID (random(4)). Unlike a clock, it is never set or
    # repeated.
    return _BOOT_ID.read_text().strip()


@dataclass(frozen=True, slots=True)
class BootFiles:
    """The files that mean something only within one boot, and the marker that names the boot.

    ``data`` is the plugin's folder. ``cdi`` is shared with other drivers, and may be on a disk or on a tmpfs.
    ``records`` has the folders of records in ``data``, each with a function that returns None for the name of
    a file that is not a record.
    """

    data: Path
    cdi: Path
    records: Mapping[str, Callable[[str], object]]

    @property
    def marker(self) -> Path:
        """Names the boot whose files these are."""
        return self.data / "boot"

    @property
    def journal(self) -> Path:
        """The journal's folder."""
        return self.data / "journal"


@dataclass(frozen=True, slots=True)
class Dropped:
    """How many files of earlier boots were removed."""

    entries: int = 0
    records: int = 0
    specs: int = 0


def drop_earlier_boots(files: BootFiles, boot_id: str) -> Dropped:
    """Remove the files of earlier boots, unless an earlier start within this boot has done so.

    Callers make sure that one instance at a time runs this, and that none serves yet. Raises StorageError.
    """
    marked = _content(files.marker)
    if marked == _mark(boot_id):
        return Dropped()
    dropped = _EarlierBoots(files, boot_id).drop()
    if dropped != Dropped():
        _log.warning(
            "removed what an earlier boot left; claims are prepared again",
            entries=dropped.entries,
            records=dropped.records,
            specs=dropped.specs,
        )
    if marked is None:
        # The data folder itself may be new, and is on the disk only once the folder above it is synced.
        with storage_errors(files.data.parent, "writing to its disk"):
            fsync_folder(files.data.parent)
    # Last: a start that ends before this removes again. Durably: a marker of a boot that a power cut has
    # ended must not be followed by half of its files.
    write_durably(files.marker, _mark(boot_id))
    return dropped


def remove_litter(files: BootFiles, alone: Callable[[], bool]) -> None:
    """Remove the unfinished files that a crash has left; ``alone()`` as in ``remove_unfinished``.

    Files that cannot be removed are logged. They do no harm.
    """
    ours: dict[Path, Callable[[str], object]] = {
        files.data: lambda name: name if name == files.marker.name else None,
        files.journal: uid_of_entry,
        files.cdi: claim_of_cdi_spec,
        **{files.data / folder: key_of for folder, key_of in files.records.items()},
    }
    for folder, key_of in ours.items():
        try:
            remove_unfinished(folder, _is_ours(key_of), alone)
        except StorageError as error:
            _log.warning("cannot remove unfinished files", error=str(error))


@dataclass(frozen=True, slots=True)
class _EarlierBoots:
    """Finds and removes the files that do not prove to be of this boot.

    The marker may be missing although the boot is the same, if the disk has lost it. So files of this boot
    stay.
    """

    files: BootFiles
    boot_id: str

    def drop(self) -> Dropped:
        specs = _ours(self.files.cdi, claim_of_cdi_spec)
        entries = _ours(self.files.journal, uid_of_entry)
        claims = [self._drop_claim(uid, uid in specs) for uid in sorted(specs | entries)]
        return Dropped(
            sum(entry for entry, _ in claims),
            sum(
                self._drop_records(self.files.data / name, key_of)
                for name, key_of in self.files.records.items()
            ),
            sum(spec for _, spec in claims),
        )

    def _drop_claim(self, uid: str, has_spec: bool) -> tuple[bool, bool]:
        """Remove what a claim has of earlier boots. Returns whether its entry and its spec were removed."""
        entry = self.files.journal / f"{uid}.json"
        boot_id = self._boot_of_entry(uid, entry)
        if boot_id == self.boot_id:
            return False, False
        # The spec first: if this ended in between, recovery would make an entry from a spec that has none.
        if has_spec:
            remove(self.files.cdi / cdi_spec_file_name(uid))
        if boot_id is not None:
            remove(entry)
        return boot_id is not None, has_spec

    def _drop_records(self, folder: Path, key_of: Callable[[str], object]) -> int:
        """Remove the records of earlier boots in a folder, and return their number."""
        names = [name for name in _names(folder) if key_of(name) is not None]
        old = [folder / name for name in names if _boot_of_record(folder / name) != self.boot_id]
        for record in old:
            remove(record)
        return len(old)

    def _boot_of_entry(self, uid: str, path: Path) -> str | None:
        """The boot of a claim's entry; empty if the file does not prove one, None without a file."""
        content = _content(path)
        try:
            entry = None if content is None else decode(content)
        except MalformedEntry:
            return ""
        if entry is None:
            return None
        return entry.boot_id if entry.uid == uid else ""


def _boot_of_record(path: Path) -> str | None:
    """The boot of a record; empty if the file does not prove one, None without a file."""
    content = _content(path)
    try:
        return None if content is None else str(decode_json(content)["boot_id"])
    except MALFORMED:
        return ""


def _mark(boot_id: str) -> bytes:
    return f"{boot_id}\n".encode()


def _content(path: Path) -> bytes | None:
    """The file's content; empty if the disk does not give it, None without a file.

    Raises StorageError if the process lacks file descriptors or memory.
    """
    try:
        with open(path, "rb", opener=regular_only) as file:
            return file.read(_LONGEST_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        refuse_lack(path, error)
        return b""


def _names(folder: Path) -> Iterator[str]:
    """The names of everything in a folder but folders; none without the folder. Raises StorageError."""
    try:
        # A link to a folder counts as a file: removing it removes the link.
        return iter([path.name for path in folder.iterdir() if path.is_symlink() or not path.is_dir()])
    except FileNotFoundError:
        return iter(())
    except OSError as error:
        raise StorageError(
            f"listing {folder} failed: {error.strerror}",
            "check the disk; files of an earlier boot have to be removed",
        ) from error


def _is_ours(key_of: Callable[[str], object]) -> Callable[[str], bool]:
    return lambda name: key_of(name) is not None


def _ours(folder: Path, key_of: Callable[[str], str | None]) -> set[str]:
    """The claims that have files in a folder."""
    return {uid for name in _names(folder) if (uid := key_of(name)) is not None}
