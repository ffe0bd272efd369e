"""Takes away what the plugin has made on a node, when the driver is uninstalled; a process of its own.

Nothing is taken from a claim: while one is prepared, everything stays and the pod of the claim is named.
Every step may be the last before a crash; the next call does the rest. Once the node is clean the process
says so until it is told to end.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from driver.devices.names import DRIVER_NAME
from driver.errors import DriverError, StorageError
from driver.process import probes
from driver.process.durable import remove
from driver.process.log import get_logger
from driver.process.probes import Probes
from driver.process.service import Service
from driver.process.sockets import is_registration_socket
from kubeletplugin.assembly import Parts
from kubeletplugin.kubelet.wire.server import is_answered
from kubeletplugin.migration.other_driver import FORMER_CHECKPOINT
from kubeletplugin.process_inputs import Given
from kubeletplugin.settings import Settings
from kubeletplugin.sharing.mps_client import MpsClient
from kubeletplugin.wiring import assemble_alone

TRIES = 15
"""How often it is tried: within some seconds a pod that was ended has let go of its devices."""

_log = get_logger("retire")

_MOST_NAMED = 10
_OWN = (
    "journal",
    "sharing",
    "fabric",
    "boot",
    "instances",
    "locks",
    "libraries",
    "hook",
    "metadata",
    "memory",
    "healing",
)
"""What the plugin makes in its folder, but for sockets, which go with their process."""


def retire_node(settings: Settings, given: Given) -> None:
    """Clean the node and stay until SIGTERM; raises DriverError when that cannot be done within some seconds.

    The process is ready, by its probe, when nothing of the plugin is left on the node; until then the probe
    says what is.
    """
    service = Service()
    service.catch_signals()
    progress = _Progress()
    probes.serve(service, settings.health_addr, Probes(lambda: "", lambda: "", progress.why_not))
    mps = MpsClient(settings.mps_socket)
    service.on_stop("MPS", mps.close)
    left = Left(settings.data_dir, settings.registry_dir, settings.mps_dir)
    assembled: list[Parts] = []

    def attempt() -> None:
        if not assembled:
            assembled.append(assemble_alone(settings, given, service))
        retire(assembled[0], mps, left)

    try:
        if settings.data_dir.exists():
            again_seconds = given.intervals.retire_again_seconds
            until_retired(attempt, service.stop_event.wait, progress.tell, again_seconds, TRIES)
        progress.tell("")
        _log.info("node is clean", driver=DRIVER_NAME, node=settings.node_name)
        service.run()
    finally:
        service.stop()


class _Progress:
    """Why the node is not clean, in one line; empty when it is."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._why_not = "it has not been looked at yet"

    def tell(self, why_not: str) -> None:
        with self._lock:
            self._why_not = why_not

    def why_not(self) -> str:
        with self._lock:
            return self._why_not


class NotRetired(DriverError):
    """Something on the node is still used or cannot be put back."""


@dataclass(frozen=True, slots=True)
class Left:
    """Where the plugin leaves things: its own folder, the kubelet's for registrations, that of MPS."""

    data: Path
    registry: Path
    mps: Path


def retire(parts: Parts, mps: MpsClient, left: Left) -> None:
    """Put the GPUs back as they were and remove every file of the plugin; needs that no plugin runs.

    Raises NotRetired where something has to end first, and StorageError; then nothing that a claim needs is
    gone.
    """
    if not parts.peers.alone():
        raise NotRetired("another instance of the plugin runs on this node", "end it first")
    # A claim of which nothing but its CDI spec is known is believed to be gone when that is seen twice.
    for _ in range(2):
        parts.reconciler.run_once()
    parts.reconciler.finish_releases()
    _refuse_held(parts)
    parts.sharing_reconciler.run_once()
    parts.fabric.run_once()
    _refuse_active(left.data / "fabric")
    _refuse_shared(left.data / "sharing")
    _end_daemons(mps, left.mps)
    _remove_files(left)


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


def _refuse_shared(records: Path) -> None:
    groups = sorted(path.stem for path in records.glob("*.json"))
    if groups:
        raise NotRetired(
            f"compute mode, time-slice or MPS daemon of {_named(groups)} could not be put back",
            "the lines before this one say why",
        )


def _refuse_active(records: Path) -> None:
    partitions = sorted(path.stem for path in records.glob("*.json"))
    if partitions:
        raise NotRetired(
            f"{_named(partitions)} of the NVLink fabric could not be deactivated",
            "the lines before this one say why",
        )


def _end_daemons(mps: MpsClient, folder: Path) -> None:
    """End every daemon of the supervisor, whoever asked for it: no claim is left that could."""
    if not any(folder.glob("*/daemon.json")):
        return
    for name in mps.known():
        mps.stop(name)


def _remove_files(left: Left) -> None:
    """Remove the sockets and the plugin's own folder, the journal's leftovers included."""
    aside = sorted(path.name for path in (left.data / "journal" / "unreadable").glob("*"))
    if aside:
        _log.warning("journal files that could not be read are removed", files=aside)
    others = is_of_another_driver(left.data)
    for socket in _listed(left.registry):
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
            f"removing {left.data} failed: {error.strerror}", "see what keeps it, and remove it"
        ) from error


def is_of_another_driver(data: Path) -> bool:
    """Whether NVIDIA's own driver, which has the same folder, keeps there what it has prepared."""
    return (data / FORMER_CHECKPOINT).exists()


def _remove_own(data: Path) -> None:
    """Remove from the folder what another driver has not made."""
    for name in _OWN:
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
    """Try until nothing is left; ``wait`` sleeps between two tries.

    ``tell`` hears why something is still there. Raises DriverError, the last one, after so many ``tries``.
    """
    for left in reversed(range(tries)):
        try:
            attempt()
        except DriverError as error:
            tell(str(error))
            _log.warning("not retired yet", error=error.logged)
            if left == 0:
                raise
            wait(again_seconds)
        else:
            return
