"""How much memory of a GPU each claim may have, according to the journal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from driver.errors import ClaimRefused
from kubeletplugin.claims.journal.entry import Entry, HeldDevice, MemoryRecord, standing
from kubeletplugin.claims.journal.journal import Journal
from kubeletplugin.kubelet.wire.containers import ContainerStart
from kubeletplugin.sharing.memory.division import extras

Device = tuple[str, str]
"""Claim UID and CDI device."""

_PREPARE_AGAIN = "delete the pod, so that its claim is prepared again"


@dataclass(frozen=True, slots=True)
class Allowance:
    """How much memory of a GPU the containers with one device of a claim may have, all together."""

    device: Device
    # The allocated device.
    name: str
    # The address and the UUID of the GPU.
    pci: str
    uuid: str
    memory: MemoryRecord
    # How many requests of the claim have devices. The kubelet lists which containers have something of a
    # claim, but not which request each of them uses.
    requests: int
    # Whether an MPS server serves the claim's processes.
    uses_mps: bool
    has_several_gpus: bool
    # The most that they may have now; ``memory.most_bytes`` is the most that they can ever have.
    most_bytes: int

    @property
    def bursts(self) -> bool:
        """Whether the claim can ever have more than it is guaranteed."""
        return self.memory.most_bytes > self.memory.guaranteed_bytes


class Allowances:
    """The claims of one node, as the journal has them now."""

    def __init__(self, journal: Journal, generation: Callable[[], str]) -> None:
        self._journal = journal
        self._generation = generation

    def for_start(self, start: ContainerStart) -> Allowance:
        """The allowance of the device with which a container starts.

        Raises ClaimRefused if the container must not have the device, StorageError.
        """
        entry = self._journal.get(start.claim_uid)
        now = standing(entry, self._generation())
        if entry is None or now.state in ("released", "releasing"):
            raise ClaimRefused(
                f"claim {start.claim_uid} is not prepared on this node, so no container can get its devices",
                _PREPARE_AGAIN,
            )
        if now.ended:
            raise ClaimRefused(
                f"claim {entry.owner} was prepared before the node's NVIDIA driver was reloaded",
                _PREPARE_AGAIN,
            )
        found = next((one for one in _allowed(entry) if one.device == (entry.uid, start.cdi_device)), None)
        if found is None:
            raise ClaimRefused(
                f"claim {entry.owner} has no device {start.cdi_device} with a memory limit, so the "
                "container cannot be limited",
                _PREPARE_AGAIN,
            )
        if found.has_several_gpus:
            raise ClaimRefused(
                f"{found.name} spans several GPUs, but a memory limit applies to one",
                "use a class whose devices are on one GPU each",
            )
        return found

    def on_gpu(
        self, pci: str, memory_bytes: Callable[[], int], live: Iterable[Device]
    ) -> Mapping[Device, Allowance]:
        """The allowances of all devices on a GPU now.

        The memory that no claim is guaranteed is divided among the ``live`` devices, those with containers,
        that may burst. ``memory_bytes()`` is the memory of the GPU; it is called only if a device may burst.
        """
        # Without the load of the driver: containers of claims from an earlier load may still be there.
        holders = self._journal.holders(pci)
        found = {one.device: one for entry in holders for one in _allowed(entry) if one.pci == pci}
        wanted = {
            device: one.memory.most_bytes - one.memory.guaranteed_bytes
            for device in dict.fromkeys(live)
            if (one := found.get(device)) is not None and one.bursts
        }
        if not wanted:
            return found
        guaranteed = [_guaranteed(held, pci) for entry in holders for held in entry.devices]
        # If the guarantee of one claim is unknown, nothing counts as free.
        unknown = any(amount is None for amount in guaranteed)
        free_bytes = 0 if unknown else memory_bytes() - sum(amount or 0 for amount in guaranteed)
        more = extras(free_bytes, wanted)
        return {
            device: replace(one, most_bytes=one.memory.guaranteed_bytes + more.get(device, 0))
            for device, one in found.items()
        }


def _allowed(entry: Entry) -> Iterator[Allowance]:
    requests = len({held.request for held in entry.devices})
    for held in entry.devices:
        memory = held.memory
        if memory is None:
            continue
        uses_mps = held.share is not None and held.share.strategy == "MPS"
        yield Allowance(
            (entry.uid, held.cdi_device),
            held.device,
            held.pci,
            held.uuid,
            memory,
            requests,
            uses_mps,
            bool(held.more_gpus),
            memory.guaranteed_bytes,
        )


def _guaranteed(held: HeldDevice, pci: str) -> int | None:
    """The bytes of a GPU that are guaranteed to a device, None if unknown."""
    if pci not in held.gpus or held.admin_access:
        return 0
    if held.memory is not None:
        return held.memory.guaranteed_bytes
    return held.share.memory_bytes or None if held.share is not None else None
