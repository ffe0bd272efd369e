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
from driver.nvml.mig import GpuInstanceProfile, Placement
from driver.nvml.pci_address import PciAddress
from driver.policy.offers import node_offers
from driver.policy.rules import NodeConfig
from gpuctl.plan.share_words import share_words

NO_MIG = "the GPU has no MIG"

Layout = str | tuple[str, ...]

_ENGINES = {
    "copy": "copy engines",
    "decoders": "decoders",
    "encoders": "encoders",
    "jpeg": "JPEG engines",
    "ofa": "OFA engines",
}
"""The fields of driver.nvml.mig.Engines, in words."""


@dataclass(frozen=True, slots=True)
class Offered:
    """What a node configuration offers of a GPU.

    ``partitions`` has the places of each profile. ``exclusive``: partitions and the whole GPU exclude each
    other, and claims decide which are made; else all of them exist together. ``shared`` says in words how the
    GPU, or its partitions, are shared. ``withheld`` are reasons for what is not offered.
    """

    whole: bool
    exclusive: bool
    partitions: tuple[tuple[str, tuple[Placement, ...]], ...]
    withheld: tuple[str, ...]
    shared: tuple[str, ...] = ()

    def as_data(self) -> dict[str, Any]:
        """The offer for scripts."""
        partitions = [
            {"profile": name, "start": place.start, "size": place.size}
            for name, places in self.partitions
            for place in places
        ]
        return {
            "whole": self.whole,
            "exclusive": self.exclusive,
            "partitions": partitions,
            "shared": list(self.shared),
            "withheld": list(self.withheld),
        }


@dataclass(frozen=True, slots=True)
class Kind:
    """GPUs of a machine that are alike; ``layouts`` are those with a name, with their partitions in places.

    ``asked`` is how the user's layout fits, ``offered`` what the node configuration offers; each is None if
    the user gave none.
    """

    gpus: tuple[Gpu, ...]
    layouts: Mapping[str, tuple[Placed, ...]]
    asked: Fit | None
    offered: Offered | None

    @property
    def slices(self) -> int:
        """How many memory slices each of the GPUs has; 0 without MIG."""
        mig = self.gpus[0].mig
        return memory_slices(mig) if mig else 0

    def as_data(self) -> dict[str, Any]:
        """All of it, for scripts."""
        mig = self.gpus[0].mig
        data: dict[str, Any] = {
            "product": self.gpus[0].product_name,
            "gpus": [str(gpu.pci) for gpu in self.gpus],
            "memorySlices": self.slices,
            "profiles": [
                {
                    "name": one.profile.name,
                    "id": one.profile.id,
                    "memoryBytes": one.profile.memory_bytes,
                    "multiprocessors": one.profile.multiprocessors,
                    "mostInstances": one.profile.most_instances,
                    "size": one.placements[0].size if one.placements else 0,
                    "starts": [place.start for place in one.placements],
                }
                for one in (mig.profiles if mig else ())
            ],
            "layouts": {name: placed_data(placed) for name, placed in self.layouts.items()},
        }
        if self.asked is not None:
            data["layout"] = {
                "fits": not self.asked.problem,
                "problem": self.asked.problem or None,
                "partitions": placed_data(self.asked.placed),
                "nearest": placed_data(self.asked.nearest),
            }
        if self.offered is not None:
            data["offered"] = self.offered.as_data()
        return data


def placed_data(placed: Sequence[Placed]) -> list[dict[str, Any]]:
    """Partitions in their places, for scripts."""
    return [
        {
            "profile": profile.name,
            "start": place.start,
            "size": place.size,
            "memoryBytes": profile.memory_bytes,
            "multiprocessors": profile.multiprocessors,
        }
        for profile, place in placed
    ]


def mig_kinds(
    inventory: Inventory, gpus: Sequence[Gpu], layout: Layout | None, config: NodeConfig | None
) -> tuple[Kind, ...]:
    """The kinds of these GPUs of the inventory, in the order of their first GPUs."""
    offered = _offered(inventory, config) if config is not None else {}
    alike: dict[Any, list[Gpu]] = {}
    for gpu in gpus:
        profiles = gpu.mig.profiles if gpu.mig else None
        alike.setdefault((gpu.product_name, profiles, offered.get(gpu.pci)), []).append(gpu)
    kinds = []
    for (_, _, offer), members in alike.items():
        mig = members[0].mig
        asked = None
        if layout is not None:
            asked = fit(layout, mig) if mig else Fit((), NO_MIG)
        kinds.append(Kind(tuple(members), named_layouts(mig) if mig else {}, asked, offer))
    return tuple(kinds)


def _offered(inventory: Inventory, config: NodeConfig) -> dict[Any, Offered]:
    offers = node_offers(inventory, config)
    found = {}
    for gpu in inventory.gpus:
        devices = [device for device in offers.devices if device.pci == gpu.pci]
        places: dict[str, dict[Placement, None]] = {}
        for device in devices:
            if device.span:
                places.setdefault(str(device.attributes.get("profile")), {})[device.span] = None
        found[gpu.pci] = Offered(
            whole=any(_is_whole(device) for device in devices),
            exclusive=any(device.counter_set for device in devices),
            partitions=tuple(
                (name, tuple(sorted(spans, key=lambda span: span.start))) for name, spans in places.items()
            ),
            withheld=tuple(
                held.reason if held.part == "gpu" else f"{held.part}: {held.reason}"
                for held in offers.withheld
                if held.pci == gpu.pci
            ),
            shared=tuple(dict.fromkeys(words for device in devices if (words := _shared(device)))),
        )
    return found


def _is_whole(device: Device) -> bool:
    name = KINDS.parse(device.name)
    return name is not None and name.kind is WHOLE and name.shared is None


def _shared(device: Device) -> str | None:
    words, name = share_words(device), KINDS.parse(device.name)
    if words is None or name is None:
        return words
    return " by ".join(part for part in (name.kind.title(name.unshared, device.attributes), words) if part)


def profiles_text(profiles: Iterable[str]) -> str:
    """Partitions in words, by the names of their profiles: ``2 x 1g.10gb, 2g.20gb``."""
    counts = Counter(profiles)
    return ", ".join(name if count == 1 else f"{count} x {name}" for name, count in counts.items())


@dataclass(frozen=True, slots=True)
class Fit:
    """The partitions of a layout in their places; or the ``problem``, and the largest part that fits."""

    placed: tuple[Placed, ...]
    problem: str = ""
    nearest: tuple[Placed, ...] = ()


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


def gpu_addresses(texts: Iterable[str]) -> dict[PciAddress, str]:
    """The addresses that ``--gpu`` names, each as it was typed; raises ConfigError for a malformed one."""
    found: dict[PciAddress, str] = {}
    try:
        for text in texts:
            found.setdefault(PciAddress.parse(text), text)
    except ValueError as error:
        raise ConfigError(str(error), "check --gpu") from error
    return found


def named_layouts(mig: GpuMig) -> dict[str, tuple[Placed, ...]]:
    """The layouts of this GPU that have a name in mig-parted, and where their partitions lie."""
    # mig-parted's names have a dot for the plus of a profile: all-1g.10gb.me.
    names = [f"all-{one.profile.name.replace('+', '.')}" for one in mig.profiles]
    found: dict[str, tuple[Placed, ...]] = {}
    for name in (*names, "all-balanced"):
        placed = fit(name, mig).placed
        if placed:
            found[name] = placed
    return found


def fit(layout: Layout, mig: GpuMig) -> Fit:
    """How a layout fits on the empty GPU."""
    try:
        wanted = layout_profiles(layout, mig)
    except ConfigError as error:
        return Fit((), f"{error.what}: {error.way_out}")
    placed = place(wanted, mig)
    if placed is not None:
        return Fit(placed)
    return Fit((), _problem(wanted, mig), _nearest(wanted, mig))


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
    for kind, name in _ENGINES.items():
        needed = sum(getattr(profile.engines, kind) for profile in wanted)
        there = getattr(whole.engines, kind) if whole else 0
        if needed > there:
            return f"it wants {needed} {name}, the GPU has {there}"
    starts = {one.profile.name: [place.start for place in one.placements] for one in mig.profiles}
    where = "; ".join(
        f"{name} starts at {', '.join(map(str, starts[name]))}"
        for name in dict.fromkeys(profile.name for profile in wanted)
    )
    return f"its partitions overlap wherever they are placed: {where}"


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
