"""Makes the shared device of a GPU or of a partition, and says why there cannot be one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from driver.devices.device import Device, RequestPolicy, Version
from driver.devices.names import shared_device_name
from driver.devices.sharing import MEMORY, MOST_MPS_CLIENTS, SHARES
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
        "fabricClique",
        "migCapable",
        "migWithheld",
    }
)
"""What only who has a GPU for itself can use."""

_VOLTA = 7
"""The first major compute capability whose MPS clients can be limited."""

_COMPUTE_SLICES = 7
_MIB = 2**20


def shared_device(exclusive: Device, offer: SharedOffer) -> Device:
    """The device that several claims can be given at once, made from the one that a claim has for itself.

    It lies where that one lies and consumes the same counters: the scheduler counts them once, with
    the first share (KEP-5075). A fractional one keeps all that a whole GPU says of itself.
    """
    capacity, policies = _measures(offer, exclusive.capacity.get(MEMORY))
    kept = {
        name: value
        for name, value in exclusive.attributes.items()
        if offer.fractional or name not in _WHOLE_GPUS_ALONE
    }
    # Compute mode EXCLUSIVE_PROCESS keeps all but the MPS server off a GPU; partitions have no such mode.
    isolated = offer.strategy == "MPS" and exclusive.takes_all
    told: dict[str, AttributeValue] = {
        "type": WHOLE.attribute_type if offer.fractional else "shared",
        "sharing": SHARING[offer.strategy],
        "memoryIsolation": "mps" if isolated else "none",
    }
    return replace(
        exclusive,
        name=shared_device_name(exclusive.name, offer.form),
        attributes=dict(sorted({**kept, **told}.items())),
        capacity=capacity,
        policies=policies,
    )


def why_not_shared(gpu: Gpu, exclusive: Device, offer: SharedOffer) -> str | None:
    """Why the GPU, or the partition of it, cannot be shared so; None when it can."""
    memory_bytes = exclusive.capacity.get(MEMORY)
    if offer.step_bytes is not None:
        step = format_bytes(offer.step_bytes)
        if memory_bytes is None:
            return "NVML does not tell its memory, which is to be shared out"
        if memory_bytes < 2 * offer.step_bytes:
            return f"its memory of {format_bytes(memory_bytes)} is less than two steps of {step}"
    return _why_no_mps(gpu, exclusive, offer) if offer.strategy == "MPS" else None


def _measures(
    offer: SharedOffer, memory_bytes: int | None
) -> tuple[dict[str, int], dict[str, RequestPolicy]]:
    """The capacities and their policies; memory that cannot be asked for is there for selectors."""
    capacity: dict[str, int] = {}
    policies: dict[str, RequestPolicy] = {}
    if memory_bytes is not None:
        capacity[MEMORY], policies[MEMORY] = _memory(offer, memory_bytes)
    if offer.shares is not None:
        capacity[SHARES] = offer.shares
        policies[SHARES] = RequestPolicy(offer.shares if offer.fractional else 1, 1, 1)
    return capacity, policies


def _memory(offer: SharedOffer, memory_bytes: int) -> tuple[int, RequestPolicy]:
    """How much is there, and what a claim takes of it that asks for none.

    A fractional device has whole steps alone, since all of it is the default and that has to be whole steps.
    Of others the default is a share's part in whole steps, at least one.
    """
    step = offer.step_bytes
    if step is None:
        return memory_bytes, RequestPolicy(0)
    if offer.fractional:
        whole_steps = memory_bytes // step * step
        return whole_steps, RequestPolicy(whole_steps, step, step)
    steps = memory_bytes // offer.shares // step if offer.shares else 1
    return memory_bytes, RequestPolicy(max(1, steps) * step, step, step)


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
