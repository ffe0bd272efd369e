"""Finds out which devices claims hold and which places on GPUs are blocked, for the controller to respect.

What claims hold is told soon after it changes. What is blocked comes from a look at the hardware: a GPU
instance that no claim accounts for is somebody else's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from itertools import chain

from driver.mig import GpuInstance
from driver.model import Gpu, Inventory
from driver.names import parse_device_name
from driver.node_state import BlockedPlacement, NodeState
from kubeletplugin.entry import Entry, HeldDevice
from kubeletplugin.journal import Journal


class NodeWatch:
    """Keeps the node's state up to date; ``update`` gets each new one, from the thread in ``run``."""

    def __init__(self, journal: Journal, boot_id: str, update: Callable[[NodeState], None]) -> None:
        self._journal = journal
        self._boot_id = boot_id
        self._update = update
        self._changed = threading.Condition()
        self._due = True
        self._stopped = False
        self._blocked: tuple[BlockedPlacement, ...] = ()

    def claims_changed(self) -> None:
        """Tell it that a claim has taken or given back devices; costs the caller next to nothing."""
        with self._changed:
            self._due = True
            self._changed.notify_all()

    def saw(self, inventory: Inventory, before: Iterable[Entry]) -> None:
        """Take in a look at the hardware; ``before`` are the journal's entries just before that look."""
        blocked = blocked_placements(inventory.gpus, [*before, *self._journal.entries()], self._boot_id)
        with self._changed:
            if blocked != self._blocked:
                self._blocked = blocked
                self._due = True
                self._changed.notify_all()

    def run(self) -> None:
        """Pass on every change until ``stop``."""
        while True:
            with self._changed:
                while not self._due and not self._stopped:
                    self._changed.wait()
                if self._stopped:
                    return
                self._due = False
                blocked = self._blocked
            entries = self._journal.entries()
            held = {
                device.device
                for entry in entries
                if entry.holds
                for device in entry.devices
                if not device.admin_access
            }
            self._update(NodeState(tuple(sorted(held)), blocked))

    def stop(self) -> None:
        """Make ``run`` return."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()


def blocked_placements(
    gpus: Iterable[Gpu], entries: Iterable[Entry], boot_id: str
) -> tuple[BlockedPlacement, ...]:
    """The places taken by GPU instances that no living claim of this boot accounts for.

    ``entries`` may have a claim more than once, as it was before and after the look at the hardware: an
    instance that was made or destroyed meanwhile is the claim's in one of them.
    """
    owners = [
        (entry, device)
        for entry in entries
        if entry.holds and (entry.boot_id == boot_id or entry.rebuilt)
        for device in entry.devices
    ]
    found = chain.from_iterable(
        (_blocked(gpu, instance, owners) for instance in gpu.mig.instances) for gpu in gpus if gpu.mig
    )
    return tuple(one for one in found if one is not None)


def _blocked(
    gpu: Gpu, instance: GpuInstance, owners: Iterable[tuple[Entry, HeldDevice]]
) -> BlockedPlacement | None:
    owning = [entry for entry, device in owners if _is_of(device, gpu, instance)]
    lies = instance.placement
    last = lies.start + lies.size - 1
    place = f"memory slice {last}" if lies.size == 1 else f"memory slices {lies.start} to {last}"
    if not owning:
        message = f"GPU instance {instance.id} of GPU {gpu.pci} at {place} was made by somebody else"
        return BlockedPlacement(gpu.pci, instance.placement, "foreign-instance", message)
    if any(entry.state != "releasing" for entry in owning):
        return None
    entry = owning[0]
    message = (
        f"GPU instance {instance.id} of GPU {gpu.pci} at {place} is left from claim "
        f"{entry.namespace}/{entry.name} (UID {entry.uid}) and could not be destroyed yet"
    )
    return BlockedPlacement(gpu.pci, instance.placement, "in-use", message)


def _is_of(device: HeldDevice, gpu: Gpu, instance: GpuInstance) -> bool:
    """Whether the instance is this device's: a part of a static instance is not its owner."""
    name = parse_device_name(device.device)
    if name is None or name.pci != gpu.pci or name.static or name.profile is None:
        return False
    record = device.partition
    if record is None:
        return name.start == instance.placement.start
    same_place = (record.profile_id, record.placement) == (instance.profile_id, instance.placement)
    return record.attempted and same_place
