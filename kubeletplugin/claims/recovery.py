"""Makes the journal and the CDI folder agree when the plugin starts, whatever happened before."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from driver.errors import DriverError
from kubeletplugin.claims.cdi.store import CdiStore
from kubeletplugin.claims.journal.entry import Entry, HeldDevice
from kubeletplugin.claims.journal.identity import Identity, boottime_ns
from kubeletplugin.claims.journal.journal import Journal
from kubeletplugin.claims.journal.locks import KeyedLocks, claim_key, gpu_key
from kubeletplugin.devices.kinds.kind import HeldKinds

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
        era = self.identity.era()
        self.journal.put(
            Entry(
                uid,
                "",
                "",
                "prepared",
                era.boot_id,
                boottime_ns(),
                devices,
                rebuilt=True,
                driver_generation=era.driver_generation,
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
