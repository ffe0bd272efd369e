"""Shared devices: a layer over the kinds, by which several claims can be given one device at once.

A shared device lies on a device of a kind, whose name its own begins with; so what prepare does is done for
the kind beneath, and sharing on top of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from driver.devices.device import AttributeValue, Device, RequestPolicy, Version
from driver.devices.gpu_policy import GpuPolicy, SharedOffer
from driver.devices.memory_limits import BY_CGROUP, MEMORY_LIMITS, SMALLEST_LIMIT_BYTES
from driver.devices.names import gpu_device_name, shared_device_name
from driver.devices.sharing import MEMORY, MOST_MPS_CLIENTS, SHARES, Strategy
from driver.hardware.call_effects import MEMORY_CALLS
from driver.hardware.gpu import Gpu, Inventory
from driver.kinds.forms import Forms, GpuForms, alternatives
from driver.kinds.gpu_attributes import known
from driver.kinds.kind import Policies, PolicyField
from driver.kinds.memory_limits import limits_unknown
from driver.kinds.sharing.field import SharedField
from driver.kinds.whole import WHOLE
from kubernetes_rules.quantity import format_bytes

SHARING: dict[Strategy, str] = {"TimeSlicing": "time-slicing", "MPS": "mps"}
"""The value of the attribute ``sharing`` for each strategy."""

_WHOLE_GPUS_ALONE = frozenset(
    {
        "nvlinkDomain",
        "nvlinkMesh",
        "nvlinkPeers",
        "nvlinkPeerCount",
        "nvlinkPeerLinks",
        "cpuAffinity",
        "fabricClique",
        "migCapable",
        "migWithheld",
    }
)
"""Attributes that help only a claim that has the whole GPU for itself."""

_VOLTA = 7
"""The first major compute capability whose MPS clients can be limited."""

_COMPUTE_SLICES = 7
_TOO_SMALL = (
    f"CUDA does not start with less than {format_bytes(SMALLEST_LIMIT_BYTES)}, to which the NVIDIA driver "
    "would hold it (memoryLimits: false forbids that)"
)
_MIB = 2**20


def _shared_device(exclusive: Device, offer: SharedOffer, *, limits_unknown: bool = False) -> Device:
    """The device that several claims can be given at once, made from the one that a claim has for itself.

    It lies where that one lies and consumes the same counters: the scheduler counts them once, with
    the first share (KEP-5075). A fractional one keeps all that a whole GPU says of itself. With
    ``limits_unknown`` it is not known whether the NVIDIA driver holds shares to their memory.
    """
    least_bytes = _least_bytes(exclusive)
    capacity, policies = _measures(offer, exclusive.capacity.get(MEMORY), least_bytes)
    kept = {
        name: value
        for name, value in exclusive.attributes.items()
        if offer.fractional or name not in _WHOLE_GPUS_ALONE
    }
    told: dict[str, AttributeValue | None] = {
        "type": WHOLE.attribute_type if offer.fractional else "shared",
        "sharing": SHARING[offer.strategy],
        "memoryIsolation": _memory_isolation(exclusive, offer, limits_unknown),
    }
    return replace(
        exclusive,
        name=shared_device_name(exclusive.name, offer.form),
        attributes=known({**kept, **told}),
        capacity=capacity,
        policies=policies,
    )


def _memory_isolation(exclusive: Device, offer: SharedOffer, limits_unknown: bool) -> str | None:
    """What keeps others off the memory of a share, the stronger of two; None where that is not known."""
    # Compute mode EXCLUSIVE_PROCESS keeps all but the MPS server off a GPU; partitions have no such mode.
    if offer.strategy == "MPS" and exclusive.takes_all:
        return "mps"
    if exclusive.attributes.get(MEMORY_LIMITS) == BY_CGROUP:
        return BY_CGROUP
    return None if limits_unknown and exclusive.takes_all else "none"


def _why_not_shared(gpu: Gpu, exclusive: Device, offer: SharedOffer) -> str | None:
    """Why the GPU, or the partition of it, cannot be shared so; None when it can."""
    memory_bytes, least_bytes = exclusive.capacity.get(MEMORY), _least_bytes(exclusive)
    if offer.step_bytes is not None:
        step = format_bytes(offer.step_bytes)
        if memory_bytes is None:
            return "NVML does not tell its memory, which is to be shared out"
        has = f"of its memory {format_bytes(memory_bytes)} can be shared, less than two"
        if memory_bytes < 2 * offer.step_bytes:
            return f"{has} steps of {step}"
        if memory_bytes < _least_steps(offer.step_bytes, least_bytes) + offer.step_bytes:
            return f"{has} shares: {_TOO_SMALL}"
    elif offer.shares is not None and memory_bytes is not None and memory_bytes < offer.shares * least_bytes:
        most = memory_bytes // least_bytes
        return f"{offer.shares} shares of its memory are too small, {most} would do: {_TOO_SMALL}"
    return _why_no_mps(gpu, exclusive, offer) if offer.strategy == "MPS" else None


def _least_bytes(exclusive: Device) -> int:
    """The least memory of a share; 0 where nothing but the MPS server holds it to any."""
    return SMALLEST_LIMIT_BYTES if exclusive.attributes.get(MEMORY_LIMITS) == BY_CGROUP else 0


def _least_steps(step_bytes: int, least_bytes: int) -> int:
    """The least memory of a share in whole steps, at least one."""
    return max(1, -(-least_bytes // step_bytes)) * step_bytes


def _measures(
    offer: SharedOffer, memory_bytes: int | None, least_bytes: int
) -> tuple[dict[str, int], dict[str, RequestPolicy]]:
    """The capacities and their policies; memory that cannot be asked for is there for selectors."""
    capacity: dict[str, int] = {}
    policies: dict[str, RequestPolicy] = {}
    if memory_bytes is not None:
        capacity[MEMORY], policies[MEMORY] = _memory(offer, memory_bytes, least_bytes)
    if offer.shares is not None:
        capacity[SHARES] = offer.shares
        policies[SHARES] = RequestPolicy(offer.shares if offer.fractional else 1, 1, 1)
    return capacity, policies


def _memory(offer: SharedOffer, memory_bytes: int, least_bytes: int) -> tuple[int, RequestPolicy]:
    """How much is there, and what a claim takes of it that asks for none.

    A fractional device has whole steps alone, since all of it is the default and that has to be whole steps.
    Of others the default is a share's part in whole steps, at least the least that there can be.
    """
    step = offer.step_bytes
    if step is None:
        return memory_bytes, RequestPolicy(0)
    least = _least_steps(step, least_bytes)
    if offer.fractional:
        whole_steps = memory_bytes // step * step
        return whole_steps, RequestPolicy(whole_steps, least, step)
    part = memory_bytes // offer.shares // step * step if offer.shares else least
    return memory_bytes, RequestPolicy(max(least, part), least, step)


def _why_no_mps(gpu: Gpu, exclusive: Device, offer: SharedOffer) -> str | None:
    if gpu.virtualization == "vgpu":
        return "the compute mode that MPS needs cannot be set in a vGPU"
    version = exclusive.attributes.get("cudaComputeCapability")
    if not isinstance(version, Version):
        return "NVML does not tell its compute capability, and only from 7.0 on MPS can limit its clients"
    if int(version.text.split(".")[0]) < _VOLTA:
        return f"its compute capability is {version.text}, and only from 7.0 on MPS can limit its clients"
    clients = _most_mps_clients(exclusive)
    memory_bytes = exclusive.capacity.get(MEMORY, 0)
    shares = offer.shares or memory_bytes // (offer.step_bytes or 1)
    if shares <= clients:
        return None
    if offer.shares is not None:
        return f"{shares} shares are more than the {clients} clients that MPS serves there"
    smallest = -(-memory_bytes // (clients * _MIB)) * _MIB
    return (
        f"it has {shares} steps of {format_bytes(offer.step_bytes or 1)}, and MPS serves {clients} clients "
        f"there: take steps of {format_bytes(smallest)} or more"
    )


def _most_mps_clients(exclusive: Device) -> int:
    """How many clients an MPS server of the GPU takes, or of the partition: its part of seven slices."""
    profile = exclusive.attributes.get("profile")
    if not isinstance(profile, str):
        return MOST_MPS_CLIENTS
    return MOST_MPS_CLIENTS * int(profile[0]) // _COMPUTE_SLICES


def _with_shared(gpu: Gpu, policy: GpuPolicy, forms: GpuForms) -> GpuForms:
    """The forms with those that the field ``shared`` of the rule asks for.

    ``forms`` are those without it. Where a GPU has several forms that no counters of partitions keep apart,
    it gets a counter of its own.
    """
    if not policy.shared:
        return forms
    unknown = _unknown(gpu, policy)
    if unknown:
        return forms.unknown(f"NVML does not tell its {unknown}, on which it depends how it can be shared")
    if policy.form == "partitions":
        return _shared_partitions(gpu, policy.shared, forms)
    if not forms.whole:
        reason = dict(forms.withheld).get("whole")
        return forms if reason is None else _withholding(forms, reason)
    reasons = {one: _why_not_shared(gpu, _to_share(gpu, forms.physical), one) for one in policy.shared}
    ways = [one for one, reason in reasons.items() if reason is None]
    kept_back = "; ".join(f"{one.strategy}: {reason}" for one, reason in reasons.items() if reason)
    found = replace(forms, whole=policy.form == "whole")
    if found.counters is None and found.whole + len(ways) > 1:
        found = replace(found, counters=alternatives(gpu.pci, ("gpu",)))
    unanswered, to_share = limits_unknown(gpu, policy), _to_share(gpu, found.all_of_it)
    shared = tuple(_shared_device(to_share, one, limits_unknown=unanswered) for one in ways)
    found = replace(found, shared=shared)
    return _withholding(found, kept_back) if kept_back else found


def _unknown(gpu: Gpu, policy: GpuPolicy) -> str:
    """What NVML did not tell of the GPU and decides how it can be shared; empty where nothing is missing."""
    if any(offer.strategy == "MPS" for offer in policy.shared):
        if "compute_capability" in gpu.unanswered:
            return "compute capability"
        if "virtualization" in gpu.unanswered:
            return "virtualization"
    by_memory = policy.form != "partitions" and any(one.step_bytes is not None for one in policy.shared)
    return "memory" if by_memory and not gpu.unanswered.isdisjoint(MEMORY_CALLS) else ""


def _to_share(gpu: Gpu, whole: Device) -> Device:
    """The whole GPU with the memory that shares can have: without what the NVIDIA driver keeps for itself.

    Of a partition NVML tells the memory for programs alone, so nothing has to be taken off.
    """
    shareable_bytes = gpu.shareable_bytes
    capacity = {name: amount for name, amount in whole.capacity.items() if name != MEMORY}
    return replace(
        whole, capacity=capacity if shareable_bytes is None else {**capacity, MEMORY: shareable_bytes}
    )


def _shared_partitions(gpu: Gpu, offers: Sequence[SharedOffer], forms: GpuForms) -> GpuForms:
    """Every partition shared instead of whole; in all ways that are asked for and possible."""
    made: list[Device] = []
    kept_back: dict[str, None] = {}
    partitions = forms.partitions
    counters = forms.counters
    if counters is None and len(offers) > 1 and partitions:
        counters = alternatives(gpu.pci, [_counter(gpu, one) for one in partitions])
        partitions = tuple(
            replace(one, counter_set=counters.name, consumes={_counter(gpu, one): 1}) for one in partitions
        )
    for partition in partitions:
        for offer in offers:
            reason = _why_not_shared(gpu, partition, offer)
            if reason is None:
                made.append(_shared_device(partition, offer))
            else:
                kept_back[f"{offer.strategy} of {partition.attributes['profile']}: {reason}"] = None
    found = replace(forms, partitions=tuple(made), counters=counters if made else None)
    return _withholding(found, "; ".join(kept_back)) if kept_back else found


def _counter(gpu: Gpu, partition: Device) -> str:
    """The counter of a partition, named after its profile and its place: ``mig-1g-10gb-6``."""
    return partition.name.removeprefix(f"{gpu_device_name(gpu.pci)}-")


def _withholding(forms: GpuForms, reason: str) -> GpuForms:
    """The forms with the reason why it is not shared, or not offered at all where nothing is left."""
    if forms.whole or forms.shared or forms.partitions or forms.passthrough:
        return replace(forms, withheld=(*forms.withheld, ("shared", reason)))
    return forms.nothing(reason)


class SharedLayer:
    """What kinds offer, shared."""

    form = "shared"
    attribute_type = "shared"
    policy_field: PolicyField | None = SharedField()

    def devices(self, inventory: Inventory, policies: Policies, so_far: Forms) -> Forms:
        """The GPUs beside or instead of their whole form, or their partitions, shared."""
        return so_far.changed(inventory, policies, _with_shared)


SHARED = SharedLayer()
