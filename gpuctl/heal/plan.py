"""What is wrong with a GPU by its slices, what is in the way of a reset, and what would be done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from driver.devices import taints
from driver.errors import ConfigError
from driver.kinds.partition.kind import STATIC
from driver.kinds.registry import KINDS
from driver.nvml.pci_address import PciAddress
from gpuctl.doctor.outside.publishing import MEANINGS
from gpuctl.fleet.devices import Taint, attribute, gpus_of, taints_of
from gpuctl.repartition.in_the_way import pods_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gpuctl.repartition.in_the_way import ClaimInTheWay, PodInTheWay

    Object = Mapping[str, Any]


Remedy = Literal["reset", "reboot", "other"]
"""``reset`` can be done from here. ``reboot``: the machine has to be restarted, which is only said.
``other``: what the taint means says what to do."""

REMEDIES: Mapping[str, Remedy] = {
    taints.TAINT_XID: "reset",
    taints.TAINT_RESET: "reset",
    taints.TAINT_MEMORY: "reset",
    taints.TAINT_UNRESPONSIVE: "reset",
    taints.TAINT_FAILING: "reset",
    taints.TAINT_REBOOT: "reboot",
    taints.TAINT_LOST: "reboot",
    taints.TAINT_FABRIC: "other",
    taints.TAINT_UNLICENSED: "other",
    taints.TAINT_DRIVER: "other",
}
"""The taints of GPUs that are ill. Any other says nothing of the GPU itself: who holds it, who may see it."""


@dataclass(frozen=True, slots=True)
class Illness:
    """A taint that some devices of a GPU have: all that it is published as, or the named ``devices``."""

    taint: Taint
    meaning: str
    devices: tuple[str, ...]
    all_devices: bool


@dataclass(frozen=True, slots=True)
class SickGpu:
    """A GPU as its slices show it. ``illnesses`` are those that say something of the GPU itself.

    ``static_partitions`` are partitions that an admin made, which no reset leaves.
    """

    pci: PciAddress
    product: str | None
    illnesses: tuple[Illness, ...]
    static_partitions: tuple[str, ...]

    @property
    def remedy(self) -> Remedy | None:
        """What makes it well, None where it is."""
        return remedy_of(one.taint for one in self.illnesses)


def find_gpu(slices: Iterable[Object], node: str, name: str) -> PciAddress:
    """The GPU that is meant by its index as published, a PCI address, a UUID, or the name of a device.

    A UUID is that of the GPU or of a partition of it. Raises ConfigError where the node publishes no such
    GPU, or several of this index.
    """
    try:
        wanted: PciAddress | None = PciAddress.parse(name)
    except ValueError:
        wanted = None
    known: set[PciAddress] = set()
    indexed: set[PciAddress] = set()
    for device, gpus in _devices(slices):
        known.update(gpus)
        if len(gpus) == 1 and name.isdecimal() and str(attribute(device, "index")) == name:
            indexed.update(gpus)
        if gpus and name in (device["name"], attribute(device, "uuid"), attribute(device, "parentUUID")):
            return gpus[0]
    if wanted is not None and wanted in known:
        return wanted
    if len(indexed) == 1:
        return indexed.pop()
    listed = ", ".join(map(str, sorted(known))) or "none"
    raise ConfigError(f"{node} publishes no GPU {name}", f"name one by its PCI address; there are: {listed}")


def sick_gpu(slices: Iterable[Object], pci: PciAddress) -> SickGpu:
    """What the slices of its node say of a GPU."""
    devices = [device for device, gpus in _devices(slices) if pci in gpus]
    tainted: dict[Taint, list[str]] = {}
    for device in devices:
        for taint in taints_of(device):
            if taint.key in REMEDIES:
                tainted.setdefault(taint, []).append(str(device["name"]))
    illnesses = (
        Illness(taint, MEANINGS[taint.key], tuple(sorted(names)), len(names) == len(devices))
        for taint, names in sorted(tainted.items(), key=lambda item: (item[0].key, item[0].value))
    )
    static = (
        str(device["name"])
        for device in devices
        if (name := KINDS.parse(str(device["name"]))) is not None and name.kind is STATIC and not name.shared
    )
    product = next((value for device in devices if (value := attribute(device, "productName"))), None)
    return SickGpu(pci, product, tuple(illnesses), tuple(sorted(static)))


def is_kept_free(slices: Iterable[Object], gpus: Iterable[PciAddress]) -> bool:
    """Whether no device of these GPUs takes a new pod, as the node's slices say."""
    wanted = set(gpus)
    return all(
        any(taint.get("effect") in ("NoSchedule", "NoExecute") for taint in device.get("taints") or ())
        for device, places in _devices(slices)
        if wanted.intersection(places)
    )


def _devices(slices: Iterable[Object]) -> Iterator[tuple[Object, tuple[PciAddress, ...]]]:
    """The devices, each with the GPUs that it is or lies on."""
    for device in (device for one in slices for device in one["spec"].get("devices") or ()):
        yield device, tuple(gpu for gpu in gpus_of(device) if isinstance(gpu, PciAddress))


def remedy_of(found: Iterable[Taint]) -> Remedy | None:
    """What the GPU needs that has these taints; None where it is not ill.

    No reset takes the place of a restart, so that leads.
    """
    remedies = {REMEDIES[taint.key] for taint in found if taint.key in REMEDIES}
    order: tuple[Remedy, ...] = ("reboot", "reset", "other")
    return next((one for one in order if one in remedies), None)


@dataclass(frozen=True, slots=True)
class ProcessInTheWay:
    """A process on the node that has a GPU open; ``pod`` is ``namespace/name``, None for one in no pod."""

    process_id: int
    name: str
    pod: str | None = None

    def __str__(self) -> str:
        """As people write it."""
        return f"process {self.process_id} ({self.name}{f' of pod {self.pod}' if self.pod else ''})"

    def as_data(self) -> dict[str, Any]:
        """All of it, for scripts."""
        pod = {"pod": self.pod} if self.pod else {}
        return {"processId": self.process_id, "name": self.name, **pod}


@dataclass(frozen=True, slots=True)
class HealPlan:
    """What was read once. ``gpus`` are those that are reset together, the one that was asked for first.

    ``unknown`` is why the node did not say which GPUs these are and which processes use them; empty where it
    did.
    """

    node: str
    gpus: tuple[SickGpu, ...]
    claims: tuple[ClaimInTheWay, ...] = ()
    processes: tuple[ProcessInTheWay, ...] = ()
    unknown: str = ""

    @property
    def gpu(self) -> SickGpu:
        """The one that was asked for."""
        return self.gpus[0]

    @property
    def addresses(self) -> tuple[PciAddress, ...]:
        """All of them."""
        return tuple(one.pci for one in self.gpus)

    @property
    def remedy(self) -> Remedy | None:
        """What makes the GPU well, None where it is."""
        return self.gpu.remedy

    @property
    def pods(self) -> tuple[PodInTheWay, ...]:
        """The pods that have a device of the GPUs."""
        return pods_of(self.claims)

    @property
    def lost_partitions(self) -> tuple[str, ...]:
        """The partitions of an admin that are gone after the reset."""
        return tuple(name for one in self.gpus for name in one.static_partitions)

    def as_data(self) -> dict[str, Any]:
        """All of it, for scripts."""
        return {
            "node": self.node,
            "gpu": str(self.gpu.pci),
            "remedy": self.remedy or "none",
            "taints": [
                {
                    "key": one.taint.key,
                    "value": one.taint.value,
                    "effect": one.taint.effect,
                    "meaning": one.meaning,
                    "devices": list(one.devices),
                }
                for one in self.gpu.illnesses
            ],
            "resetTogether": [str(pci) for pci in self.addresses],
            "claims": [claim.as_data() for claim in self.claims],
            "processes": [one.as_data() for one in self.processes],
            "partitionsLost": list(self.lost_partitions),
            **({"unknown": self.unknown} if self.unknown else {}),
        }
