"""Notes over simulated time how many pods wait, what GPUs each class has, and how fragmented GPUs are.

Shares and partitions count by their part of a GPU, so that classes can be added up. **Fragmentation** is the
part of the free GPU capacity that lies on GPUs in partial use. A pod that wants a whole GPU cannot have it.
"""

from __future__ import annotations

from collections import defaultdict

from driver.devices.names import DRIVER_NAME
from gpuctl.fleet.holders import allocated
from gpuctl.fleet.nodes import shared_part
from gpuctl.fleet.published import PublishedDevice, read_node
from gpuctl.simulate.cluster import Object, SimulatedCluster
from gpuctl.simulate.results import Course
from gpuctl.simulate.usage import Usage

MOST_STEPS = 360
_NOTHING = 1e-9
"""Parts are sums of fractions: a smaller rest is none."""


class Averages:
    """The means of some numbers over equal steps of time; steps become longer when there are too many."""

    def __init__(self) -> None:
        self.step_seconds = 1.0
        """How long a step is: a power of two, so that steps end at exact numbers."""
        self._now = 0.0
        self._values: dict[str, float] = {}
        self._areas: list[defaultdict[str, float]] = []

    def change(self, name: str, value: float, now: float) -> None:
        """A number has another value from now on; it was 0 before."""
        self.run_until(now)
        self._values[name] = value

    def run_until(self, now: float) -> None:
        """Nothing changes until now."""
        while self._now < now:
            step = int(self._now / self.step_seconds)
            if step >= MOST_STEPS:
                self._double()
                continue
            while len(self._areas) <= step:
                self._areas.append(defaultdict(float))
            end = min(now, (step + 1) * self.step_seconds)
            for name, value in self._values.items():
                self._areas[step][name] += value * (end - self._now)
            self._now = end

    def of(self, name: str) -> tuple[float, ...]:
        """The mean of a number in each step; the last step may be shorter."""
        last = len(self._areas) - 1
        return tuple(
            area[name] / (self.step_seconds if step < last else self._now - last * self.step_seconds)
            for step, area in enumerate(self._areas)
        )

    def hours(self, name: str) -> float:
        """A number summed over time: GPUs become GPU-hours."""
        return sum(area[name] for area in self._areas) / 3600

    def _double(self) -> None:
        for area, following in zip(self._areas[::2], self._areas[1::2], strict=False):
            for name, value in following.items():
                area[name] += value
        del self._areas[1::2]
        self.step_seconds *= 2


class Timeline:
    """Follows one simulation of a cluster from its beginning."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._all_gpus = Usage(cluster.slices).gpu_count
        self._averages = Averages()
        self._devices = _Devices(cluster)
        self._of_class: defaultdict[str, float] = defaultdict(float)
        self._most: defaultdict[str, float] = defaultdict(float)
        self._used: defaultdict[tuple[str, str], float] = defaultdict(float)
        self._held = self._partly_free = 0.0
        for claim in cluster.claims:
            self.count(claim, 1, 0.0)

    def wait(self, pods: int, now: float) -> None:
        """So many pods wait from now on."""
        self._averages.change("waiting", pods, now)

    def count(self, claim: Object, change: int, now: float) -> None:
        """A claim gets its devices (1), or gives them back (-1)."""
        for holder in allocated(claim):
            device = None if holder.admin_access else self._devices.of(holder.pool, holder.device)
            if device is None:
                continue
            parts = shared_part(holder, device.spec)
            name = holder.device_class or "unknown class"
            for one in device.lies_on:
                part = one.part * parts
                self._of_class[name] += change * part
                self._take((holder.pool, one.gpu), change * part)
            self._most[name] = max(self._most[name], self._of_class[name])
            self._averages.change(f"class {name}", self._of_class[name], now)
        free = self._all_gpus - self._held
        fragmentation = self._partly_free / free if free > _NOTHING else 0.0
        self._averages.change("fragmentation", fragmentation, now)

    def _take(self, gpu: tuple[str, str], part: float) -> None:
        before = self._used[gpu]
        after = before + part if before + part > _NOTHING else 0.0
        self._used[gpu] = after
        self._held += min(1.0, after) - min(1.0, before)
        self._partly_free += _rest(after) - _rest(before)

    def course(self, ended_seconds: float) -> Course:
        """What was noted until the end."""
        self._averages.run_until(ended_seconds)
        return Course(
            self._averages.step_seconds,
            ended_seconds,
            self._all_gpus,
            self._averages.of("waiting"),
            {name: self._averages.of(f"class {name}") for name in sorted(self._of_class)},
            {name: self._averages.hours(f"class {name}") for name in sorted(self._of_class)},
            dict(sorted(self._most.items())),
            self._averages.of("fragmentation"),
        )


def _rest(used: float) -> float:
    """The free part of a GPU in partial use, 0 for a GPU that is not used."""
    return max(0.0, 1.0 - used) if used else 0.0


class _Devices:
    """The devices of pools; those of nodes that publish the same are read once."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        names = (node["metadata"]["name"] for node in cluster.nodes)
        pattern = dict(zip(names, cluster.patterns, strict=True))
        self._slices: dict[str, list[Object]] = {}
        self._like: dict[str, int | str] = {}
        for one in cluster.slices:
            spec = one["spec"]
            if spec["driver"] == DRIVER_NAME:
                pool = spec["pool"]["name"]
                self._slices.setdefault(pool, []).append(one)
                self._like[pool] = pattern.get(spec.get("nodeName") or "", pool)
        self._known: dict[int | str, dict[str, PublishedDevice]] = {}

    def of(self, pool: str, device: str) -> PublishedDevice | None:
        """The device of that name; None if it is not published."""
        like = self._like.get(pool)
        if like is None:
            return None
        if like not in self._known:
            found = read_node(pool, self._slices[pool]).devices
            self._known[like] = {one.name: one for one in found}
        return self._known[like].get(device)
