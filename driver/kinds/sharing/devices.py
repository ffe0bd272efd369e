"""Makes the shared device of a GPU or of a partition, and says why there cannot be one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from driver.devices.device import Device, RequestPolicy, Version
from driver.devices.memory_limits import BY_CGROUP, MEMORY_LIMITS, SMALLEST_LIMIT_BYTES
from driver.devices.names import shared_device_name
from driver.devices.sharing import MEMORY, MOST_MPS_CLIENTS, SHARES
from driver.kinds.gpu_attributes import known
from driver.kinds.whole import WHOLE
from kubernetes_rules.quantity import format_bytes

if TYPE_CHECKING:
    from driver.devices.device import AttributeValue
    from driver.devices.gpu_policy import SharedOffer
    from driver.devices.sharing import Strategy
    from driver.hardware.gpu import Gpu

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
"""What only who has a GPU for itself can use."""

_VOLTA = 7
"""The first major compute capability whose MPS clients can be limited."""

_COMPUTE_SLICES = 7
_TOO_SMALL = (
    f"CUDA does not start with less than {format_bytes(SMALLEST_LIMIT_BYTES)}, to which the NVIDIA driver "
    "would hold it (memoryLimits: false forbids that)"
)
_MIB = 2**20


def shared_device(exclusive: Device, offer: SharedOffer, *, limits_untold: bool = False) -> Device:
    """The device that several claims can be given at once, made from the one that a claim has for itself.

    It lies where that one lies and consumes the same counters: the scheduler counts them once, with
    the first share (KEP-5075). A fractional one keeps all that a whole GPU says of itself. With
    ``limits_untold`` nobody knows whether the NVIDIA driver holds shares to their memory.
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
        "memoryIsolation": _memory_isolation(exclusive, offer, limits_untold),
    }
    return replace(
        exclusive,
        name=shared_device_name(exclusive.name, offer.form),
        attributes=known({**kept, **told}),
        capacity=capacity,
        policies=policies,
    )


def _memory_isolation(exclusive: Device, offer: SharedOffer, limits_untold: bool) -> str | None:
    """What keeps others off the memory of a share, the stronger of two; None where nobody knows."""
    # Compute mode EXCLUSIVE_PROCESS keeps all but the MPS server off a GPU; partitions have no such mode.
    if offer.strategy == "MPS" and exclusive.takes_all:
        return "mps"
    if exclusive.attributes.get(MEMORY_LIMITS) == BY_CGROUP:
        return BY_CGROUP
    return None if limits_untold and exclusive.takes_all else "none"


def why_not_shared(gpu: Gpu, exclusive: Device, offer: SharedOffer) -> str | None:
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
    clients = most_mps_clients(exclusive)
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


def most_mps_clients(exclusive: Device) -> int:
    """How many clients an MPS server of the GPU takes, or of the partition: its part of seven slices."""
    profile = exclusive.attributes.get("profile")
    if not isinstance(profile, str):
        return MOST_MPS_CLIENTS
    return MOST_MPS_CLIENTS * int(profile[0]) // _COMPUTE_SLICES
