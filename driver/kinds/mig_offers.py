"""Decides in which forms one GPU is offered: as a whole, as partitions, as both, or not at all, and why."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from driver.errors import ConfigError
from driver.kinds.gpu_counters import counter_set
from driver.kinds.layouts import find_profile, largest_profile, layout_profiles, packing_order, place
from driver.kinds.partition_devices import made_partitions, static_partitions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from driver.devices.device import CounterSet, Device
    from driver.devices.gpu_offer import GpuOffer, SharedOffer
    from driver.hardware.gpu import Gpu, GpuMig, Inventory, PlacedProfile

Part = Literal["gpu", "whole", "partitions", "shared"]

HIDDEN = "the node configuration hides it"
MODE_ON = "MIG mode is on, so the GPU cannot be used as a whole"
NEEDS_RESET_TO_START = "MIG mode is off and changes only with a GPU reset"
NEEDS_RESET_TO_END = "MIG mode is on and changes only with a GPU reset"
NO_MIG = "it has no MIG, so it cannot be partitioned"
NOT_TOLD = "NVML does not tell what MIG can make of it"
NO_SUCH_PROFILE = "it has none of the MIG profiles of the configuration"

OFFERED_INSTEAD = "its static MIG partitions are offered instead"
NO_PARTITION = "it has no partition, and the node configuration offers nothing else"

_DOUBLE_MEMORY_INDEX = 0x9
"""The 1g with the memory of a 2g (NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV2): it wastes compute slices."""


@dataclass(frozen=True, slots=True)
class GpuForms:
    """The forms in which one GPU is offered.

    ``partitions`` are devices in packing order. ``shared`` is how the GPU as a whole is shared. ``counters``
    keep all of these apart, where they exclude each other. ``withheld`` maps what is kept back to the reason;
    ``mig_withheld`` is the reason why a GPU that is offered whole is not partitioned, as its attribute says
    it: at most 64 bytes.
    """

    whole: bool = False
    partitions: tuple[Device, ...] = ()
    shared: tuple[SharedOffer, ...] = ()
    counters: CounterSet | None = None
    withheld: tuple[tuple[Part, str], ...] = ()

    @property
    def mig_withheld(self) -> str | None:
        """Why there are no partitions beside the whole GPU although they are wanted; None when not so."""
        return dict(self.withheld).get("partitions")


def gpu_forms(gpu: Gpu, offer: GpuOffer, inventory: Inventory) -> GpuForms:
    """The forms in which the GPU is offered as it is now by the ``offer``, but for shared ones.

    A GPU that is to be offered only shared is told as whole, where it could be that.
    """
    if offer.form == "hidden":
        return _nothing(HIDDEN)
    if offer.form == "shared":
        return _unpartitioned(gpu)
    if offer.mig.mode == "layout":
        return _layout(gpu, offer.mig.layout, inventory)
    if offer.mig.mode == "dynamic":
        forms = _dynamic(gpu, offer.mig.profiles, inventory)
    elif offer.mig.mode == "static":
        forms = _static(gpu, inventory)
    else:
        forms = _unpartitioned(gpu)
    return _without_whole(forms) if offer.form == "partitions" else forms


def _nothing(reason: str) -> GpuForms:
    return GpuForms(withheld=(("gpu", reason),))


def _without_whole(forms: GpuForms) -> GpuForms:
    """What is left where the node configuration asks for partitions alone."""
    if forms.partitions or not forms.whole:
        kept = tuple((part, reason) for part, reason in forms.withheld if part != "whole")
        return replace(forms, whole=False, withheld=kept)
    return _nothing(forms.mig_withheld or NO_PARTITION)


def _unpartitioned(gpu: Gpu) -> GpuForms:
    """Without MIG: a GPU in MIG mode runs nothing outside its instances."""
    return _nothing(MODE_ON) if gpu.mig_enabled else GpuForms(whole=True)


def _static(gpu: Gpu, inventory: Inventory) -> GpuForms:
    if not gpu.mig_enabled or gpu.mig is None:
        return _unpartitioned(gpu)
    if not gpu.mig.instances:
        return _nothing("MIG mode is on and no partition exists: make one, or turn MIG mode off")
    partitions = static_partitions(gpu, gpu.mig, inventory)
    if not partitions:
        return _nothing("no GPU instance of it has a compute instance, so nothing can use it")
    return GpuForms(partitions=partitions, withheld=(("whole", OFFERED_INSTEAD),))


def _dynamic(gpu: Gpu, names: Sequence[str], inventory: Inventory) -> GpuForms:
    mig = gpu.mig
    if _knows_no_mig(gpu):
        return _unpartitioned(gpu)
    if mig is None:
        return _nothing(NOT_TOLD)
    switchable = mig.without_reset
    profiles = _chosen(names, mig)
    if not profiles:
        if mig.enabled and not switchable:
            return _nothing(NO_SUCH_PROFILE)
        return GpuForms(whole=True, withheld=(("partitions", NO_SUCH_PROFILE),))
    if not (switchable or mig.enabled):
        return GpuForms(whole=True, withheld=(("partitions", NEEDS_RESET_TO_START),))
    offered = packing_order([(one.profile, placement) for one in profiles for placement in one.placements])
    counters = counter_set(gpu, mig, offered)
    return GpuForms(
        whole=switchable,
        partitions=made_partitions(gpu, inventory, offered, counters),
        counters=counters,
        withheld=() if switchable else (("whole", NEEDS_RESET_TO_END),),
    )


def _layout(gpu: Gpu, layout: str | Sequence[str], inventory: Inventory) -> GpuForms:
    mig = gpu.mig
    if _knows_no_mig(gpu):
        return _nothing(NO_MIG)
    if mig is None:
        return _nothing(NOT_TOLD)
    if not (mig.enabled or mig.without_reset):
        return _nothing(NEEDS_RESET_TO_START)
    try:
        wanted = layout_profiles(layout, mig)
    except ConfigError as error:
        return _nothing(f"{error.what}: {error.way_out}")
    if not wanted:
        return _nothing(f"the layout {layout} has no partitions")
    placed = place(wanted, mig)
    if placed is None:
        return _nothing(f"the layout {_shown(layout)} does not fit on it")
    return GpuForms(partitions=made_partitions(gpu, inventory, packing_order(placed)))


def _knows_no_mig(gpu: Gpu) -> bool:
    """Whether the GPU surely has no partitions for us: no MIG, or a vGPU guest, which may not change it."""
    return gpu.mig_capable is False or gpu.virtualization == "vgpu"


def _chosen(names: Sequence[str], mig: GpuMig) -> tuple[PlacedProfile, ...]:
    """The profiles of dynamic mode that the GPU has: those named, or else those that make sense on most."""
    if names:
        wanted = {profile.id for name in names if (profile := find_profile(name, mig)) is not None}
        return tuple(placed for placed in mig.profiles if placed.profile.id in wanted)
    whole = largest_profile(mig)
    return tuple(
        placed
        for placed in mig.profiles
        if not placed.profile.attributes
        and placed.profile.index != _DOUBLE_MEMORY_INDEX
        and placed.profile != whole
    )


def _shown(layout: str | Sequence[str]) -> str:
    return layout if isinstance(layout, str) else ", ".join(layout)
