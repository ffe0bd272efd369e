"""Plans a heal: what is wrong with a GPU by its slices, what is in the way of a reset, what would be lost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from driver.errors import ConfigError
from driver.health.remedies import Action, leading, remedy_of
from driver.kinds.partition.kind import STATIC
from driver.kinds.registry import KINDS
from driver.nvml.pci_address import PciAddress
from gpuctl.fleet.devices import attribute, gpus_of, taints_of
from gpuctl.heal.in_the_way import ClaimInTheWay, PodInTheWay
from gpuctl.heal.steps import UsingProcess

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SickTaint:
    """A taint that says that a GPU is sick."""

    key: str
    value: str
    effect: str
    meaning: str
    """What it means and what to do, for people."""
    devices: tuple[str, ...]
    """The devices of the GPU that have it."""
    all_devices: bool
    """Whether these are all devices of the GPU."""

    def __str__(self) -> str:
        return f"{self.key}{f'={self.value}' if self.value else ''}:{self.effect}"


@dataclass(frozen=True, slots=True)
class SickGpu:
    """A GPU as its slices show it; without ``taints`` it is well.

    ``static_partitions`` are the partitions that an admin made. A reset destroys them.
    """

    pci: str
    product: str | None
    taints: tuple[SickTaint, ...]
    static_partitions: tuple[str, ...]

    @property
    def remedy(self) -> Action | None:
        """What makes the GPU well; None if it is well."""
        found = leading(self.taints)
        return found.action if found else None


def find_gpu(slices: Iterable[Object], node: str, name: str) -> str:
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


def sick_gpu(slices: Iterable[Object], pci: str) -> SickGpu:
    """The state of a GPU by the slices of its node."""
    # A GPU is published as several devices, whole, cut and shared: a problem of the GPU taints all of them.
    devices = [device for device, gpus in _devices(slices) if pci in gpus]
    tainted: dict[tuple[str, str, str, str], list[str]] = {}
    for device in devices:
        for taint in taints_of(device):
            if (remedy := remedy_of(taint)) is not None and remedy.action is not None:
                told = (taint.key, taint.value, taint.effect, str(remedy))
                tainted.setdefault(told, []).append(str(device["name"]))
    taints = (
        SickTaint(*told, tuple(sorted(names)), len(names) == len(devices))
        for told, names in sorted(tainted.items())
    )
    static = (
        str(device["name"])
        for device in devices
        if (name := KINDS.parse(str(device["name"]))) is not None and name.kind is STATIC and not name.shared
    )
    product = next((value for device in devices if (value := attribute(device, "productName"))), None)
    return SickGpu(str(pci), product, tuple(taints), tuple(sorted(static)))


def is_kept_free(slices: Iterable[Object], gpus: Iterable[str]) -> bool:
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
class Heal:
    """What `gpuctl heal` prints: what is wrong with a GPU and in the way of a reset, and how it ended."""

    node: str
    gpu: str
    """PCI address."""
    product: str | None
    remedy: Action | Literal["none"]
    """What heals the GPU: a reset, a restart of the machine, a repair of the hardware, or what the meanings
    say."""
    taints: tuple[SickTaint, ...]
    """The taints about the GPU itself."""
    reset_together: tuple[str, ...]
    """The GPUs that a reset takes, that one first."""
    claims: tuple[ClaimInTheWay, ...] = ()
    """The claims that have devices of these GPUs."""
    processes: tuple[UsingProcess, ...] = ()
    """The processes on the node that have one of these GPUs open."""
    partitions_lost: tuple[str, ...] = ()
    """Partitions that an admin made, and that a reset destroys."""
    unknown: str | None = None
    """Why it is not known what is in the way on the node."""
    healed: bool | None = None
    """With --yes: whether the GPU is healthy now."""
    left: tuple[str, ...] | None = None
    """With --yes: why it is not."""

    @property
    def pods(self) -> tuple[PodInTheWay, ...]:
        """The pods that use the claims, each once."""
        return tuple(dict.fromkeys(pod for claim in self.claims for pod in claim.pods))

    def lines(self) -> Iterator[str]:
        """The plan for people."""
        name = f"GPU {self.gpu} of {self.node}" + (f" ({self.product})" if self.product else "")
        if self.remedy == "none":
            yield f"{name} is healthy: none of its devices has a health taint"
            return
        yield f"{name} is not healthy:"
        for taint in self.taints:
            where = "" if taint.all_devices else f" (on {', '.join(taint.devices)})"
            remedy = remedy_of(taint)
            # What to do follows below for these.
            known = remedy is not None and remedy.action in ("reset", "reboot")
            yield f"  {taint}{where}: {remedy.meaning if remedy and known else taint.meaning}"
        yield ""
        if self.remedy == "reboot":
            yield "a reset does not help: the machine needs a restart, which you have to do:"
            yield f"  kubectl drain {self.node} --ignore-daemonsets --delete-emptydir-data"
            yield f"  restart it, then kubectl uncordon {self.node}"
        elif self.remedy != "reset":
            yield "a reset does not help: the lines above say what does"
        else:
            yield from self._in_the_way()
            yield ""
            yield from self._steps()

    def _in_the_way(self) -> Iterator[str]:
        others = ", ".join(self.reset_together[1:])
        if others:
            yield f"it is reset together with {others}, which NVLinks connect to it"
        if not self.claims and not self.processes and not self.unknown:
            yield "nothing is in the way"
            return
        yield "in the way:"
        for claim in self.claims:
            users = ", ".join((*map(_pod_words, claim.pods), *claim.others)) or "not in use now"
            yield f"  claim {claim} has {', '.join(claim.devices)}: {users}"
        for process in self.processes:
            yield f"  {process}"
        if self.unknown:
            yield f"  the processes on the node are not known: {self.unknown}"

    def _steps(self) -> Iterator[str]:
        pods = len(self.pods)
        evicted = f"{pods} pod{'s' * (pods != 1)}"
        yield "steps, with --yes:"
        yield "  1. taint all devices of the GPU, so that no new pod gets one"
        yield f"  2. evict {evicted} (PodDisruptionBudgets are kept), and wait for claims and processes"
        yield "  3. reset it: nvidia-smi --gpu-reset"
        yield "  4. wait until its taints are gone"
        if self.partitions_lost:
            lost = ", ".join(self.partitions_lost)
            yield f"destroyed by the reset, and not made again by the driver: {lost}"


def _pod_words(pod: PodInTheWay) -> str:
    made = f"of {pod.controller}" if pod.controller else "without a controller, so nothing recreates it"
    return f"pod {pod} ({made}{', already ending' if pod.ends else ''})"
