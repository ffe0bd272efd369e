"""Chooses the hooks that the container runtime calls, and keeps copies of them on the host."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from driver.errors import DriverError, NodeIncomplete, StorageError
from driver.process.durable import fsync_folder, regular_only, remove_unfinished, write_durably
from driver.process.log import get_logger
from kubeletplugin.claims.cdi.hook import Hook, HookSource, asked_hook
from kubeletplugin.claims.cdi.spec import MEMORY_HOOK, HostPaths, MemoryHook, memory_sockets
from kubeletplugin.devices.host.driver_files import HOOK, DriverFiles
from kubeletplugin.kubelet.wire.names import hook_folder_key

_log = get_logger("hook")

_VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+-]{0,63}", re.ASCII)
_MODE, _FOLDER_MODE = 0o755, 0o755


class Hooks:
    """The copy of the image's hook, or the hook of the flag, or else that of the driver root.

    While a copy cannot be made or run, the one of the driver root is used. The memory hook is this driver's
    own and has no substitute.
    """

    def __init__(
        self,
        source: HookSource,
        data_dir: Path,
        alone: Callable[[], bool],
        host_root: Path,
        memory: Path | None = None,
    ) -> None:
        """``host_root`` is where this process sees the host's root; for ``alone`` see ``HookCopies``.

        ``memory`` is the program of the memory hook, None if there is none.
        """
        named = {HOOK: source.copied, MEMORY_HOOK: memory}
        sources = {name: file for name, file in named.items() if file is not None}
        self._copies = HookCopies(data_dir, sources, alone) if sources else None
        self._is_copied = source.copied is not None
        self._has_memory = memory is not None
        self._memory_sockets = str(memory_sockets(data_dir))
        self._memory: Path | None = None
        seen = host_root / source.on_host.lstrip("/")
        self._own: Hook | None = _known(seen, source.on_host) if source.on_host else None
        self._of_driver: tuple[DriverFiles, Hook | None] | None = None
        self._complaint = ""

    def of_memory(self) -> MemoryHook:
        """The hook that keeps containers from starting until their memory limits are set.

        Raises NodeIncomplete if there is none, or if the host could not run it: no limit would be set then.
        """
        if not self._has_memory:
            raise NodeIncomplete(
                f"this plugin has no {MEMORY_HOOK}, so it cannot limit the GPU memory of containers",
                "use the driver's image, or build it with make memory-hook and give it to --memory-hook",
            )
        if self._memory is None or not os.access(self._memory, os.X_OK):
            self.install()  # it was removed, or could not be made before
        if self._memory is None or not os.access(self._memory, os.X_OK):
            raise NodeIncomplete(
                f"{MEMORY_HOOK} is not on the host or cannot be run there: {self._complaint or self._memory}",
                "check that --plugins-dir is writable, has space and is not mounted noexec",
            )
        return MemoryHook(str(self._memory), self._memory_sockets)

    def of(self, files: DriverFiles, host: HostPaths) -> Hook | None:
        """The hook to use with these files of the driver root; None if there is none."""
        if self._own is not None:
            return self._own
        known = self._of_driver
        # The files stay the same object until they change, see DriverRoot.
        if known is None or known[0] is not files:
            known = self._of_driver = (files, _below_root(files, host))
        return known[1]

    def keep(self, is_named: Callable[[str], bool]) -> None:
        """Make missing copies, and remove those that no CDI spec names any more (``is_named``).

        An error is logged once; the next call tries again.
        """
        if self._copies is None:
            return
        try:
            if (self._is_copied and self._own is None) or (self._has_memory and self._memory is None):
                self.install()
            for name in self._copies.tidy(is_named):
                _log.info("removed a copy of the hooks that no CDI spec names", version=name)
        except DriverError as error:
            self._complain(error)

    def install(self) -> None:
        """Make the copies and check them, at the start. An error is logged, and ``keep`` tries again."""
        if self._copies is None:
            return
        try:
            folder = self._copies.install()
            if self._has_memory:
                self._memory = folder / MEMORY_HOOK
            # It is run once here, which also shows whether it can be run at all.
            if self._is_copied:
                self._own = asked_hook(folder / HOOK, str(folder / HOOK))
        except DriverError as error:
            self._complain(error)
            return
        self._complaint = ""

    def _complain(self, error: DriverError) -> None:
        if str(error) != self._complaint:
            self._complaint = str(error)
            _log.error("cannot keep the hooks on the host", error=str(error))


def _below_root(files: DriverFiles, host: HostPaths) -> Hook | None:
    if files.hook is None:
        return None
    return _known(Path(f"{host.seen}/{files.hook.lstrip('/')}"), host.below_root(files.hook))


def _known(seen: Path, on_host: str) -> Hook:
    """A hook of the host, with the calls of the oldest release if it cannot be asked for its own."""
    try:
        if seen.exists():
            return asked_hook(seen, on_host)
        reason = "this process does not see it"
    except DriverError as error:
        reason = str(error)
    _log.warning("nvidia-cdi-hook is called only as its oldest release can be", path=on_host, reason=reason)
    return Hook(on_host)


class HookCopies:
    """The copies of the image's hooks below the plugin's own folder, where the container runtime runs them.

    Their folder is named by version and checksum, so a CDI spec that names an older copy stays valid until
    that copy is removed. A copy that differs from the image's is written again. A power cut leaves a whole
    copy or none.

    ``sources`` are the image's programs by their names, nvidia-cdi-hook first; the folder has the version of
    the first. ``alone()`` is whether no other instance of the plugin runs, which may have other versions.
    """

    def __init__(self, data_dir: Path, sources: Mapping[str, Path], alone: Callable[[], bool]) -> None:
        self._folder = hooks_folder(data_dir)
        self._sources = dict(sources)
        self._alone = alone
        self._own: Path | None = None

    def install(self) -> Path:
        """The folder of the copies; missing or differing ones are made. Raises StorageError."""
        named = " and ".join(map(str, self._sources.values()))
        try:
            digests = {name: _digest(source) for name, source in self._sources.items()}
            version = _version(next(iter(self._sources.values())))
            # The checksum covers all programs, so a new build of any of them gets a folder of its own.
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
        """Remove the copies of other versions that no CDI spec names; returns the names of their folders.

        ``is_named(text)`` is whether a CDI spec of this driver contains the text. This process's own copies
        are made again if one was removed. Raises StorageError.
        """
        own = self._own
        if own is not None and not all((own / name).is_file() for name in self._sources):
            self.install()
        # The next spec of another instance may name that instance's copies.
        if own is None or not self._alone():
            return ()
        remove_unfinished(own, self._sources.__contains__, self._alone)
        # A CDI spec names a copy by its full path, so the folder's name in it shows that it is needed.
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
            # The umask may have cut the mode, and the runtime may run hooks as another user.
            path.chmod(_MODE)
        # A new file or folder survives a power cut once its parent folder is on the disk.
        fsync_folder(own.parent)
        fsync_folder(self._folder)
        fsync_folder(self._folder.parent)


def hooks_folder(data_dir: Path) -> Path:
    """The folder of the copies, below the plugin's own folder."""
    return data_dir / "hook"


def _remove(folder: Path) -> None:
    try:
        shutil.rmtree(folder)
    except OSError as error:
        raise StorageError(f"removing {folder} failed: {error.strerror}", "check the disk") from error


def _digest(file: Path) -> str:
    with open(file, "rb", opener=regular_only) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _is_whole(copy: Path, digest: str) -> bool:
    """Whether the copy has this digest and can be run by anybody."""
    try:
        return copy.stat().st_mode & 0o777 == _MODE and _digest(copy) == digest
    except FileNotFoundError:
        return False


def _version(source: Path) -> str:
    """The version in the file beside it, if it is fit for the name of a folder."""
    try:
        words = source.with_name(f"{source.name}.version").read_text().split()
    except OSError:
        words = []
    return words[0] if words and _VERSION.fullmatch(words[0]) else "unknown"
