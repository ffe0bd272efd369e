"""Drops what an earlier boot has left, before anything of it is read.

A boot ends every claim on the node, every MIG instance, time-slice and compute mode, and a power cut may
leave any part of files that only had to outlive the process. So the first start within a boot drops the
journal's entries, the records of sharing and of the NVLink fabric, what containers may have of GPUs, and the
CDI specs of claims; the kubelet has its claims prepared anew. One file, the marker, names the boot that has
done so. It is written last, and so that it outlives a power cut: a start that ends before drops again. The
marker may be lost with the disk's help, so what proves to be of this boot stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from driver.errors import StorageError
from driver.kube.decode import decode_json
from driver.process.durable import fsync_folder, remove, remove_unfinished, storage_errors, write_durably
from driver.process.log import get_logger
from kubeletplugin.claims.journal.entry import MalformedEntry, decode
from kubeletplugin.claims.journal.journal import uid_of_entry
from kubeletplugin.claims.journal.record_folder import MALFORMED, refuse_lack
from kubeletplugin.kubelet.wire.names import cdi_spec_file_name, claim_of_cdi_spec

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_LONGEST_BYTES = 1 << 24

_log = get_logger("boot")


def running_boot_id() -> str:
    """The boot that is running, as Linux names it (random(4))."""
    return _BOOT_ID.read_text().strip()


@dataclass(frozen=True, slots=True)
class BootFiles:
    """The files that mean something within one boot only, and the marker that names the boot.

    ``data`` is the plugin's folder. ``cdi`` is shared with other drivers, and may be on a disk or on a tmpfs.
    ``records`` are the folders of records in ``data``, with what is None for the name of a file that is none.
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
    """How many files of earlier boots were dropped."""

    entries: int = 0
    records: int = 0
    specs: int = 0


def drop_earlier_boots(files: BootFiles, boot_id: str) -> Dropped:
    """Drop what is not of the boot that is running, unless a start within it has done so before.

    Callers see to it that one instance at a time is here, and that none serves yet. Raises StorageError.
    """
    marked = _content(files.marker)
    if marked == _mark(boot_id):
        return Dropped()
    dropped = _Dropping(files, boot_id).run()
    if dropped != Dropped():
        _log.warning(
            "dropped what an earlier boot has left: claims are prepared anew",
            entries=dropped.entries,
            records=dropped.records,
            specs=dropped.specs,
        )
    if marked is None:
        with storage_errors(files.data.parent, "writing to its disk"):  # it is to last as the marker does
            fsync_folder(files.data.parent)
    write_durably(files.marker, _mark(boot_id))
    return dropped


def remove_litter(files: BootFiles, alone: Callable[[], bool]) -> None:
    """Remove unfinished files of ours that a crash has left; ``alone()`` as ``remove_unfinished`` has it.

    What cannot be removed harms nobody, and is logged.
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
            _log.warning("unfinished files stay", error=str(error))


@dataclass(frozen=True, slots=True)
class _Dropping:
    """One look at everything."""

    files: BootFiles
    boot_id: str

    def run(self) -> Dropped:
        # Specs first: the entry of a claim is written before its spec.
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
        """Whether its entry and its spec were dropped."""
        entry = self.files.journal / f"{uid}.json"
        boot_id = self._boot_of_entry(uid, entry)
        if boot_id == self.boot_id:
            return False, False
        # The spec first: without its entry it would be taken for one whose entry was lost.
        if has_spec:
            remove(self.files.cdi / cdi_spec_file_name(uid))
        if boot_id is not None:
            remove(entry)
        return boot_id is not None, has_spec

    def _drop_records(self, folder: Path, key_of: Callable[[str], object]) -> int:
        """How many records of a folder were dropped."""
        names = [name for name in _names(folder) if key_of(name) is not None]
        old = [folder / name for name in names if _boot_of_record(folder / name) != self.boot_id]
        for record in old:
            remove(record)
        return len(old)

    def _boot_of_entry(self, uid: str, path: Path) -> str | None:
        """The boot that a claim's entry is of; empty where it does not prove one, None without an entry."""
        content = _content(path)
        try:
            entry = None if content is None else decode(content)
        except MalformedEntry:
            return ""
        if entry is None:
            return None
        return entry.boot_id if entry.uid == uid else ""


def _boot_of_record(path: Path) -> str | None:
    """The boot that a record is of; empty where it does not prove one, None without a record."""
    content = _content(path)
    try:
        return None if content is None else str(decode_json(content)["boot_id"])
    except MALFORMED:
        return ""


def _mark(boot_id: str) -> bytes:
    return f"{boot_id}\n".encode()


def _content(path: Path) -> bytes | None:
    """What the file holds; empty when the disk does not give it, None without a file.

    Raises StorageError when the process lacks what it takes to read any file.
    """
    try:
        with path.open("rb") as file:
            return file.read(_LONGEST_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        refuse_lack(path, error)
        return b""


def _names(folder: Path) -> Iterator[str]:
    """The names of what lies in a folder but folders, none without the folder; raises StorageError."""
    try:
        return iter([path.name for path in folder.iterdir() if path.is_symlink() or not path.is_dir()])
    except FileNotFoundError:
        return iter(())
    except OSError as error:
        raise StorageError(
            f"listing {folder} failed: {error.strerror}",
            "check the disk: what an earlier boot left has to go",
        ) from error


def _is_ours(key_of: Callable[[str], object]) -> Callable[[str], bool]:
    return lambda name: key_of(name) is not None


def _ours(folder: Path, key_of: Callable[[str], str | None]) -> set[str]:
    """The claims whose files lie in a folder."""
    return {uid for name in _names(folder) if (uid := key_of(name)) is not None}
