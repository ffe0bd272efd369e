"""Joins the GPUs of a node, the node configuration and the kinds of devices into what the node offers.

Attribute names and types are those of NVIDIA's own driver, so that selectors written for it select
the same; to them come ours. What is not known is left out, never invented.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from driver.devices.gpu_policy import HIDDEN, GpuPolicy
from driver.devices.health import taints_of_doubt
from driver.errors import ConfigError
from driver.kinds.forms import Forms
from driver.kinds.registry import KINDS
from driver.kinds.whole import WHOLE
from driver.policy.predicate import NotTold

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from driver.devices.device import CounterSet, Device, Taint
    from driver.hardware.gpu import Gpu, Inventory
    from driver.kinds.forms import GpuForms, Part
    from driver.kinds.kind import Kinds
    from driver.nvml.pci_address import PciAddress
    from driver.policy.rules import NodeConfig

HIDDEN_BY_RULE = "the node configuration hides it"


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
class Doubt:
    """Something of a GPU was never told, so what is published of it already has to stand in for it.

    ``pci`` is None for whatever GPU of the node was not read. With ``whole`` nobody knows which devices the
    GPU has, else only some of their attributes are missing. ``taints`` are for devices that nobody can see.
    """

    pci: PciAddress | None
    whole: bool
    taints: tuple[Taint, ...]


@dataclass(frozen=True, slots=True)
class Offers:
    """What a node offers, in packing order, the counters that it needs, and what it keeps back.

    A scheduler takes the first device that fits. So partitions come first, GPU by GPU in the order of the
    PCI addresses; then shared GPUs in the same order; then whole GPUs without counters, and fractional
    ones, in the same order; then whole GPUs with counters in the reverse order, so that partitions and
    shares fill a node from one end, and whole GPUs from the other. ``doubts`` are the GPUs of which something
    was never told; those that are in doubt as a whole have no devices here.
    """

    devices: tuple[Device, ...]
    withheld: tuple[Withheld, ...]
    counter_sets: tuple[CounterSet, ...] = ()
    doubts: tuple[Doubt, ...] = ()

    @property
    def blind(self) -> bool:
        """Whether nothing at all is known of the node yet."""
        return not self.devices and not self.withheld and any(one.pci is None for one in self.doubts)


def node_offers(inventory: Inventory, config: NodeConfig | None = None, kinds: Kinds = KINDS) -> Offers:
    """The devices of a node in the forms that ``config`` says.

    Without it each GPU is offered whole, or as the partitions that an admin made on it. A GPU with
    problems stays, with taints on all its forms. A rule that cannot be evaluated for a GPU keeps it back.
    """
    policies, withheld, undecided = _policies(inventory, config)
    forms = Forms()
    for offering in kinds.offerings:
        forms = offering.devices(inventory, policies, forms)
    by_address = sorted((gpu for gpu in inventory.gpus if gpu.pci in forms.gpus), key=lambda gpu: gpu.pci)
    withheld += [
        Withheld(gpu, reason, part) for gpu in by_address for part, reason in forms.gpus[gpu.pci].withheld
    ]
    ordered = [forms.gpus[gpu.pci] for gpu in by_address]
    counters = tuple(one.counters for one in ordered if one.counters is not None)
    undecided |= {gpu.pci for gpu in by_address if forms.gpus[gpu.pci].doubtful}
    return Offers(
        _in_packing_order(ordered, forms.others),
        tuple(sorted(withheld, key=_address)),
        counters,
        _doubts(inventory, undecided),
    )


def _doubts(inventory: Inventory, undecided: Collection[PciAddress]) -> tuple[Doubt, ...]:
    read = (
        Doubt(gpu.pci, gpu.pci in undecided, taints_of_doubt(gpu.problems))
        for gpu in inventory.gpus
        if gpu.untold
    )
    return (
        *read,
        *(Doubt(one.pci, whole=True, taints=taints_of_doubt(one.problems)) for one in inventory.unread),
    )


def _policies(
    inventory: Inventory, config: NodeConfig | None
) -> tuple[dict[PciAddress, GpuPolicy], list[Withheld], set[PciAddress]]:
    """What is to be offered of each GPU, the GPUs of which nothing is, and those where nobody can tell."""
    policies: dict[PciAddress, GpuPolicy] = {}
    withheld: list[Withheld] = []
    undecided: set[PciAddress] = set()
    for gpu in inventory.gpus:
        try:
            policy = config.policy_of(gpu) if config else GpuPolicy()
        except NotTold as error:
            undecided.add(gpu.pci)
            withheld.append(Withheld(gpu, error.what))
            continue
        except ConfigError as error:
            withheld.append(Withheld(gpu, f"the node configuration does not say what to offer: {error}"))
            continue
        if policy.form == HIDDEN:
            withheld.append(Withheld(gpu, HIDDEN_BY_RULE))
        else:
            policies[gpu.pci] = policy
    return policies, withheld, undecided


def _in_packing_order(ordered: Sequence[GpuForms], others: Sequence[Device]) -> tuple[Device, ...]:
    """The devices in the order in which a scheduler is to take them (see ``Offers``)."""
    partitions = [device for forms in ordered for device in forms.partitions]
    shared: list[Device] = []
    plain: list[Device] = []
    counting: list[Device] = []
    for forms in ordered:
        if forms.whole:
            (plain if forms.counters is None else counting).append(forms.all_of_it)
        for device in forms.shared:
            # Who asks a fractional device for no amount takes all of it, as of a whole GPU.
            (plain if device.attributes["type"] == WHOLE.attribute_type else shared).append(device)
    return (*partitions, *shared, *plain, *reversed(counting), *others)


def _address(withheld: Withheld) -> PciAddress:
    return withheld.gpu.pci
