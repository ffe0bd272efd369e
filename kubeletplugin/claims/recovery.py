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
from typing import Literal

from driver.errors import DriverError, StorageError
from driver.process.boot import boot_folder, is_boot_folder
from driver.process.durable import remove_unfinished, storage_errors
from driver.process.log import get_logger
from kubeletplugin.claims.cdi.store import CdiStore
from kubeletplugin.claims.journal.entry import Entry, HeldDevice
from kubeletplugin.claims.journal.identity import Identity, boottime_ns
from kubeletplugin.claims.journal.journal import Journal
from kubeletplugin.claims.journal.locks import KeyedLocks, claim_key, gpu_key
from kubeletplugin.devices.kinds.kind import HeldKinds
from kubeletplugin.kubelet.wire.names import claim_of_cdi_spec

_log = get_logger("recovery")

_LOCK_SECONDS = 2.0

_DEVICE = re.compile(
    r"(?P<device>.+?)(?:-(?P<share_id>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}))?", re.ASCII
)
"""The part of a CDI device name behind the claim's UID: the device's name and, for a share, its id."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """The claims that were recovered, by UID.

    ``rebuilt`` entries were made from their CDI spec. ``removed`` specs belonged to no claim. ``failed`` has
    the reason why neither was possible; the next start tries again.
    """

    rebuilt: tuple[str, ...] = ()
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


def remove_litter(boot: Path, cdi: Path, alone: Callable[[], bool]) -> None:
    """Remove the unfinished files that a crash has left; ``alone()`` as in ``remove_unfinished``.

    Files that cannot be removed are logged. They do no harm.
    """
    try:
        for folder in (path for path in boot.iterdir() if path.is_dir()):
            remove_unfinished(folder, bool, alone)
        # Other drivers write here as well.
        remove_unfinished(cdi, lambda name: claim_of_cdi_spec(name) is not None, alone)
    except (StorageError, OSError) as error:
        _log.warning("cannot remove unfinished files", error=str(error))


def recover(
    journal: Journal, locks: KeyedLocks, store: CdiStore, identity: Identity, kinds: HeldKinds
) -> Recovered:
    """Make a journal entry for each CDI spec that has none, or remove the spec.

    A spec without an entry belongs to a claim whose journal file was lost or put aside. Its devices stay held
    until the claim is unprepared or the reconciler releases it. A spec beside a tombstone, or one that names
    no device of ours, is left over from an unprepare that did not finish.

    An error of the disk or of a lock affects only its own claim.
    """
    recovery = _Recovery(journal, locks, store, identity, kinds)
    known = {entry.uid: entry for entry in journal.entries()}
    rebuilt, removed, failed = [], [], []
    for uid in store.uids():
        if uid in known and known[uid].holds:
            continue
        try:
            outcome = recovery.recover(uid)
        except DriverError as error:
            failed.append((uid, str(error)))
            continue
        if outcome == "rebuilt":
            rebuilt.append(uid)
        elif outcome == "removed":
            removed.append(uid)
    return Recovered(tuple(rebuilt), tuple(removed), tuple(failed))


@dataclass(frozen=True, slots=True)
class _Recovery:
    """Recovers one claim at a time."""

    journal: Journal
    locks: KeyedLocks
    store: CdiStore
    identity: Identity
    kinds: HeldKinds

    def recover(self, uid: str) -> Literal["rebuilt", "removed", "fine"]:
        """Bring one claim's entry and spec together. Raises StorageError, ClaimBlocked."""
        with self.locks.holding([claim_key(uid)], _LOCK_SECONDS):
            # Read again: during a rolling update another instance may have worked on the claim until now.
            entry = None if uid in self.journal.unreadable() else self.journal.get(uid)
            if entry is not None and entry.holds:
                return "fine"
            # An entry that holds nothing is a tombstone: the spec is left over.
            devices = () if entry is not None else self._devices(uid)
            if not devices:
                self.store.remove(uid)
                return "removed"
            places = {place for device in devices for place in device.places}
            with self.locks.holding(map(gpu_key, places), _LOCK_SECONDS):
                self._rebuild(uid, devices)
            return "rebuilt"

    def _rebuild(self, uid: str, devices: tuple[HeldDevice, ...]) -> None:
        # Claims of earlier boots are gone before this runs, so the claim is of this boot. Which load of the
        # driver it was prepared with is not known; this one is assumed.
        generation = self.identity.driver_generation()
        self.journal.put(
            Entry(
                uid,
                "",
                "",
                "prepared",
                boottime_ns(),
                devices,
                rebuilt=True,
                driver_generation=generation,
            )
        )

    def _devices(self, uid: str) -> tuple[HeldDevice, ...]:
        """The devices that the claim's spec names. Their names alone say which GPUs they are on."""
        found = []
        for cdi_name in self.store.device_names(uid):
            match = _DEVICE.fullmatch(cdi_name.removeprefix(f"{uid}-"))
            name = self.kinds.parse(match["device"]) if match else None
            if match is not None and name is not None:
                first, *more = name.gpus or ("",)
                device, share_id, kind = match["device"], match["share_id"], name.kind.word
                held = HeldDevice("", self.identity.pool, device, first, "", cdi_name, share_id, kind=kind)
                found.append(replace(held, more_gpus=tuple(more)))
        return tuple(found)
