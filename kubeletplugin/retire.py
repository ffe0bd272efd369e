"""Removes what the plugin has made on a node, when the driver is uninstalled; runs as a process of its own.

Nothing is taken from a claim: while one is prepared, everything stays and the claim is named. The process may
crash after any step; the next one does the rest. Once the node is clean, the process reports that until it
gets a signal.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from driver.devices.names import CHANNELS_DRIVER_NAME, DRIVER_NAME
from driver.errors import DriverError, StorageError
from driver.process import probes
from driver.process.boot import boot_folder, is_boot_folder
from driver.process.durable import remove, storage_errors
from driver.process.log import get_logger
from driver.process.probes import Probes
from driver.process.service import Service
from driver.process.sockets import is_registration_socket
from kubeletplugin.assembly import Parts
from kubeletplugin.claims.journal.journal import FOLDER as JOURNAL
from kubeletplugin.claims.journal.journal import Journal
from kubeletplugin.kubelet.wire.server import is_answered
from kubeletplugin.migration.other_driver import FORMER_CHECKPOINT
from kubeletplugin.process_inputs import Given
from kubeletplugin.settings import Settings
from kubeletplugin.sharing.mps_client import MpsClient
from kubeletplugin.wiring import assemble_alone

TRIES = 15
"""How often to try: a pod that was deleted gives its devices back within some seconds."""

_log = get_logger("retire")

_MOST_NAMED = 10
_OWN = ("instances", "locks", "libraries", "hook", "memory", "controller")
"""What plugin and controller make in the plugin's folder, without the folder of the boot, and without the
sockets, which are removed by their process."""


def retire_node(settings: Settings, given: Given) -> None:
    """Clean the node and stay until SIGTERM; raises DriverError if that fails for some seconds.

    By its probe, the process is ready once nothing of the plugin is left on the node; until then the probe
    gives the reason.
    """
    service = Service()
    service.catch_signals()
    why_not = ["the node has not been checked yet"]
    probes.serve(service, settings.health_addr, Probes(lambda: "", lambda: "", lambda: why_not[0]))
    # Connects when it is used; a node without MPS has no supervisor.
    mps = MpsClient(settings.mps_socket)
    service.on_stop("MPS", mps.close)
    left = Left(settings.data_dir, settings.registry_dir, settings.mps_dir)
    assembled: list[Parts] = []

    def tell(text: str) -> None:
        why_not[0] = text

    def attempt() -> None:
        # Building the parts may fail too, and is then tried again.
        if not assembled:
            assembled.append(assemble_alone(settings, given, service))
        retire(assembled[0], mps, left)
        retire_channels(boot_folder(settings.channels_dir), settings.registry_dir)

    try:
        if settings.data_dir.exists():
            again_seconds = given.intervals.retire_again_seconds
            until_retired(attempt, service.stop_event.wait, tell, again_seconds, TRIES)
        tell("")
        _log.info("node is clean", driver=DRIVER_NAME, node=settings.node_name)
        service.run()
    finally:
        service.stop()


class NotRetired(DriverError):
    """Something on the node is still used, or a setting cannot be restored."""


@dataclass(frozen=True, slots=True)
class Left:
    """The folders with files of the plugin: its own, the kubelet's for registrations, and that of MPS."""

    data: Path
    registry: Path
    mps: Path


def retire(parts: Parts, mps: MpsClient, left: Left) -> None:
    """Restore the settings of the GPUs and remove all files of the plugin, which must not run any more.

    Raises NotRetired if something has to end first, and StorageError; nothing that a claim needs is removed
    then.
    """
    # A lock on a file of each instance, which ends with its process.
    if not parts.peers.alone():
        raise NotRetired("another instance of the plugin runs on this node", "end it first")
    # The reconciler has to miss a claim twice before it unprepares one that only its CDI spec names.
    for _ in range(2):
        parts.reconciler.run_once()
    parts.reconciler.finish_releases()
    _refuse_held(parts)
    parts.sharing_reconciler.run_once()
    parts.fabric.run_once()
    _refuse_records(parts.boot / "fabric", "{} of the NVLink fabric could not be deactivated")
    _refuse_records(
        parts.boot / "sharing", "compute mode, time-slice or MPS daemon of {} could not be put back"
    )
    _end_daemons(mps, left.mps)
    # The files are removed last: until then a crash loses nothing that the next try needs.
    _remove_files(left, parts.boot)


def _refuse_held(parts: Parts) -> None:
    """Raise NotRetired while a claim holds something here, or may."""
    held = [
        f"{entry.namespace}/{entry.name} ({entry.state})" if entry.name else f"claim {entry.uid}"
        for entry in parts.journal.held()
    ]
    held += [f"claim {uid} (its journal file cannot be read)" for uid in sorted(parts.journal.unreadable())]
    if held:
        raise NotRetired(
            f"this node still holds devices for {_named(held)}",
            "end the pods of these claims, and processes that use their GPUs",
        )


def _refuse_records(folder: Path, what: str) -> None:
    """Raise NotRetired if a record is left, which says what could not be undone."""
    names = sorted(path.stem for path in folder.glob("*.json"))
    if names:
        raise NotRetired(what.format(_named(names)), "see the log lines before this one")


def _end_daemons(mps: MpsClient, folder: Path) -> None:
    """End every daemon of the supervisor, since no claim is left that could need one."""
    if not any(folder.glob("*/daemon.json")):
        return
    for name in mps.known():
        mps.stop(name)


def _remove_files(left: Left, boot: Path) -> None:
    """Remove the sockets and the plugin's own folder, with unreadable files of the journal."""
    aside = sorted(path.name for path in (boot / "journal" / "unreadable").glob("*"))
    if aside:
        _log.warning("journal files that could not be read are removed", files=aside)
    others = is_of_another_driver(left.data)
    for socket in _listed(left.registry):
        # NVIDIA's driver uses the same names, so a socket that it answers stays.
        if is_registration_socket(socket.name, DRIVER_NAME) and not (others and _is_answered(socket)):
            remove(socket)
    try:
        if others:
            _remove_own(left.data)
        else:
            shutil.rmtree(left.data)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StorageError(
            f"removing {left.data} failed: {error.strerror}", "check what keeps it, and remove it"
        ) from error


def is_of_another_driver(data: Path) -> bool:
    """Whether NVIDIA's own driver, which uses the same folder, has prepared claims there."""
    return (data / FORMER_CHECKPOINT).exists()


def _remove_own(data: Path) -> None:
    """Remove the plugin's own files from a folder that another driver uses too."""
    boots = [path.name for path in data.iterdir() if is_boot_folder(path)]
    for name in (*boots, *_OWN):
        path = data / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            remove(path)


def _is_answered(socket: Path) -> bool:
    try:
        return is_answered(socket)
    except OSError as error:
        raise StorageError(f"connecting to {socket} failed: {error.strerror}", "remove it") from error


def _listed(folder: Path) -> Iterable[Path]:
    try:
        return list(folder.iterdir())
    except OSError as error:
        raise StorageError(f"listing {folder} failed: {error.strerror}", "check --registry-dir") from error


def retire_channels(boot: Path, registry: Path) -> None:
    """Remove the files of the DRA driver for IMEX channels. Raises NotRetired while a claim has a channel.

    ``boot`` is the folder of this boot in that driver's own.
    """
    folder = boot.parent
    if not folder.exists():
        return
    held = [entry.owner for entry in Journal(boot / JOURNAL, lambda: True).held()]
    if held:
        raise NotRetired(f"this node still holds channels for {_named(held)}", "end the pods of these claims")
    for socket in _listed(registry):
        if is_registration_socket(socket.name, CHANNELS_DRIVER_NAME):
            remove(socket)
    with storage_errors(folder, "removing"):
        shutil.rmtree(folder)


def _named(things: list[str]) -> str:
    more = len(things) - _MOST_NAMED
    return ", ".join(things[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def until_retired(
    attempt: Callable[[], None],
    wait: Callable[[float], object],
    tell: Callable[[str], None],
    again_seconds: float,
    tries: int,
) -> None:
    """Try until it succeeds; ``wait`` sleeps between two tries, and ``tell`` gets the reason of a failure.

    Raises the last DriverError after this many ``tries``.
    """
    for left in reversed(range(tries)):
        try:
            attempt()
        except DriverError as error:
            tell(str(error))
            _log.warning("cannot clean the node yet", error=error.logged)
            if left == 0:
                raise
            wait(again_seconds)
        else:
            return
