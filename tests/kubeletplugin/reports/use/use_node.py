"""A node of fake GPUs whose use is told: claims with containers, and processes in these."""

import threading
from pathlib import Path
from typing import Any

from driver.process.metrics.registry import Metrics
from kubeletplugin.plugin_metrics import PluginMetrics
from kubeletplugin.reports.use.node_use import LINKS
from tests.gpus import Discovery, Guard
from tests.kubeletplugin.fake_node import NODE, FakeNode, FakePublished
from tests.plugin import ClaimRef, ContainerName

GIB = 1 << 30
READ_SECONDS = 0.3
_POD_UID = "0f0a1c2e-1111-4222-8333-abcdefabcdef"

Told = dict[str, float]


class UseNode(FakeNode):
    """``told`` gives the series of a claim, or of a GPU, by the ends of their names."""

    def __init__(self, folder: Path, machine: str) -> None:
        self._readers: Guard | None = None
        super().__init__(folder, machine)
        (folder / LINKS).mkdir(parents=True)
        (folder / "proc").mkdir()
        self.metrics = Metrics("kubeletplugin")
        self.numbers = PluginMetrics(
            self.discovery, self.parts, FakePublished(self), self._list_containers, folder, folder / "proc"
        )
        self.numbers.show(self.metrics, NODE)
        self._thread = threading.Thread(target=self.numbers.use.run)
        self._thread.start()
        self.health.run_once()

    def discovering(self, guard: Guard) -> Discovery:
        self._readers = Guard(READ_SECONDS)
        return Discovery(self.nvml(), self.sysfs, guard, readers=self._readers)

    def end(self) -> None:
        """End its threads."""
        self.numbers.use.stop()
        self._thread.join(10)
        if self._readers is not None:
            self._readers.close()
        self.stop()

    def has_class(self, ref: ClaimRef, name: str) -> None:
        """Have every request of a claim name a DeviceClass."""
        stored = self.api[ref.namespace, ref.name]
        results = stored["status"]["allocation"]["devices"]["results"]
        requests = [
            {"name": request, "exactly": {"deviceClassName": name}}
            for request in dict.fromkeys(one["request"] for one in results)
        ]
        stored["spec"] = {"devices": {"requests": requests}}

    def run(self, ref: ClaimRef, pid: int, pod: str = "pod", container: str = "main") -> None:
        """Have a container of a pod use the claim's devices, with one process."""
        name = ContainerName(ref.namespace, pod, container)
        listed = self.listed_containers if isinstance(self.listed_containers, dict) else {}
        entry = self.entry(ref)
        mine = {held.cdi_device: listed.get(held.cdi_device, frozenset()) | {name} for held in entry.devices}
        self.listed_containers = {**listed, **mine}
        number = f"{pid:064x}"
        self.lay_process(pid, f"/kubepods/pod{_POD_UID}/{number}")
        (self.folder / LINKS / f"{pod}_{ref.namespace}_{container}-{number}.log").touch()

    def lay_process(self, pid: int, group: str) -> None:
        """Have a process be in a control group."""
        (self.folder / "proc" / str(pid)).mkdir()
        (self.folder / "proc" / str(pid) / "cgroup").write_text(f"0::{group}\n")

    def samples(self, name: str) -> list[tuple[dict[str, str], float]]:
        """All values of a series, with their labels."""
        found: Any = self.metrics.registry.collect()
        return [
            (sample.labels, sample.value)
            for family in found
            for sample in family.samples
            if sample.name == f"gpu_dra_{name}"
        ]

    def told(self, claim: str) -> Told:
        """The amounts of a claim's one device."""
        amounts = ("memory_allocated_bytes", "memory_used_bytes", "share_ratio", "utilization_ratio")
        return {
            amount: value
            for amount in amounts
            for labels, value in self.samples(f"device_{amount}")
            if labels["claim"] == claim
        }

    def of_gpu(self, gpu: int) -> Told:
        """The amounts of a GPU."""
        pci = str(self.gpus[gpu])
        found: Any = self.metrics.registry.collect()
        return {
            sample.name.removeprefix("gpu_dra_gpu_"): sample.value
            for family in found
            for sample in family.samples
            if sample.name.startswith("gpu_dra_gpu_") and sample.labels.get("pci_bus_id") == pci
        }
