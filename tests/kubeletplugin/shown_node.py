"""What tests look at on a fake node: its GPUs, what the plugin wrote, daemons and partitions.

Admins change partitions by hand here, too.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from kubeletplugin.sharing.time_slices import Interval
from tests.clusters import Object
from tests.gpus import (
    ComputeMode,
    FakeMachine,
    GpuInstance,
    NvmlDevice,
    PciAddress,
    Placement,
    gpu_device_name,
)
from tests.kubeletplugin.fake_sharing import FakeMps, time_slice
from tests.plugin import (
    ClaimRef,
    Entry,
    Journal,
    MpsDaemon,
    Peers,
    cdi_spec_file_name,
    record_of,
)

ONE, THREE = 19, 9
"""The ids of the profiles 1g.10gb and 3g.40gb of an H100."""


class HasUid(Protocol):
    """A claim, however a test has it."""

    @property
    def uid(self) -> str: ...


class ShownNode:
    """The looks; whoever has the node fills in what they look at."""

    folder: Path
    cdi: Path
    machine: FakeMachine
    gpus: tuple[PciAddress, ...]
    journal: Journal
    mps: FakeMps

    if TYPE_CHECKING:

        @property
        def boot_files(self) -> Path: ...

    def entry(self, ref: HasUid) -> Entry:
        """What the journal has of a claim."""
        entry = self.journal.get(ref.uid)
        assert entry is not None
        return entry

    def entry_file(self, ref: HasUid) -> Path:
        """Where it lies."""
        return self.boot_files / "journal" / f"{ref.uid}.json"

    def spec_path(self, ref: ClaimRef) -> Path:
        """Where the claim's CDI spec lies."""
        return self.cdi / cdi_spec_file_name(ref.uid)

    def spec(self, ref: ClaimRef) -> Object:
        """The claim's CDI spec."""
        spec: Object = json.loads(self.spec_path(ref).read_bytes())
        return spec

    def device_nodes(self, ref: ClaimRef) -> list[list[str]]:
        """The paths of the nodes of each device of a claim."""
        devices = self.spec(ref)["devices"]
        return [[node["path"] for node in device["containerEdits"]["deviceNodes"]] for device in devices]

    def variables(self, ref: ClaimRef, position: int = 0) -> dict[str, str]:
        """The variables that one device of a claim brings, by name."""
        lines = self.spec(ref)["devices"][position]["containerEdits"].get("env", ())
        return dict(line.split("=", 1) for line in lines)

    def assert_holds_nothing(self, ref: ClaimRef) -> None:
        """A prepare that failed has left neither an entry nor a spec."""
        assert self.journal.get(ref.uid) is None
        assert not self.spec_path(ref).exists()

    def read_anew(self) -> None:
        """Have the plugin look at its files again, as when another instance was there and wrote them."""
        Peers(self.folder / "instances").close()

    # GPUs that are shared.

    def whole(self, gpu: int = 0) -> str:
        """The device name of a GPU, which is its group's as well."""
        return gpu_device_name(self.gpus[gpu])

    def shared(self, form: str, gpu: int = 0) -> str:
        """The device name of a GPU that is shared so: ``ts-4``, ``mps-4``, ``mps-mem``."""
        return f"{self.whole(gpu)}-{form}"

    def compute_mode(self, gpu: int = 0) -> ComputeMode:
        return self.machine.state.gpus[self.gpus[gpu]].compute_mode

    def interval(self, gpu: int = 0) -> Interval:
        return time_slice(self.machine, self.gpus[gpu])

    def uuid(self, gpu: int = 0) -> str:
        return self.machine.uuid(self.gpus[gpu])

    def daemon(self, gpu: int = 0) -> MpsDaemon:
        """The daemon that runs for a GPU."""
        return self.mps.running[self.whole(gpu)]

    def daemon_limits(self, gpu: int = 0) -> tuple[int, tuple[int, ...]]:
        """The percentage and the MiB that the daemon of a GPU lets its clients have."""
        found = self.daemon(gpu)
        return found.active_thread_percentage, found.pinned_memory_mib

    def recorded(self) -> list[str]:
        """The groups that have a record on the disk."""
        return sorted(path.stem for path in (self.boot_files / "sharing").glob("*.json"))

    def assert_as_before(self) -> None:
        """No daemon, no mode, no time-slice and no record of a share is left."""
        assert self.mps.running == {}
        assert {gpu.compute_mode for gpu in self.machine.state.gpus.values() if gpu.present} == {"default"}
        assert {gpu.time_slice for gpu in self.machine.state.gpus.values()} == {0}
        assert self.recorded() == []

    # GPUs that are cut.

    def handle(self, gpu: int = 0) -> NvmlDevice:
        """A handle of a GPU in a session of the test's own."""
        nvml = self.machine.nvml()
        nvml.init()
        return nvml.device_by_pci(self.gpus[gpu])

    def instances(self, gpu: int = 0) -> tuple[GpuInstance, ...]:
        """What lies on a GPU, whoever made it; nothing with MIG mode off."""
        device = self.handle(gpu)
        return device.gpu_instances() if device.mig_mode().enabled else ()

    def mig_enabled(self, gpu: int = 0) -> bool:
        return self.handle(gpu).mig_mode().enabled

    def starts(self, gpu: int = 0) -> list[int]:
        return sorted(instance.placement.start for instance in self.instances(gpu))

    def partition_uuid(self, ref: ClaimRef) -> str:
        """The UUID of the partition that is a claim's first device."""
        return record_of(self.entry(ref).devices[0]).uuid

    def cut_by_hand(self, profile: int, start: int, size: int) -> GpuInstance:
        """What an admin cuts on GPU 0 with nvidia-smi."""
        device = self.handle(0)
        device.set_mig_mode(enabled=True)
        made = device.create_gpu_instance(profile, Placement(start, size))
        device.create_compute_instance(made.id, {ONE: 0, THREE: 2}[profile])
        return made
