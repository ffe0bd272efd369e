"""Measures use over simulated time: devices by tier, GPUs by product."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

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
        for one in slices:
            if one["spec"]["driver"] == DRIVER_NAME:
                for device in one["spec"].get("devices") or ():
                    self._add(one["spec"]["pool"]["name"], device)
        self._devices = Counter(self.tier.values())
        self._there = Counter(self._product.values())
        self._tiers = {tier: Level() for tier in self._devices}
        self._in_use = {product: Level() for product in self._there}

    def _add(self, pool: str, device: Object) -> None:
        name = str(device["name"])
        parsed = KINDS.parse(name)
        identity = (DRIVER_NAME, pool, name)
        self.tier[identity] = tier_of(device)
        # Counters keep the forms of one GPU apart that exclude each other.
        if device.get("consumesCounters"):
            self._exclusive.add(self.tier[identity])
        gpus = [(pool, gpu) for gpu in parsed.gpus] if parsed else [(pool, name)]
        self._gpus[identity] = tuple(gpus)
        for gpu in gpus:
            known = self._product.get(gpu, "GPU of unknown product")
            self._product[gpu] = str(attribute(device, "productName") or known)

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
