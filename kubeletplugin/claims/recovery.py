"""Brings the plugin's files in order when it starts, whatever happened before.

A reboot ends every claim on the node, every MIG instance, time-slice and compute mode. So what the plugin
knows of them lies in a folder that is named by the boot.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from driver.errors import DriverError, StorageError
from driver.kinds.registry import KINDS
from driver.process.boot import boot_folder, is_boot_folder
from driver.process.durable import remove_unfinished, storage_errors
from driver.process.log import get_logger
from kubeletplugin.claims.cdi.store import CdiStore
from kubeletplugin.claims.journal.entry import Entry, HeldDevice, Identity, boottime_ns
from kubeletplugin.claims.journal.journal import Journal
from kubeletplugin.claims.journal.locks import KeyedLocks, claim_key, gpu_key

_log = get_logger("recovery")

_LOCK_SECONDS = 2.0

_DEVICE = re.compile(
    r"(?P<device>.+?)(?:-(?P<share_id>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}))?", re.ASCII
)
"""The part of a CDI device name behind the claim's UID: the device's name and, for a share, its id."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """What the CDI specs without an entry have shown, by the UIDs of their claims.

    The entries of ``lost`` claims are gone. ``removed`` specs belonged to no claim. ``failed`` has the reason
    why neither is certain; the next start tries again.
    """

    lost: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    failed: tuple[tuple[str, str], ...] = ()


def begin_boot(data: Path, store: CdiStore, boot_id: str) -> Path:
    """The folder of the running boot in ``data``; the first start within the boot makes it.

    That start first removes the folders of earlier boots and the CDI specs of claims. The kubelet prepares
    its claims again. Callers make sure that one instance at a time runs this. Raises StorageError.
    """
    folder = boot_folder(data, boot_id)
    with storage_errors(folder, "making"):
        if folder.is_dir():
            return folder
        earlier = [path for path in data.iterdir() if is_boot_folder(path)]
    # The folders first: a spec without an entry says that an entry of its boot was lost.
    for path in earlier:
        with storage_errors(path, "removing"):
            shutil.rmtree(path)
    specs = store.uids()
    for uid in specs:
        store.remove(uid)
    if earlier or specs:
        _log.warning(
            "removed what an earlier boot left; claims are prepared again",
            boots=len(earlier),
            specs=len(specs),
        )
    # Last: a start that ends before this removes again. Nothing is fsynced, since a power cut ends the boot.
    with storage_errors(folder, "making"):
        folder.mkdir(mode=0o700)
    return folder


def remove_litter(boot: Path, cdi: Path, store: CdiStore, alone: Callable[[], bool]) -> None:
    """Remove the unfinished files that a crash has left; ``alone()`` as in ``remove_unfinished``.

    Files that cannot be removed are logged. They do no harm.
    """
    try:
        for folder in (path for path in boot.iterdir() if path.is_dir()):
            remove_unfinished(folder, bool, alone)
        # Other drivers write here as well.
        remove_unfinished(cdi, store.is_spec, alone)
    except (StorageError, OSError) as error:
        _log.warning("cannot remove unfinished files", error=str(error))


def recover(journal: Journal, locks: KeyedLocks, store: CdiStore, identity: Identity) -> Recovered:
    """Find the claims whose entry was lost by their CDI specs, and block their GPUs.

    The journal then has them as ``lost``, until the kubelet unprepares them or the reconciler finds that they
    are gone. Of such a claim only the GPUs are known, so nobody else gets these, and what was made for it
    stays. A spec beside a tombstone, or one that names no device of ours, is left over from an unprepare that
    did not finish, and is removed.

    An error of the disk or of a lock affects only its own claim.
    """
    known = {entry.uid: entry for entry in journal.entries()}
    lost, removed, failed = [], [], []
    for uid in store.uids():
        if uid in known and known[uid].holds:
            continue
        try:
            with locks.holding([claim_key(uid)], _LOCK_SECONDS):
                # Read again: another instance may have worked on the claim until now.
                entry = None if uid in journal.unreadable() else journal.get(uid)
                if entry is not None and entry.holds:
                    continue
                devices = () if entry is not None else _devices(uid, store, identity.pool)
                if devices:
                    _note_lost(uid, devices, journal, locks)
                    lost.append(uid)
                else:
                    store.remove(uid)
                    removed.append(uid)
        except DriverError as error:
            failed.append((uid, str(error)))
    return Recovered(tuple(lost), tuple(removed), tuple(failed))


def _note_lost(uid: str, devices: tuple[HeldDevice, ...], journal: Journal, locks: KeyedLocks) -> None:
    entry = Entry(uid, "", "", "lost", boottime_ns(), devices)
    with locks.holding(map(gpu_key, entry.places), _LOCK_SECONDS):
        journal.put(entry)


def _devices(uid: str, store: CdiStore, pool: str) -> tuple[HeldDevice, ...]:
    """The devices that the claim's spec names. Their names alone say which GPUs they are on."""
    found = []
    for cdi_name in store.device_names(uid):
        match = _DEVICE.fullmatch(cdi_name.removeprefix(f"{uid}-"))
        name = KINDS.parse(match["device"]) if match else None
        if match is not None and name is not None:
            first, *more = name.gpus or ("",)
            device, share_id = match["device"], match["share_id"]
            # No kind has this word: nothing is known but the GPUs.
            held = HeldDevice("", pool, device, first, "", cdi_name, share_id, kind="lost")
            found.append(replace(held, more_gpus=tuple(more)))
    return tuple(found)
