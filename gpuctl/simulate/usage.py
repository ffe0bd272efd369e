"""Measures use over simulated time: devices by tier, GPUs by product."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from driver.devices.names import DRIVER_NAME
from driver.kinds.registry import KINDS
from gpuctl.fleet.devices import Object, attribute, tier_of
from gpuctl.simulate.results import GpuResult, TierResult

Device = tuple[str, str, str]
"""Driver, pool and name."""
Gpu = tuple[str, str]
"""Pool and address, or the name of a device that does not say its GPU."""


class Level:
    """A number that changes over time, such as GPUs in use. Times are in seconds and never go back."""

    __slots__ = ("_area", "_since", "most", "value")

    def __init__(self, value: int = 0) -> None:
        self.value = value
        """The number now."""
        self.most = value
        """The largest number so far."""
        self._since = 0.0
        self._area = 0.0

    def change(self, by: int, now: float) -> None:
        """Add to the number from now on."""
        self._area += self.value * (now - self._since)
        self._since = now
        self.value += by
        self.most = max(self.most, self.value)

    def hours(self, now: float) -> float:
        """The number summed over time until now: GPUs in use become GPU-hours."""
        return (self._area + self.value * (now - self._since)) / 3600


class _Read(NamedTuple):
    """What counts of a device; ``counted``: it consumes counters."""

    name: str
    tier: str
    counted: bool
    gpus: tuple[str, ...]
    product: str


def _read(device: Object) -> _Read:
    name = str(device["name"])
    parsed = KINDS.parse(name)
    gpus = tuple(parsed.gpus) if parsed else (name,)
    product = str(attribute(device, "productName") or "")
    return _Read(name, tier_of(device), bool(device.get("consumesCounters")), gpus, product)


class Usage:
    """The use of this driver's devices in a cluster; those of other drivers do not count."""

    def __init__(self, slices: Sequence[Object]) -> None:
        self.tier: dict[Device, str] = {}
        """The tier of each device."""
        self._gpus: dict[Device, tuple[Gpu, ...]] = {}
        self._product: dict[Gpu, str] = {}
        self._exclusive: set[str] = set()
        self._holders: Counter[Device] = Counter()
        self._gpu_holders: Counter[Gpu] = Counter()
        # By the address of the device's object, which like nodes have in common, and which ``slices`` keep.
        read: dict[int, _Read] = {}
        for one in slices:
            if one["spec"]["driver"] == DRIVER_NAME:
                for device in one["spec"].get("devices") or ():
                    if id(device) not in read:
                        read[id(device)] = _read(device)
                    self._add(one["spec"]["pool"]["name"], read[id(device)])
        self._devices = Counter(self.tier.values())
        self._there = Counter(self._product.values())
        self._tiers = {tier: Level() for tier in self._devices}
        self._in_use = {product: Level() for product in self._there}

    def _add(self, pool: str, device: _Read) -> None:
        identity = (DRIVER_NAME, pool, device.name)
        self.tier[identity] = device.tier
        # Counters keep the forms of one GPU apart that exclude each other.
        if device.counted:
            self._exclusive.add(device.tier)
        gpus = tuple((pool, gpu) for gpu in device.gpus)
        self._gpus[identity] = gpus
        for gpu in gpus:
            if device.product or gpu not in self._product:
                self._product[gpu] = device.product or "GPU of unknown product"

    def count(self, claim: Object, change: int, now: float) -> None:
        """Count a claim that gets its devices (1), or gives them back (-1); admin access does not count."""
        for result in claim["status"]["allocation"]["devices"].get("results") or ():
            device = (result["driver"], result["pool"], result["device"])
            if device not in self.tier or result.get("adminAccess"):
                continue
            if _crossed(self._holders, device, change):
                self._tiers[self.tier[device]].change(change, now)
            for gpu in self._gpus[device]:
                if _crossed(self._gpu_holders, gpu, change):
                    self._in_use[self._product[gpu]].change(change, now)

    @property
    def gpu_count(self) -> int:
        """The number of GPUs."""
        return len(self._product)

    def is_held(self, device: Device) -> bool:
        """Whether a claim has the device or a share of it."""
        return self._holders[device] > 0

    def tiers(self, free: Collection[Device], now: float) -> dict[str, TierResult]:
        """The tiers, with the devices that are free now."""
        left = Counter(self.tier[device] for device in free if device in self.tier)
        found = {}
        for tier, level in self._tiers.items():
            used, there = level.hours(now), self._devices[tier]
            idle = None if tier in self._exclusive else there * now / 3600 - used
            found[tier] = TierResult(there, level.value, level.most, left[tier], used, idle)
        return found

    def gpus(self, now: float) -> dict[str, GpuResult]:
        """The GPUs by product."""
        found = {}
        for product, level in sorted(self._in_use.items()):
            all_hours, used = self._there[product] * now / 3600, level.hours(now)
            found[product] = GpuResult(self._there[product], level.value, all_hours, used, all_hours - used)
        return found


def _crossed(holders: Counter[Any], key: Any, change: int) -> bool:
    """Count a holder; whether that makes a free thing held, or a held one free."""
    before = holders[key] > 0
    holders[key] += change
    return before != (holders[key] > 0)
