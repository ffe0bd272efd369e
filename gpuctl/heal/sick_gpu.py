"""Finds a GPU among the slices of its node, by any of its names, and what they say is wrong with it: pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from driver.errors import ConfigError
from driver.kinds.partition.kind import STATIC
from driver.kinds.registry import KINDS
from driver.nvml.pci_address import PciAddress
from gpuctl.doctor.outside.publishing import MEANINGS
from gpuctl.fleet.devices import Taint, attribute, gpus_of, taints_of
from gpuctl.heal.remedies import REMEDIES, remedy_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

    from gpuctl.heal.remedies import Remedy

    Object = Mapping[str, Any]


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
