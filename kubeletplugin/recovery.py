"""Brings journal and CDI folder together when the plugin starts, whatever happened before."""

from __future__ import annotations

from dataclasses import dataclass

from driver.names import parse_gpu_device_name
from kubeletplugin.cdi_store import CdiStore
from kubeletplugin.entry import Entry, HeldDevice
from kubeletplugin.journal import Journal
from kubeletplugin.preparer import Identity, boottime_ns


@dataclass(frozen=True, slots=True)
class Recovered:
    """What was done: claims whose entry was rebuilt from their CDI spec, and specs that were removed."""

    rebuilt: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


def recover(journal: Journal, store: CdiStore, identity: Identity) -> Recovered:
    """Give each CDI spec its journal entry back, or remove it.

    A spec without an entry belongs to a claim whose journal file was lost or put aside: its devices
    stay held until the kubelet or the reconciler says otherwise. A spec beside a tombstone, or one
    that names no device of ours, is left over from an unprepare that did not finish.
    """
    known = {entry.uid: entry for entry in journal.entries()}
    rebuilt, removed = [], []
    for uid in store.uids():
        entry = known.get(uid)
        if entry is not None and entry.holds:
            continue
        devices = () if entry is not None else _devices(uid, store.device_names(uid), identity.pool)
        if devices:
            journal.put(
                Entry(uid, "", "", "prepared", identity.boot_id, boottime_ns(), devices, "", rebuilt=True)
            )
            rebuilt.append(uid)
        else:
            store.remove(uid)
            removed.append(uid)
    return Recovered(tuple(rebuilt), tuple(removed))


def _devices(uid: str, cdi_names: tuple[str, ...], pool: str) -> tuple[HeldDevice, ...]:
    found = []
    for cdi_name in cdi_names:
        device = cdi_name.removeprefix(f"{uid}-")
        pci = parse_gpu_device_name(device)
        if pci is not None:
            found.append(HeldDevice("", pool, device, str(pci), "", cdi_name))
    return tuple(found)
