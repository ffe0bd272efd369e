"""Plans a heal: what is wrong with a GPU by its slices, what is in the way of a reset, what would be lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from driver.errors import ConfigError
from driver.health.remedies import Action, Remedy, leading, remedy_of
from driver.kinds.partition.kind import STATIC
from driver.kinds.registry import KINDS
from driver.nvml.pci_address import PciAddress
from gpuctl.cli.output import as_data
from gpuctl.fleet.devices import Taint, attribute, gpus_of, taints_of
from gpuctl.heal.steps import UsingProcess
from gpuctl.repartition.in_the_way import pods_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gpuctl.repartition.in_the_way import ClaimInTheWay, PodInTheWay

    Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Illness:
    """A taint that says that a GPU is sick, and the ``devices`` of the GPU that have it."""

    taint: Taint
    remedy: Remedy
    devices: tuple[str, ...]
    all_devices: bool


@dataclass(frozen=True, slots=True)
class SickGpu:
    """A GPU as its slices show it; without ``illnesses`` it is well.

    ``static_partitions`` are the partitions that an admin made. A reset destroys them.
    """

    pci: PciAddress
    product: str | None
    illnesses: tuple[Illness, ...]
    static_partitions: tuple[str, ...]

    @property
    def remedy(self) -> Action | None:
        """What makes the GPU well; None if it is well."""
        found = leading(one.taint for one in self.illnesses)
        return found.action if found else None


def find_gpu(slices: Iterable[Object], node: str, name: str) -> PciAddress:
    """The GPU that a name means: its published index, PCI address or UUID, or the name of one of its devices.

    The UUID of a partition means its GPU. Raises ConfigError if the node publishes no such GPU, or several
    with this index.
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
    """The state of a GPU by the slices of its node."""
    # A GPU is published as several devices, whole, cut and shared: a problem of the GPU taints all of them.
    devices = [device for device, gpus in _devices(slices) if pci in gpus]
    tainted: dict[tuple[Taint, Remedy], list[str]] = {}
    for device in devices:
        for taint in taints_of(device):
            if (remedy := remedy_of(taint)) is not None and remedy.action is not None:
                tainted.setdefault((taint, remedy), []).append(str(device["name"]))
    illnesses = (
        Illness(taint, remedy, tuple(sorted(names)), len(names) == len(devices))
        for (taint, remedy), names in sorted(tainted.items(), key=lambda item: str(item[0][0]))
    )
    static = (
        str(device["name"])
        for device in devices
        if (name := KINDS.parse(str(device["name"]))) is not None and name.kind is STATIC and not name.shared
    )
    product = next((value for device in devices if (value := attribute(device, "productName"))), None)
    return SickGpu(pci, product, tuple(illnesses), tuple(sorted(static)))


def is_kept_free(slices: Iterable[Object], gpus: Iterable[PciAddress]) -> bool:
    """Whether a taint keeps new pods away from every device of these GPUs."""
    wanted = set(gpus)
    # A taint with the effect None is only shown: the scheduler passes over it.
    return all(
        any(taint.get("effect") in ("NoSchedule", "NoExecute") for taint in device.get("taints") or ())
        for device, places in _devices(slices)
        if wanted.intersection(places)
    )


def _devices(slices: Iterable[Object]) -> Iterator[tuple[Object, tuple[PciAddress, ...]]]:
    """All devices in the slices, each with the GPUs that it consists of or lies on."""
    for device in (device for one in slices for device in one["spec"].get("devices") or ()):
        yield device, tuple(gpu for gpu in gpus_of(device) if isinstance(gpu, PciAddress))


@dataclass(frozen=True, slots=True)
class HealPlan:
    """What a heal would do. ``gpus`` are reset together; the first one is the GPU that the user named.

    ``unknown`` says why the plugin did not answer which GPUs are reset together, and which processes use
    them; empty if it did.
    """

    node: str
    gpus: tuple[SickGpu, ...]
    claims: tuple[ClaimInTheWay, ...] = ()
    processes: tuple[UsingProcess, ...] = ()
    unknown: str = ""

    @property
    def gpu(self) -> SickGpu:
        """The GPU that the user named."""
        return self.gpus[0]

    @property
    def addresses(self) -> tuple[PciAddress, ...]:
        """The addresses of all GPUs."""
        return tuple(one.pci for one in self.gpus)

    @property
    def remedy(self) -> Action | None:
        """What makes the GPU well; None if it is well."""
        return self.gpu.remedy

    @property
    def pods(self) -> tuple[PodInTheWay, ...]:
        """The pods that use the claims, each once."""
        return pods_of(self.claims)

    @property
    def lost_partitions(self) -> tuple[str, ...]:
        """The partitions of an admin that the reset destroys."""
        return tuple(name for one in self.gpus for name in one.static_partitions)

    def as_data(self) -> dict[str, Any]:
        """All of it, for scripts."""
        return {
            "node": self.node,
            "gpu": str(self.gpu.pci),
            "remedy": self.remedy or "none",
            "taints": [
                {**as_data(one.taint), "meaning": str(one.remedy), "devices": one.devices}
                for one in self.gpu.illnesses
            ],
            "resetTogether": [str(pci) for pci in self.addresses],
            "claims": self.claims,
            "processes": self.processes,
            "partitionsLost": self.lost_partitions,
            **({"unknown": self.unknown} if self.unknown else {}),
        }
