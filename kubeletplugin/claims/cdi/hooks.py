"""Chooses the hooks that containers are made ready with, and keeps them on the host."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from driver.errors import DriverError, NodeIncomplete
from driver.process.log import get_logger
from kubeletplugin.claims.cdi.hook import Hook, asked_hook
from kubeletplugin.claims.cdi.hook_copy import HookCopies
from kubeletplugin.claims.cdi.hook_source import HookSource
from kubeletplugin.claims.cdi.host_paths import HostPaths
from kubeletplugin.claims.cdi.memory_hook import MEMORY_HOOK, MemoryHook, memory_sockets
from kubeletplugin.devices.host.driver_files import HOOK, DriverFiles

_log = get_logger("hook")


class Hooks:
    """The copy of the image's hook, or the hook that the flag names; else that of the driver root.

    Where a copy cannot be made or cannot be run, that of the driver root serves until it can. The hook for
    memory is the driver's own, and nothing stands in for it.
    """

    def __init__(
        self,
        source: HookSource,
        data_dir: Path,
        alone: Callable[[], bool],
        host_root: Path,
        memory: Path | None = None,
    ) -> None:
        """``host_root`` is where this process sees that of the host; ``alone`` is that of ``HookCopies``.

        ``memory`` is the program of the hook for memory, None where there is none.
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
        """The hook that holds containers back until they have their limits.

        Raises NodeIncomplete where there is none, or the host could not run it: without it nothing would be
        held.
        """
        if not self._has_memory:
            raise NodeIncomplete(
                f"this plugin has no {MEMORY_HOOK}, without which nothing holds containers to their memory",
                "use the driver's image, or build it with make memory-hook and give it to --memory-hook",
            )
        if self._memory is None or not os.access(self._memory, os.X_OK):
            self.install()  # somebody removed it, or it could not be made before
        if self._memory is None or not os.access(self._memory, os.X_OK):
            raise NodeIncomplete(
                f"{MEMORY_HOOK} is not on the host or cannot be run there: {self._complaint or self._memory}",
                "see that --plugins-dir can be written to, has space and is not mounted noexec",
            )
        return MemoryHook(str(self._memory), self._memory_sockets)

    def of(self, files: DriverFiles, host: HostPaths) -> Hook | None:
        """The hook to use with these files of the driver root; None where there is none."""
        if self._own is not None:
            return self._own
        known = self._of_driver
        if known is None or known[0] is not files:
            known = self._of_driver = (files, _below_root(files, host))
        return known[1]

    def keep(self, is_named: Callable[[str], bool]) -> None:
        """Make the copy that is missing, and remove those that no spec names any more (``is_named``).

        What goes wrong is said once; the next call tries again.
        """
        if self._copies is None:
            return
        try:
            if (self._is_copied and self._own is None) or (self._has_memory and self._memory is None):
                self.install()
            for name in self._copies.tidy(is_named):
                _log.info("copies of hooks removed, no CDI spec names them", version=name)
        except DriverError as error:
            self._complain(error)

    def install(self) -> None:
        """Make the copy and look at it, at the start; what goes wrong is said and tried again by ``keep``."""
        if self._copies is None:
            return
        try:
            folder = self._copies.install()
            if self._has_memory:
                self._memory = folder / MEMORY_HOOK
            if self._is_copied:
                self._own = asked_hook(folder / HOOK, str(folder / HOOK))
        except DriverError as error:
            self._complain(error)
            return
        self._complaint = ""

    def _complain(self, error: DriverError) -> None:
        if str(error) != self._complaint:
            self._complaint = str(error)
            _log.error("the hooks are not on the host as they should be", error=str(error))


def _below_root(files: DriverFiles, host: HostPaths) -> Hook | None:
    if files.hook is None:
        return None
    return _known(Path(f"{host.seen}/{files.hook.lstrip('/')}"), host.below_root(files.hook))


def _known(seen: Path, on_host: str) -> Hook:
    """A hook that is the host's own: what it does not tell it is not asked to do."""
    try:
        if seen.exists():
            return asked_hook(seen, on_host)
        reason = "it is not seen from here"
    except DriverError as error:
        reason = str(error)
    _log.warning("nvidia-cdi-hook gets the calls of its oldest release alone", path=on_host, reason=reason)
    return Hook(on_host)
