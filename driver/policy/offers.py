"""Turns the physical GPUs of a node into the devices that it offers: whole and shared GPUs, MIG partitions.

Attribute names and types are those of NVIDIA's own driver, so that selectors written for it select
the same; to them come ours. What is not known is left out, never invented.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from driver.devices.device import Device
from driver.devices.gpu_offer import GpuOffer
from driver.devices.health import taints
from driver.devices.names import gpu_device_name
from driver.errors import ConfigError
from driver.hardware.topology import nvlink_islands, nvlink_peers
from driver.kinds.gpu_attributes import attribute_text, known, physical_attributes
from driver.kinds.layouts import largest_profile
from driver.kinds.mig_offers import GpuForms, gpu_forms
from driver.kinds.partition_devices import compute_capacity
from driver.kinds.sharing_devices import shared_device
from driver.kinds.sharing_offers import with_shared

if TYPE_CHECKING:
    from collections.abc import Mapping

    from driver.devices.device import AttributeValue, CounterSet
    from driver.hardware.gpu import Gpu, Inventory
    from driver.kinds.mig_offers import Part
    from driver.policy.config import NodeConfig


@dataclass(frozen=True, slots=True)
class Withheld:
    """A GPU that is there and not offered, or not in one of its forms, with the reason in words.

    ``part`` is what is kept back: all of the ``gpu``, the ``whole`` GPU while partitions of it are
    offered, the ``partitions`` that were asked for beside the whole GPU, or the ``shared`` devices.
    """

    gpu: Gpu
    reason: str
    part: Part = "gpu"


@dataclass(frozen=True, slots=True)
class Offers:
    """What a node offers, in packing order, the counters that it needs, and what it keeps back.

    A scheduler takes the first device that fits. So partitions come first, GPU by GPU in the order of the
    PCI addresses; then shared GPUs in the same order; then whole GPUs without counters, and fractional
    ones, in the same order; then whole GPUs with counters in the reverse order, so that partitions and
    shares fill a node from one end, and whole GPUs from the other.
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
    shared: list[Device] = []
    plain: list[Device] = []
    counting: list[Device] = []
    withheld: list[Withheld] = []
    counter_sets: list[CounterSet] = []
    for gpu in sorted(inventory.gpus, key=lambda gpu: gpu.pci):
        whole = _whole_gpu(gpu, inventory, _links(gpu, islands.get(gpu.pci), peers.get(gpu.pci)))
        forms = _forms(gpu, inventory, config, whole)
        withheld += [Withheld(gpu, reason, part) for part, reason in forms.withheld]
        partitions += forms.partitions
        if forms.counters is not None:
            counter_sets.append(forms.counters)
        whole = _beside_others(whole, gpu, forms)
        if forms.whole:
            (plain if forms.counters is None else counting).append(whole)
        for one in forms.shared:
            (plain if one.fractional else shared).append(shared_device(whole, one))
    devices = (*partitions, *shared, *plain, *reversed(counting))
    return Offers(devices, tuple(withheld), tuple(counter_sets))


def _forms(gpu: Gpu, inventory: Inventory, config: NodeConfig | None, whole: Device) -> GpuForms:
    try:
        offer = config.offer_of(gpu) if config else GpuOffer()
    except ConfigError as error:
        reason = f"the node configuration does not say what to offer: {error}"
        return GpuForms(withheld=(("gpu", reason),))
    return with_shared(gpu, offer, gpu_forms(gpu, offer, inventory), whole)


def _whole_gpu(gpu: Gpu, inventory: Inventory, links: Mapping[str, AttributeValue | None]) -> Device:
    """The GPU as a whole, when it has no other form."""
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
            "virtualization": gpu.virtualization,
            "vgpuProfile": attribute_text(gpu.vgpu_profile),
        }
    )
    capacity = {} if gpu.memory_bytes is None else {"memory": gpu.memory_bytes}
    return Device(gpu_device_name(gpu.pci), gpu.pci, attributes, capacity, taints(gpu.problems))


def _beside_others(whole: Device, gpu: Gpu, forms: GpuForms) -> Device:
    """The GPU as a whole beside its other forms: with their counters, and measured as partitions are."""
    attributes = known({**whole.attributes, "migWithheld": attribute_text(forms.mig_withheld)})
    counters = forms.counters
    if counters is None:
        return replace(whole, attributes=attributes)
    largest = largest_profile(gpu.mig) if gpu.mig and forms.partitions else None
    compute = {} if largest is None else compute_capacity(largest.multiprocessors, largest.engines)
    return replace(
        whole,
        attributes=attributes,
        capacity={**whole.capacity, **compute},
        counter_set=counters.name,
        consumes=dict(counters.counters),
    )


def _links(gpu: Gpu, island: str | None, peers: tuple[int, ...] | None) -> dict[str, AttributeValue | None]:
    """Where the GPU stands in the NVLinks of its node and in a fabric over several nodes."""
    return {
        "nvlinkDomain": island,
        "nvlinkPeers": attribute_text(",".join(map(str, peers))) if peers else None,
        "nvlinkPeerCount": None if peers is None else len(peers),
        "fabricClique": attribute_text(gpu.fabric_clique),
    }
