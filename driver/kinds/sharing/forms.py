"""Adds to the forms in which one GPU is offered those in which it, or its partitions, are shared."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from driver.devices.names import gpu_device_name
from driver.devices.sharing import MEMORY
from driver.hardware.call_effects import MEMORY_CALLS
from driver.kinds.forms import GpuForms, alternatives
from driver.kinds.memory_limits import limits_untold
from driver.kinds.sharing.devices import shared_device, why_not_shared

if TYPE_CHECKING:
    from collections.abc import Sequence

    from driver.devices.device import Device
    from driver.devices.gpu_policy import GpuPolicy, SharedOffer
    from driver.hardware.gpu import Gpu


def with_shared(gpu: Gpu, policy: GpuPolicy, forms: GpuForms) -> GpuForms:
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
    reasons = {one: why_not_shared(gpu, _to_share(gpu, forms.physical), one) for one in policy.shared}
    ways = [one for one, reason in reasons.items() if reason is None]
    kept_back = "; ".join(f"{one.strategy}: {reason}" for one, reason in reasons.items() if reason)
    found = replace(forms, whole=policy.form == "whole")
    if found.counters is None and found.whole + len(ways) > 1:
        found = replace(found, counters=alternatives(gpu.pci, ("gpu",)))
    untold, to_share = limits_untold(gpu, policy), _to_share(gpu, found.all_of_it)
    shared = tuple(shared_device(to_share, one, limits_untold=untold) for one in ways)
    found = replace(found, shared=shared)
    return _withholding(found, kept_back) if kept_back else found


def _unknown(gpu: Gpu, policy: GpuPolicy) -> str:
    """What was never told of the GPU and decides how it can be shared; empty where nothing is missing."""
    if any(offer.strategy == "MPS" for offer in policy.shared):
        if "compute_capability" in gpu.untold:
            return "compute capability"
        if "virtualization" in gpu.untold:
            return "virtualization"
    by_memory = policy.form != "partitions" and any(one.step_bytes is not None for one in policy.shared)
    return "memory" if by_memory and not gpu.untold.isdisjoint(MEMORY_CALLS) else ""


def _to_share(gpu: Gpu, whole: Device) -> Device:
    """The whole GPU with the memory that shares can have: without what the NVIDIA driver keeps for itself.

    Of a partition NVML tells all that there is for programs, so nothing is to be taken off.
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
            reason = why_not_shared(gpu, partition, offer)
            if reason is None:
                made.append(shared_device(partition, offer))
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
