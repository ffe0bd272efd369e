"""Chooses the nvidia-cdi-hook that containers are made ready with, and keeps it there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from driver.errors import DriverError
from driver.process.log import get_logger
from kubeletplugin.cdi.hook import Hook, asked_hook
from kubeletplugin.cdi.hook_copy import HookCopies
from kubeletplugin.cdi.hook_source import HookSource
from kubeletplugin.cdi.host_paths import HostPaths
from kubeletplugin.host.driver_files import DriverFiles

_log = get_logger("hook")


class Hooks:
    """The copy of the image's hook, or the hook that the flag names; else that of the driver root.

    Where a copy cannot be made or cannot be run, that of the driver root serves until it can.
    """

    def __init__(
        self, source: HookSource, data_dir: Path, alone: Callable[[], bool], host_root: Path
    ) -> None:
        """``host_root`` is where this process sees that of the host; ``alone`` is that of ``HookCopies``."""
        self._copies = None if source.copied is None else HookCopies(data_dir, source.copied, alone)
        seen = host_root / source.on_host.lstrip("/")
        self._own: Hook | None = _known(seen, source.on_host) if source.on_host else None
        self._of_driver: tuple[DriverFiles, Hook | None] | None = None
        self._complaint = ""

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
            if self._own is None:
                self.install()
            for name in self._copies.tidy(is_named):
                _log.info("copy of nvidia-cdi-hook removed, no CDI spec names it", version=name)
        except DriverError as error:
            self._complain(error)

    def install(self) -> None:
        """Make the copy and look at it, at the start; what goes wrong is said and tried again by ``keep``."""
        if self._copies is None:
            return
        try:
            copy = self._copies.install()
            self._own = asked_hook(copy, str(copy))
        except DriverError as error:
            self._complain(error)
            return
        self._complaint = ""

    def _complain(self, error: DriverError) -> None:
        if str(error) != self._complaint:
            self._complaint = str(error)
            _log.error("nvidia-cdi-hook is not on the host as it should be", error=str(error))


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
