"""Turns the physical GPUs of a node into the devices that it offers: whole GPUs and MIG partitions.

Attribute names and types are those of NVIDIA's own driver, so that selectors written for it select
the same; to them come ours. What is not known is left out, never invented.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from driver.errors import ConfigError
from driver.gpu_attributes import attribute_text, known, physical_attributes
from driver.gpu_offer import GpuOffer
from driver.health import taints
from driver.layouts import largest_profile
from driver.mig_offers import GpuForms, gpu_forms
from driver.model import Device
from driver.names import gpu_device_name
from driver.partition_devices import compute_capacity
from driver.topology import nvlink_islands, nvlink_peers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from driver.config import NodeConfig
    from driver.mig_offers import Part
    from driver.model import AttributeValue, CounterSet, Gpu, Inventory


@dataclass(frozen=True, slots=True)
class Withheld:
    """A GPU that is there and not offered, or not in one of its forms, with the reason in words.

    ``part`` is what is kept back: all of the ``gpu``, the ``whole`` GPU while partitions of it are
    offered, or the ``partitions`` that were asked for beside the whole GPU.
    """

    gpu: Gpu
    reason: str
    part: Part = "gpu"


@dataclass(frozen=True, slots=True)
class Offers:
    """What a node offers, in packing order, the counters that it needs, and what it keeps back.

    A scheduler takes the first device that fits. So partitions come first, GPU by GPU in the order of the
    PCI addresses; then whole GPUs without counters in the same order; then those with counters in the
    reverse order, so that partitions and whole GPUs fill a node from opposite ends.
    """

    devices: tuple[Device, ...]
    withheld: tuple[Withheld, ...]
    counter_sets: tuple[CounterSet, ...] = ()


def node_offers(inventory: Inventory, config: NodeConfig | None = None) -> Offers:
    """The devices of a node in the forms that ``config`` says.

    Without it each GPU is offered whole, or as the partitions that an admin made on it. A GPU with
    problems stays, with taints on all its forms. A rule that cannot be evaluated for a GPU keeps it back.
    """
    islands, peers = nvlink_islands(inventory.gpus), nvlink_peers(inventory.gpus)
    partitions: list[Device] = []
    plain: list[Device] = []
    counting: list[Device] = []
    withheld: list[Withheld] = []
    counter_sets: list[CounterSet] = []
    for gpu in sorted(inventory.gpus, key=lambda gpu: gpu.pci):
        forms = _forms(gpu, inventory, config)
        withheld += [Withheld(gpu, reason, part) for part, reason in forms.withheld]
        partitions += forms.partitions
        if forms.counters is not None:
            counter_sets.append(forms.counters)
        if forms.whole:
            links = _links(gpu, islands.get(gpu.pci), peers.get(gpu.pci))
            whole = _whole_gpu(gpu, inventory, links, forms)
            (plain if forms.counters is None else counting).append(whole)
    devices = (*partitions, *plain, *reversed(counting))
    return Offers(devices, tuple(withheld), tuple(counter_sets))


def _forms(gpu: Gpu, inventory: Inventory, config: NodeConfig | None) -> GpuForms:
    try:
        offer = config.offer_of(gpu) if config else GpuOffer()
    except ConfigError as error:
        reason = f"the node configuration does not say what to offer: {error}"
        return GpuForms(withheld=(("gpu", reason),))
    return gpu_forms(gpu, offer, inventory)


def _whole_gpu(
    gpu: Gpu, inventory: Inventory, links: Mapping[str, AttributeValue | None], forms: GpuForms
) -> Device:
    attributes = known(
        {
            **physical_attributes(gpu, inventory),
            **links,
            "type": "gpu",
            "uuid": gpu.uuid,
            # Nobody else is on a whole GPU, so nobody else's work can reach its memory.
            "sharing": "none",
            "memoryIsolation": "hardware",
            "migCapable": gpu.mig_capable,
            "migWithheld": attribute_text(forms.mig_withheld),
            "virtualization": gpu.virtualization,
            "vgpuProfile": attribute_text(gpu.vgpu_profile),
        }
    )
    capacity = {} if gpu.memory_bytes is None else {"memory": gpu.memory_bytes}
    largest = largest_profile(gpu.mig) if gpu.mig and forms.counters else None
    if largest is not None:
        capacity |= compute_capacity(largest.multiprocessors, largest.engines)
    return Device(
        gpu_device_name(gpu.pci),
        gpu.pci,
        attributes,
        capacity,
        taints(gpu.problems),
        counter_set=forms.counters.name if forms.counters else "",
        consumes=dict(forms.counters.counters) if forms.counters else {},
    )


def _links(gpu: Gpu, island: str | None, peers: tuple[int, ...] | None) -> dict[str, AttributeValue | None]:
    """Where the GPU stands in the NVLinks of its node and in a fabric over several nodes."""
    return {
        "nvlinkDomain": island,
        "nvlinkPeers": attribute_text(",".join(map(str, peers))) if peers else None,
        "nvlinkPeerCount": None if peers is None else len(peers),
        "fabricClique": attribute_text(gpu.fabric_clique),
    }
