"""Shared devices: a layer over the kinds, so that several claims can have one device at once.

A shared device lies on a device of a kind, and its name begins with that device's name. Prepare does its work
for the kind beneath, and then sets up sharing.
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
from driver.kinds.sharing.field import MIB, SharedField
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
"""Attributes that are useful only to a claim that has the whole GPU for itself."""

# From Volta on MPS can limit the memory and threads of its clients.
_VOLTA = 7

_COMPUTE_SLICES = 7
_TOO_SMALL = (
    f"CUDA does not start with a memory limit below {format_bytes(SMALLEST_LIMIT_BYTES)} (memoryLimits: "
    "false turns these limits off)"
)


def _shared_device(exclusive: Device, offer: SharedOffer, *, limits_unknown: bool = False) -> Device:
    """The shared device, made from the ``exclusive`` one that a single claim would have.

    It consumes the same counters; the scheduler counts them once, with the first share (KEP-5075). A
    fractional device keeps all attributes of the whole GPU. ``limits_unknown``: it is not known whether the
    NVIDIA driver can limit the memory of shares.
    """
    least_bytes = _least_bytes(exclusive)
    capacity, policies = _measures(offer, exclusive.capacity.get(MEMORY), least_bytes)
    kept = {
        name: value
        for name, value in exclusive.attributes.items()
        if offer.fractional or name not in _WHOLE_GPUS_ALONE
    }
    own: dict[str, AttributeValue | None] = {
        "type": WHOLE.attribute_type if offer.fractional else "shared",
        "sharing": SHARING[offer.strategy],
        "memoryIsolation": _memory_isolation(exclusive, offer, limits_unknown),
    }
    return replace(
        exclusive,
        name=shared_device_name(exclusive.name, offer.form),
        attributes=known({**kept, **own}),
        capacity=capacity,
        policies=policies,
    )


def _memory_isolation(exclusive: Device, offer: SharedOffer, limits_unknown: bool) -> str | None:
    """What keeps others off the memory of a share, the stronger of two; None if that is not known."""
    # Compute mode EXCLUSIVE_PROCESS keeps every process but the MPS server off a GPU; partitions have no
    # such mode.
    if offer.strategy == "MPS" and exclusive.takes_all:
        return "mps"
    if exclusive.attributes.get(MEMORY_LIMITS) == BY_CGROUP:
        return BY_CGROUP
    return None if limits_unknown and exclusive.takes_all else "none"


def _why_not_shared(gpu: Gpu, exclusive: Device, offer: SharedOffer) -> str | None:
    """Why the GPU or the partition cannot be shared in this way; None if it can."""
    memory_bytes, least_bytes = exclusive.capacity.get(MEMORY), _least_bytes(exclusive)
    if offer.step_bytes is not None:
        step = format_bytes(offer.step_bytes)
        if memory_bytes is None:
            return "NVML does not report its memory, which is to be shared"
        has = f"{format_bytes(memory_bytes)} of its memory can be shared, less than two"
        if memory_bytes < 2 * offer.step_bytes:
            return f"{has} steps of {step}"
        if memory_bytes < _least_steps(offer.step_bytes, least_bytes) + offer.step_bytes:
            return f"{has} shares: {_TOO_SMALL}"
    elif offer.shares is not None and memory_bytes is not None and memory_bytes < offer.shares * least_bytes:
        most = memory_bytes // least_bytes
        return f"{offer.shares} shares of its memory are too small, at most {most} fit: {_TOO_SMALL}"
    return _why_no_mps(gpu, exclusive, offer) if offer.strategy == "MPS" else None


def _least_bytes(exclusive: Device) -> int:
    """The least memory of a share; 0 if the NVIDIA driver does not limit it."""
    return SMALLEST_LIMIT_BYTES if exclusive.attributes.get(MEMORY_LIMITS) == BY_CGROUP else 0


def _least_steps(step_bytes: int, least_bytes: int) -> int:
    """The least memory of a share in whole steps, at least one."""
    return max(1, -(-least_bytes // step_bytes)) * step_bytes


def _measures(
    offer: SharedOffer, memory_bytes: int | None, least_bytes: int
) -> tuple[dict[str, int], dict[str, RequestPolicy]]:
    """The capacities and their request policies."""
    capacity: dict[str, int] = {}
    policies: dict[str, RequestPolicy] = {}
    if memory_bytes is not None:
        capacity[MEMORY], policies[MEMORY] = _memory(offer, memory_bytes, least_bytes)
    if offer.shares is not None:
        capacity[SHARES] = offer.shares
        policies[SHARES] = RequestPolicy(offer.shares if offer.fractional else 1, 1, 1)
    return capacity, policies


def _memory(offer: SharedOffer, memory_bytes: int, least_bytes: int) -> tuple[int, RequestPolicy]:
    """The capacity of memory, and its request policy."""
    step = offer.step_bytes
    # Claims cannot ask for memory. The capacity is there for selectors, and a claim takes none of it.
    if step is None:
        return memory_bytes, RequestPolicy(0)
    least = _least_steps(step, least_bytes)
    if offer.fractional:
        # The default is all of it, and the API wants the default to be a whole number of steps.
        whole_steps = memory_bytes // step * step
        return whole_steps, RequestPolicy(whole_steps, least, step)
    # The default is the equal part of a share in whole steps.
    part = memory_bytes // offer.shares // step * step if offer.shares else least
    return memory_bytes, RequestPolicy(max(least, part), least, step)


def _why_no_mps(gpu: Gpu, exclusive: Device, offer: SharedOffer) -> str | None:
    if gpu.virtualization == "vgpu":
        return "MPS needs a compute mode that a vGPU does not have"
    version = exclusive.attributes.get("cudaComputeCapability")
    if not isinstance(version, Version):
        return "NVML does not report its compute capability, and MPS can limit its clients only from 7.0"
    if int(version.text.split(".")[0]) < _VOLTA:
        return f"its compute capability is {version.text}, and MPS can limit its clients only from 7.0"
    clients = _most_mps_clients(exclusive)
    memory_bytes = exclusive.capacity.get(MEMORY, 0)
    shares = offer.shares or memory_bytes // (offer.step_bytes or 1)
    if shares <= clients:
        return None
    if offer.shares is not None:
        return f"{shares} shares are more than the {clients} clients that MPS serves on it"
    smallest = -(-memory_bytes // (clients * MIB)) * MIB
    return (
        f"it has {shares} steps of {format_bytes(offer.step_bytes or 1)}, but MPS serves {clients} clients "
        f"on it: use steps of {format_bytes(smallest)} or more"
    )


def _most_mps_clients(exclusive: Device) -> int:
    """How many clients an MPS server takes on the GPU, or on the partition."""
    profile = exclusive.attributes.get("profile")
    if not isinstance(profile, str):
        return MOST_MPS_CLIENTS
    # On a partition the number falls with its compute slices, which are the first digit of the profile.
    return MOST_MPS_CLIENTS * int(profile[0]) // _COMPUTE_SLICES


def _with_shared(gpu: Gpu, policy: GpuPolicy, forms: GpuForms) -> GpuForms:
    """The forms with the shared devices that the field ``shared`` of the rule wants."""
    if not policy.shared:
        return forms
    unknown = _unknown(gpu, policy)
    if unknown:
        return forms.unknown(f"NVML does not report its {unknown}, which sharing depends on")
    if policy.form == "partitions":
        return _shared_partitions(gpu, policy.shared, forms)
    if not forms.whole:
        reason = dict(forms.withheld).get("whole")
        return forms if reason is None else _withholding(forms, reason)
    reasons = {one: _why_not_shared(gpu, _to_share(gpu, forms.physical), one) for one in policy.shared}
    ways = [one for one, reason in reasons.items() if reason is None]
    kept_back = "; ".join(f"{one.strategy}: {reason}" for one, reason in reasons.items() if reason)
    found = replace(forms, whole=policy.form == "whole")
    # Several forms exclude each other. Without the counters of partitions one counter keeps them apart.
    if found.counters is None and found.whole + len(ways) > 1:
        found = replace(found, counters=alternatives(gpu.pci, ("gpu",)))
    unanswered, to_share = limits_unknown(gpu, policy), _to_share(gpu, found.all_of_it)
    shared = tuple(_shared_device(to_share, one, limits_unknown=unanswered) for one in ways)
    found = replace(found, shared=shared)
    return _withholding(found, kept_back) if kept_back else found


def _unknown(gpu: Gpu, policy: GpuPolicy) -> str:
    """What could not be read of the GPU and decides how it can be shared; empty if nothing is missing."""
    if any(offer.strategy == "MPS" for offer in policy.shared):
        if "compute_capability" in gpu.unanswered:
            return "compute capability"
        if "virtualization" in gpu.unanswered:
            return "virtualization"
    by_memory = policy.form != "partitions" and any(one.step_bytes is not None for one in policy.shared)
    return "memory" if by_memory and not gpu.unanswered.isdisjoint(MEMORY_CALLS) else ""


def _to_share(gpu: Gpu, whole: Device) -> Device:
    """The whole GPU with the memory that shares can have: without what the NVIDIA driver reserves."""
    # For partitions this is not needed: the memory that NVML gives for them is all for programs.
    shareable_bytes = gpu.shareable_bytes
    capacity = {name: amount for name, amount in whole.capacity.items() if name != MEMORY}
    return replace(
        whole, capacity=capacity if shareable_bytes is None else {**capacity, MEMORY: shareable_bytes}
    )


def _shared_partitions(gpu: Gpu, offers: Sequence[SharedOffer], forms: GpuForms) -> GpuForms:
    """The forms with each partition shared instead of exclusive, in all ways that are wanted and possible."""
    made: list[Device] = []
    # A dict as an ordered set: the same reason counts once.
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
    """The name of a partition's counter, by profile and place: ``mig-1g-10gb-6``."""
    return partition.name.removeprefix(f"{gpu_device_name(gpu.pci)}-")


def _withholding(forms: GpuForms, reason: str) -> GpuForms:
    """The forms with the reason why the GPU is not shared, or not offered at all if no form is left."""
    if forms.whole or forms.shared or forms.partitions or forms.passthrough:
        return replace(forms, withheld=(*forms.withheld, ("shared", reason)))
    return forms.nothing(reason)


class SharedLayer:
    """The devices of the kinds, shared."""

    form = "shared"
    attribute_type = "shared"
    policy_field: PolicyField | None = SharedField()

    def devices(self, inventory: Inventory, policies: Policies, so_far: Forms) -> Forms:
        """The shared GPUs beside or instead of the whole ones, or the shared partitions."""
        return so_far.changed(inventory, policies, _with_shared)


SHARED = SharedLayer()
