"""Keeps copies of the image's hooks on the host, where the container runtime runs them from.

They lie in a folder of their version and checksum: a CDI spec that names an older one stays good until it
goes. They are as good as the image's, or they are written again; a power cut leaves each whole or not at all.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from driver.errors import StorageError
from driver.process.durable import fsync_folder, remove_unfinished, write_durably
from kubeletplugin.kubelet.wire.names import hook_folder_key

_VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+-]{0,63}", re.ASCII)
_MODE, _FOLDER_MODE = 0o755, 0o755


class HookCopies:
    """The copies below the plugin's own folder, of which those of ``sources`` are this process's.

    ``sources`` are the image's programs by their names, nvidia-cdi-hook first; the first gives the folder its
    version. ``alone()``
    says whether no other instance of the plugin lives, which may have versions of its own.
    """

    def __init__(self, data_dir: Path, sources: Mapping[str, Path], alone: Callable[[], bool]) -> None:
        self._folder = hooks_folder(data_dir)
        self._sources = dict(sources)
        self._alone = alone
        self._own: Path | None = None

    def install(self) -> Path:
        """The folder of the copies, made where they are missing or are not what the image has.

        Raises StorageError.
        """
        named = " and ".join(map(str, self._sources.values()))
        try:
            digests = {name: _digest(source) for name, source in self._sources.items()}
            version = _version(next(iter(self._sources.values())))
            own = self._folder / f"{version}-{hook_folder_key([*digests.values()])}"
            for name, digest in digests.items():
                if not _is_whole(own / name, digest):
                    self._copy(own / name, self._sources[name])
        except OSError as error:
            raise StorageError(
                f"{named} cannot be copied to {self._folder}: {error.strerror}",
                "make --plugins-dir writable and free space there, or give --cdi-hook a path of the host",
            ) from error
        self._own = own
        return own

    def tidy(self, is_named: Callable[[str], bool]) -> tuple[str, ...]:
        """Remove the copies of other versions that no CDI spec names; the names of their folders.

        ``is_named(text)`` says whether a CDI spec of ours has this text in it. While another instance lives
        nothing is removed, since its next spec may name its own copies. This process's own are made again
        when somebody has removed one. Raises StorageError.
        """
        own = self._own
        if own is not None and not all((own / name).is_file() for name in self._sources):
            self.install()
        if own is None or not self._alone():
            return ()
        remove_unfinished(own, self._sources.__contains__, self._alone)
        others = sorted(path.name for path in self._folder.iterdir() if path != own)
        unused = tuple(name for name in others if not is_named(f"/{name}/"))
        for name in unused:
            _remove(self._folder / name)
        return unused

    def _copy(self, own: Path, source: Path) -> None:
        self._folder.mkdir(mode=_FOLDER_MODE, exist_ok=True)
        own.parent.mkdir(mode=_FOLDER_MODE, exist_ok=True)
        write_durably(own, source.read_bytes(), _MODE)
        for path in (own, own.parent, self._folder):
            path.chmod(_MODE)  # a umask may have cut it; the runtime of another user runs it as well
        fsync_folder(own.parent)
        fsync_folder(self._folder)
        fsync_folder(self._folder.parent)


def hooks_folder(data_dir: Path) -> Path:
    """Where the copies lie below the plugin's own folder."""
    return data_dir / "hook"


def remove_hooks(data_dir: Path) -> None:
    """Remove all copies, at uninstall: no claim may be prepared any more, since its spec names one.

    Raises StorageError.
    """
    if hooks_folder(data_dir).exists():
        _remove(hooks_folder(data_dir))


def _remove(folder: Path) -> None:
    try:
        shutil.rmtree(folder)
    except OSError as error:
        raise StorageError(f"removing {folder} failed: {error.strerror}", "check the disk") from error


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _is_whole(copy: Path, digest: str) -> bool:
    """Whether the copy has this digest and can be run by anybody."""
    try:
        return copy.stat().st_mode & 0o777 == _MODE and _digest(copy) == digest
    except FileNotFoundError:
        return False


def _version(source: Path) -> str:
    """The version that the file beside it names, as it may be part of a folder's name."""
    try:
        words = source.with_name(f"{source.name}.version").read_text().split()
    except OSError:
        words = []
    return words[0] if words and _VERSION.fullmatch(words[0]) else "unknown"
