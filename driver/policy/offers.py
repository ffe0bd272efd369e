"""Makes what a node offers of its GPUs, the node configuration and the kinds of devices.

Attributes have the names and types of NVIDIA's own driver, so that selectors written for it work; there are
some more of ours. Unknown values are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain

from driver.devices.device import CounterSet, Device, Taint
from driver.devices.gpu_policy import HIDDEN, GpuPolicy
from driver.errors import ConfigError
from driver.hardware.functions import NVIDIA_KERNEL_DRIVER, PciFunction
from driver.hardware.gpu import Inventory
from driver.health.health_rules import HealthRules
from driver.health.judge import taints_of_doubt, verdicts_of_problems
from driver.health.verdict import with_verdicts
from driver.kinds.forms import Forms, GpuForms, Part
from driver.kinds.memory_limits import limits_unknown
from driver.kinds.registry import KINDS
from driver.kinds.whole import WHOLE
from driver.nvml.pci_address import PciAddress
from driver.policy.predicate import ValueUnknown
from driver.policy.rules import NodeConfig

HIDDEN_BY_RULE = "the node configuration hides it"


@dataclass(frozen=True, slots=True)
class Withheld:
    """A GPU of the node that is not offered, or not in one of its forms, with the reason in words.

    ``part`` is what is not offered: all of the ``gpu``, the ``whole`` GPU while its partitions are offered,
    the ``partitions`` that are wanted beside the whole GPU, the ``shared`` devices, or ``passthrough``.
    """

    pci: PciAddress
    reason: str
    part: Part = "gpu"


@dataclass(frozen=True, slots=True)
class Offers:
    """What a node offers, in packing order, the counters that it needs, and what it does not offer.

    ``doubts`` are the GPUs of which something is not known; those in doubt as a whole have no devices here.
    """

    devices: tuple[Device, ...]
    withheld: tuple[Withheld, ...]
    counter_sets: tuple[CounterSet, ...] = ()
    doubts: tuple[Doubt, ...] = ()

    @property
    def knows_nothing(self) -> bool:
        """Whether nothing at all is known of the node's GPUs yet."""
        return not self.devices and not self.withheld and any(one.pci is None for one in self.doubts)


def node_offers(
    inventory: Inventory,
    config: NodeConfig | None = None,
    *,
    away: Collection[frozenset[PciAddress]] = (),
    without_driver: Taint | None = None,
) -> Offers:
    """The devices of a node in the forms that ``config`` wants.

    Without ``config`` each GPU is offered whole, or as the partitions that an admin made on it. A GPU with
    problems is offered; ``tainted_offers`` adds its taints. A GPU for which a rule cannot be evaluated is not
    offered.

    ``away`` are the GPUs that left the NVIDIA driver for a claim, one set for each device. ``without_driver``
    is the taint of GPUs that wait for the NVIDIA driver, on a node that has none at the moment.
    """
    judged = _judged(inventory, config)
    forms = Forms()
    for offering in KINDS.offerings:
        forms = offering.devices(inventory, judged.policies, forms)
    ordered = [(pci, forms.gpus[pci]) for pci in sorted(forms.gpus)]
    withheld = [
        *judged.withheld,
        *(Withheld(pci, reason, part) for pci, found in ordered for part, reason in found.withheld),
    ]
    without_nvidia = {kind.form for kind in KINDS if kind.leaves_driver}
    in_need = {pci for pci, policy in judged.policies.items() if policy.form not in without_nvidia}
    # GPUs that will come back to the NVIDIA driver keep their published devices, so they are no withheld
    # ones.
    apart = expected_back(inventory, in_need | judged.undecided, away, without_driver)
    withheld = [one for one in withheld if one.pci not in apart]
    withheld += [
        Withheld(function.pci, why_without_driver(function))
        for function in without_nvidia_driver(inventory)
        if function.pci in judged.policies and function.pci not in forms.gpus and function.pci not in apart
    ]
    undecided = judged.undecided | {pci for pci, found in ordered if found.doubtful}
    health = HealthRules() if config is None else config.health
    doubts = (one for one in _doubts(inventory, judged, undecided, health) if one.pci not in apart)
    return Offers(
        _in_packing_order([found for _, found in ordered], forms.others),
        tuple(sorted(withheld, key=lambda one: one.pci)),
        tuple(found.counters for _, found in ordered if found.counters is not None),
        (*doubts, *apart.values()),
    )


def tainted_offers(inventory: Inventory, config: NodeConfig | None = None) -> Offers:
    """What ``node_offers`` makes, with the taints of what this one check found wrong with the GPUs.

    The controller adds them itself, with those of faults of which only it knows.
    """
    offers, rules = node_offers(inventory, config), HealthRules() if config is None else config.health
    found = (verdicts_of_problems(gpu.pci, gpu.problems, rules) for gpu in inventory.gpus)
    return replace(offers, devices=with_verdicts(offers.devices, tuple(chain.from_iterable(found))))


def _doubts(
    inventory: Inventory, judged: _Judged, undecided: Collection[PciAddress], health: HealthRules
) -> tuple[Doubt, ...]:
    read = (
        Doubt(
            gpu.pci,
            gpu.pci in undecided,
            taints_of_doubt(gpu.problems, health),
            limits=limits_unknown(gpu, judged.policies.get(gpu.pci, GpuPolicy())),
        )
        for gpu in inventory.gpus
        if gpu.unanswered
    )
    # A doubt without a GPU concerns the whole node: no pod is evicted because NVML does not work.
    unread = (
        Doubt(
            one.pci,
            whole=True,
            taints=taints_of_doubt(one.problems, HealthRules() if one.pci is None else health),
        )
        for one in inventory.unread
    )
    return (*read, *unread)


@dataclass(frozen=True, slots=True)
class _Judged:
    """The policies of the GPUs that are offered, the GPUs that are not, and those where that is not known."""

    policies: dict[PciAddress, GpuPolicy] = field(default_factory=dict)
    withheld: list[Withheld] = field(default_factory=list)
    undecided: set[PciAddress] = field(default_factory=set)

    def judge(self, pci: PciAddress, policy_of: Callable[[], GpuPolicy]) -> None:
        """Evaluate and add the policy of a GPU."""
        try:
            policy = policy_of()
        except ValueUnknown as error:
            self.undecided.add(pci)
            self.withheld.append(Withheld(pci, error.what))
            return
        except ConfigError as error:
            reason = f"the node configuration does not say what to offer: {error}"
            self.withheld.append(Withheld(pci, reason))
            return
        if policy.form == HIDDEN:
            self.withheld.append(Withheld(pci, HIDDEN_BY_RULE))
        else:
            self.policies[pci] = policy


def _judged(inventory: Inventory, config: NodeConfig | None) -> _Judged:
    rules = config or NodeConfig()
    judged = _Judged()
    for gpu in inventory.gpus:
        judged.judge(gpu.pci, partial(rules.policy_of, gpu))
    for function in without_nvidia_driver(inventory):
        judged.judge(function.pci, partial(rules.policy_of_function, function))
    return judged


def _in_packing_order(ordered: Sequence[GpuForms], others: Sequence[Device]) -> tuple[Device, ...]:
    """The devices in the order in which a scheduler should take them; it takes the first that fits."""
    # Partitions and shares fill the node from the first GPU on, and whole GPUs that have other forms from the
    # last GPU on, so that the forms get into each other's way as late as possible.
    partitions = [device for forms in ordered for device in forms.partitions]
    shared: list[Device] = []
    plain: list[Device] = []
    counting: list[Device] = []
    for forms in ordered:
        if forms.whole:
            (plain if forms.counters is None else counting).append(forms.all_of_it)
        for device in forms.shared:
            # A claim that asks a fractional device for no amount takes all of it, so it counts as a whole
            # GPU.
            (plain if device.attributes["type"] == WHOLE.attribute_type else shared).append(device)
    return (*partitions, *shared, *plain, *reversed(counting), *_passed_through(ordered), *others)


def _passed_through(ordered: Sequence[GpuForms]) -> tuple[Device, ...]:
    """The GPUs for virtual machines, each with the counters of its GPUs, in the same order as whole GPUs."""
    counters = {forms.physical.pci: forms.counters for forms in ordered}
    plain: list[Device] = []
    counting: list[Device] = []
    for forms in ordered:
        if forms.passthrough is None:
            continue
        sets = [found for region in forms.passthrough.regions if (found := counters.get(region.pci))]
        (counting if sets else plain).append(forms.passthrough.consuming_all(sets))
    return (*plain, *reversed(counting))


@dataclass(frozen=True, slots=True)
class Doubt:
    """Part of a GPU could not be read, so its published devices count until it can be."""

    # None means every GPU of the node that was not read.
    pci: PciAddress | None
    # Whether it is not known which devices the GPU has; otherwise only some of their attributes are missing.
    # The published devices are kept, and offered ones are used only if nothing is published.
    whole: bool
    # The taints of the devices that are kept.
    taints: tuple[Taint, ...]
    # Whether the GPU left the NVIDIA driver for a claim, so that nothing is wrong with it.
    away: bool = False
    # Whether it is not known if the NVIDIA driver can limit containers' memory of the GPU.
    limits: bool = False


def without_nvidia_driver(inventory: Inventory) -> tuple[PciFunction, ...]:
    """The physical GPUs that NVML does not list, because another kernel driver has them, or none."""
    listed = {gpu.pci for gpu in inventory.gpus}
    return tuple(
        function
        for function in inventory.pci.physical
        if function.driver != NVIDIA_KERNEL_DRIVER and function.pci not in listed
    )


def why_without_driver(function: PciFunction) -> str:
    """Why a GPU that is not bound to the NVIDIA driver cannot be offered to containers."""
    if function.driver is None:
        return "it has no kernel driver"
    return f"its kernel driver is {function.driver}, not the NVIDIA driver"


def expected_back(
    inventory: Inventory,
    in_need: Collection[PciAddress],
    away: Collection[frozenset[PciAddress]],
    without_driver: Taint | None,
) -> dict[PciAddress, Doubt]:
    """The GPUs that should come back to the NVIDIA driver: those of claims, and those without any driver.

    ``in_need`` are the GPUs that are offered in a form that needs the NVIDIA driver.
    """
    listed = {gpu.pci for gpu in inventory.gpus}
    gone = {function.pci for function in inventory.pci.physical} - listed
    # The GPUs of one device change their driver one after the other: all count as away if one is.
    found = {
        pci: Doubt(pci, whole=True, taints=(), away=True)
        for together in away
        if not together.isdisjoint(gone)
        for pci in sorted(together)
    }
    if without_driver is not None:
        found |= {
            function.pci: Doubt(function.pci, whole=True, taints=(without_driver,))
            for function in without_nvidia_driver(inventory)
            if function.pci not in found and function.driver is None and function.pci in in_need
        }
    return found
