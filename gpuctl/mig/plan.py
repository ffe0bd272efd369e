"""Works out what MIG can make of the GPUs of a machine, like GPUs together, for people and for scripts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from driver.kinds.partition.layouts import memory_slices
from driver.kinds.registry import KINDS
from driver.kinds.whole import WHOLE
from driver.policy.offers import node_offers
from driver.policy.rules import NodeConfig
from gpuctl.mig.fit import Fit, Layout, fit, named_layouts
from gpuctl.node.share_words import share_words

if TYPE_CHECKING:
    from driver.devices.device import Device
    from driver.hardware.gpu import Gpu, Inventory
    from driver.kinds.partition.layouts import Placed
    from driver.nvml.mig import Placement

NO_MIG = "the GPU has no MIG"


@dataclass(frozen=True, slots=True)
class Offered:
    """What a node configuration makes of a GPU.

    ``partitions`` are the places of each profile. ``exclusive``: they and the whole GPU exclude each other,
    so that claims decide; else all of them are there together. ``shared`` says in words how the GPU, or its
    partitions, are shared. ``withheld`` are reasons for what is not.
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
    """GPUs of a machine for which all is the same; ``layouts`` are the named ones with their partitions.

    ``asked`` is about the layout that was asked for, ``offered`` about the node configuration, where given.
    """

    gpus: tuple[Gpu, ...]
    layouts: Mapping[str, tuple[Placed, ...]]
    asked: Fit | None
    offered: Offered | None

    @property
    def slices(self) -> int:
        """How many memory slices each has; 0 without MIG."""
        mig = self.gpus[0].mig
        return memory_slices(mig) if mig else 0

    def as_data(self) -> dict[str, Any]:
        """All that is known, for scripts."""
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
    """What MIG can make of ``gpus``, which are of the inventory, in their order."""
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


def counted(profiles: Iterable[str]) -> str:
    """Partitions in words, by the names of their profiles: ``2 x 1g.10gb, 2g.20gb``."""
    counts = Counter(profiles)
    return ", ".join(name if count == 1 else f"{count} x {name}" for name, count in counts.items())
