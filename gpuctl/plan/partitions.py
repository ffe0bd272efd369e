"""Works out which MIG layouts fit the GPUs of a machine, and what a node configuration makes of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from driver.devices.device import Device
from driver.errors import ConfigError
from driver.hardware.gpu import Gpu, GpuMig, Inventory
from driver.kinds.partition.field import MOST_PARTITIONS
from driver.kinds.partition.layouts import Placed, largest_profile, layout_profiles, memory_slices, place
from driver.kinds.registry import KINDS
from driver.kinds.whole import WHOLE
from driver.nvml.mig import GpuInstanceProfile
from driver.policy.offers import Offers, node_offers
from driver.policy.rules import NodeConfig
from gpuctl.plan.share_words import share_words

NO_MIG = "the GPU has no MIG"

Layout = str | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Profile:
    """A MIG profile of a GPU."""

    name: str
    id: int
    """The number of nvidia-smi mig -lgip."""

    memory_bytes: int
    multiprocessors: int
    most_instances: int
    size: int
    """Memory slices."""

    starts: tuple[int, ...]
    """The memory slices at which a partition may begin."""


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition in its place."""

    profile: str
    start: int
    """The first memory slice."""

    size: int
    """How many memory slices."""

    memory_bytes: int
    multiprocessors: int


@dataclass(frozen=True, slots=True)
class Fit:
    """Whether a layout fits on an empty GPU."""

    fits: bool
    problem: str | None = None
    """Why it does not fit."""

    partitions: tuple[Partition, ...] = ()
    nearest: tuple[Partition, ...] = ()
    """The nearest layout that fits, if this one does not."""


@dataclass(frozen=True, slots=True)
class Offered:
    """What a node configuration offers of a GPU."""

    whole: bool
    exclusive: bool
    """Whether the partitions and the whole exclude each other, so that claims decide which are made."""

    partitions: tuple[Partition, ...]
    shared: tuple[str, ...]
    """How the GPU or its partitions are shared, in words."""

    withheld: tuple[str, ...]
    """Reasons for what is not offered."""


@dataclass(frozen=True, slots=True)
class GpuKind:
    """GPUs of a machine that are alike."""

    product: str | None
    gpus: tuple[str, ...]
    """PCI addresses."""

    indexes: tuple[int, ...]
    """As nvidia-smi counts."""

    memory_slices: int
    """How many memory slices each has; 0 without MIG."""

    profiles: tuple[Profile, ...]
    layouts: Mapping[str, tuple[Partition, ...]]
    """The layouts with names, as mig-parted has them."""

    layout: Fit | None
    """How the layout that was asked for fits."""

    offered: Offered | None
    """How the node configuration offers it."""


@dataclass(frozen=True, slots=True)
class MigPlan:
    """What `gpuctl plan --partitions` prints: which layouts of partitions fit the GPUs of a machine."""

    machine: str
    """The machine as it was named."""

    gpu_kinds: tuple[GpuKind, ...]
    """Equal GPUs are grouped."""


def mig_plan(machine: str, inventory: Inventory, layout: Layout | None, config: NodeConfig | None) -> MigPlan:
    """The kinds of the machine's GPUs, in the order of their first GPUs."""
    offers = None if config is None else node_offers(inventory, config)
    alike: dict[Any, list[Gpu]] = {}
    for gpu in inventory.gpus:
        offered = None if offers is None else _offered(gpu, offers)
        alike.setdefault((gpu.product_name, gpu.mig and gpu.mig.profiles, offered), []).append(gpu)
    return MigPlan(machine, tuple(_kind(gpus, layout, offered) for (*_, offered), gpus in alike.items()))


def _kind(gpus: Sequence[Gpu], layout: Layout | None, offered: Offered | None) -> GpuKind:
    mig = gpus[0].mig
    return GpuKind(
        product=gpus[0].product_name,
        gpus=tuple(str(gpu.pci) for gpu in gpus),
        indexes=tuple(gpu.index for gpu in gpus),
        memory_slices=memory_slices(mig) if mig else 0,
        profiles=_profiles(mig) if mig else (),
        layouts=named_layouts(mig) if mig else {},
        layout=None if layout is None else fit(layout, mig),
        offered=offered,
    )


def _profiles(mig: GpuMig) -> tuple[Profile, ...]:
    return tuple(
        Profile(
            one.profile.name,
            one.profile.id,
            one.profile.memory_bytes,
            one.profile.multiprocessors,
            one.profile.most_instances,
            one.placements[0].size if one.placements else 0,
            tuple(place.start for place in one.placements),
        )
        for one in mig.profiles
    )


def _offered(gpu: Gpu, offers: Offers) -> Offered:
    devices = [device for device in offers.devices if device.pci == gpu.pci]
    profiles = {one.profile.name: one.profile for one in gpu.mig.profiles} if gpu.mig else {}
    spans = ((profiles.get(str(device.attributes.get("profile"))), device.span) for device in devices)
    # A place is offered several times where it is shared in several ways.
    placed = dict.fromkeys((profile, span) for profile, span in spans if profile and span)
    by_profile = sorted(placed, key=lambda one: (one[0].name, one[1].start))
    return Offered(
        whole=any(_is_whole(device) for device in devices),
        exclusive=any(device.counter_set for device in devices),
        partitions=partitions_of(by_profile),
        shared=tuple(dict.fromkeys(words for device in devices if (words := _shared(device)))),
        withheld=tuple(
            held.reason if held.part == "gpu" else f"{held.part}: {held.reason}"
            for held in offers.withheld
            if held.pci == gpu.pci
        ),
    )


def _is_whole(device: Device) -> bool:
    name = KINDS.parse(device.name)
    return name is not None and name.kind is WHOLE and name.shared is None


def _shared(device: Device) -> str | None:
    words, name = share_words(device), KINDS.parse(device.name)
    if words is None or name is None:
        return words
    return " by ".join(part for part in (name.kind.title(name.unshared, device.attributes), words) if part)


def partitions_of(placed: Iterable[Placed]) -> tuple[Partition, ...]:
    """Profiles in their places as partitions."""
    return tuple(
        Partition(profile.name, at.start, at.size, profile.memory_bytes, profile.multiprocessors)
        for profile, at in placed
    )


def profiles_text(profiles: Iterable[str]) -> str:
    """Partitions in words, by the names of their profiles: ``2 x 1g.10gb, 2g.20gb``."""
    counts = Counter(profiles)
    return ", ".join(name if count == 1 else f"{count} x {name}" for name, count in counts.items())


def read_layout(text: str) -> Layout:
    """A layout as people type it: a name of mig-parted's, or profiles separated by commas.

    Raises ConfigError for a layout that no GPU can have.
    """
    if text.startswith("all-"):
        return text
    names = tuple(name.strip() for name in text.split(","))
    if not all(names) or len(names) > MOST_PARTITIONS:
        raise ConfigError(
            f"{text!r} is not a layout",
            f"name one, such as all-balanced, or 1 to {MOST_PARTITIONS} profiles: 1g,1g,2g",
        )
    return names


def named_layouts(mig: GpuMig) -> dict[str, tuple[Partition, ...]]:
    """The layouts of this GPU that have a name in mig-parted, and where their partitions lie."""
    # mig-parted's names have a dot for the plus of a profile: all-1g.10gb.me.
    names = [f"all-{one.profile.name.replace('+', '.')}" for one in mig.profiles]
    fitted = {name: fit(name, mig).partitions for name in (*names, "all-balanced")}
    return {name: partitions for name, partitions in fitted.items() if partitions}


def fit(layout: Layout, mig: GpuMig | None) -> Fit:
    """How a layout fits on the empty GPU."""
    if mig is None:
        return Fit(fits=False, problem=NO_MIG)
    try:
        wanted = layout_profiles(layout, mig)
    except ConfigError as error:
        return Fit(fits=False, problem=f"{error.what}: {error.way_out}")
    placed = place(wanted, mig)
    if placed is not None:
        return Fit(fits=True, partitions=partitions_of(placed))
    return Fit(fits=False, problem=_problem(wanted, mig), nearest=partitions_of(_nearest(wanted, mig)))


def _problem(wanted: Sequence[GpuInstanceProfile], mig: GpuMig) -> str:
    """Why the profiles do not fit together: the first limit that they exceed."""
    # The largest profile is the whole GPU, so what it has is all there is.
    for profile, count in Counter(wanted).items():
        if count > profile.most_instances:
            return f"it wants {count} x {profile.name}, the GPU can have {profile.most_instances}"
    sizes = {one.profile.id: one.placements[0].size for one in mig.profiles if one.placements}
    slices = sum(sizes.get(profile.id, 0) for profile in wanted)
    if slices > memory_slices(mig):
        return f"it wants {slices} memory slices, the GPU has {memory_slices(mig)}"
    whole = largest_profile(mig)
    compute = sum(profile.slices for profile in wanted)
    if whole is not None and compute > whole.slices:
        return f"it wants {compute} compute slices, the GPU has {whole.slices}"
    starts = {one.profile.name: [place.start for place in one.placements] for one in mig.profiles}
    where = "; ".join(
        f"{name} starts at {', '.join(map(str, starts[name]))}"
        for name in dict.fromkeys(profile.name for profile in wanted)
    )
    return f"its partitions do not fit beside each other: {where}"


def _nearest(wanted: Sequence[GpuInstanceProfile], mig: GpuMig) -> tuple[Placed, ...]:
    """The part that fits with the fewest partitions left out; of several the one with the most resources."""
    for count in range(len(wanted) - 1, 0, -1):
        seen: set[tuple[int, ...]] = set()
        best: tuple[Placed, ...] = ()
        for kept in combinations(wanted, count):
            key = tuple(sorted(profile.id for profile in kept))
            if key in seen:
                continue
            seen.add(key)
            placed = place(kept, mig)
            if placed and _resources(placed) > _resources(best):
                best = placed
        if best:
            return best
    return ()


def _resources(placed: Sequence[Placed]) -> tuple[int, int]:
    """Memory and multiprocessors, to compare by in this order."""
    memory_bytes = sum(profile.memory_bytes for profile, _ in placed)
    return memory_bytes, sum(profile.multiprocessors for profile, _ in placed)
