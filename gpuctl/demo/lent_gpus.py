"""Lends the idle GPUs of this machine to the demo, and brings them back after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from driver.devices.names import gpu_device_name
from driver.errors import DriverError
from driver.nvml.mig import Placement
from driver.nvml.pci_address import PciAddress
from envtest.child_processes import start_process
from envtest.embedded.cluster import EmbeddedCluster, KubeletTimes
from fakegpu.machine.fake_machine import FakeMachine
from fakegpu.memory.calls import knows_limits
from fakegpu.nvml.flag import nvml_from_flag
from gpuctl.demo.brisk import BRISK
from gpuctl.demo.driver_node import DriverProcesses, apply_manifests, played_hook
from gpuctl.doctor.check import Finding, Result
from gpuctl.doctor.inside.places import Places
from gpuctl.doctor.inside.reading import look_at_node
from gpuctl.verify.change.gpu_state import GpuState, gpu_tools, read_state
from gpuctl.verify.change.run import idle_gpus, recorded
from gpuctl.verify.change.undo import RESTORE, UndoRecord, restore
from gpuctl.verify.subject import Subject

TIMES = KubeletTimes(scan=0.1, prepare_retry=(1.0, 2.0), unprepare_retry=1.0)
"""The kubelet's intervals: shorter than the real one's, since somebody watches."""


class NotLent(DriverError):
    """The GPUs of this machine may not be used, or could not be brought back."""

    retryable = False


@dataclass(frozen=True, slots=True)
class LentGpus:
    """The idle GPUs of a machine. ``record`` has their states before, to which they are brought back."""

    places: Places
    gpus: tuple[PciAddress, ...]
    record: UndoRecord

    def cluster(self, folder: Path, *, https: bool) -> EmbeddedCluster:
        """An embedded cluster in an empty folder; what is started beside it is noted in the record."""
        self.record.note_folder(folder)
        start = partial(self.record.start_noted, start_process)
        return EmbeddedCluster(times=TIMES, folder=folder, start=start, https=https)

    def driver(self, cluster: EmbeddedCluster) -> DriverProcesses:
        """The driver's processes over these GPUs, not started yet."""
        apply_manifests(cluster)
        places, node, proc, hook = self.places, cluster.nodes[0], Path("/proc"), None
        if places.nvml.startswith("fake:"):
            # An empty one: the processes of this machine are not those of the fake node.
            proc = node.folder / "proc"
            proc.mkdir(parents=True)
            hook = played_hook(node.folder)
            machine = FakeMachine.open(places.nvml)
            if knows_limits(machine.state.driver_version) and not machine.state.pretend_cgroups:
                machine.pretend_cgroups(node.cgroup_dir)
        return DriverProcesses(
            cluster=cluster,
            node=node,
            nvml=places.nvml,
            driver_root=places.driver_root,
            sysfs_root=places.sysfs_root,
            proc_root=proc,
            own_shm=False,  # no container of the demo has a process that would need it
            host_root=places.host_root,
            launcher=BRISK,
            memory_hook=hook,
        )

    def node_config(self, config: Path) -> dict[str, Any]:
        """A node configuration that hides all GPUs but these from the driver."""
        found: dict[str, Any] = yaml.safe_load(config.read_text())
        named = ", ".join(f'"{pci}"' for pci in self.gpus)
        hidden = {"when": f"!(gpu.pciBusID in [{named}])", "offer": "hidden"}
        # No container of the demo has a process, so nobody can be held to a memory limit.
        rules = [{**rule, "memoryLimits": False} for rule in found["rules"]]
        return {**found, "rules": [hidden, *rules]}

    def cut(self) -> dict[str, tuple[Placement, ...]]:
        """The GPUs that are in MIG mode now, with the placements of their GPU instances."""
        return {
            name: tuple(sorted((Placement(one.start, one.size) for one in state.instances), key=_start))
            for name, state in self._states().items()
            if state.mig_enabled
        }

    def _states(self) -> dict[str, GpuState]:
        with gpu_tools(self.places) as tools:
            return {gpu_device_name(pci): read_state(tools, pci) for pci in self.gpus}


@contextmanager
def lent_gpus(places: Places, say: Callable[[str], None]) -> Iterator[LentGpus]:
    """Lend the idle GPUs for the block; afterwards they are as before. Raises NotLent, and DriverError."""
    roots = places.roots()
    subject = Subject(places, look_at_node(places), lambda: nvml_from_flag(places.nvml, roots))
    idle = idle_gpus(subject)
    if isinstance(idle, Finding):
        raise NotLent("; ".join([idle.message, *idle.details]), idle.way_out)
    record = recorded(places, idle.gpus)
    try:
        yield LentGpus(places, tuple(gpu.pci for gpu in idle.gpus), record)
    finally:
        wrong = [one for one in restore(places, say) if one.status == "fail"]
        if wrong:
            raise NotLent("; ".join(map(_words, wrong)), f"run {RESTORE}")


def _words(result: Result) -> str:
    return ", ".join([f"{result.check}: {result.message}", *result.details])


def _start(place: Placement) -> int:
    return place.start
