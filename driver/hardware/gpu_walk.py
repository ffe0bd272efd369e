"""Asks one GPU everything that the inventory holds about it, and notes what it could not tell."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, TypeVar
from uuid import UUID

from driver.errors import NvmlError
from driver.hardware import pci as sysfs
from driver.hardware.gpu import Gpu, NvLink, Problem
from driver.hardware.mig_walk import walk_mig
from driver.nvml.api import (
    DriverNotLoaded,
    GpuLost,
    NotSupported,
    NvmlCallFailed,
    NvmlTimeout,
    SessionLost,
)
from driver.nvml.pci_address import PciAddress

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from driver.hardware.gpu import GpuMig
    from driver.nvml.api import FabricInfo, MigMode, NvLinkEnd, NvmlDevice, Virtualization
    from driver.nvml.deadline import Watch

T = TypeVar("T")

_VENDOR_WORDS = ("GRID ", "NVIDIA ")


class GpuWalk:
    """One look at one GPU. ``run`` fills it in its lane; whoever waits reads it, also after a time-out.

    ``pci`` is the address, until NVML tells it the one that the caller expects. ``before`` is what
    was known of all GPUs; a board whose identity cannot be read now keeps the one it had.
    ``present`` are the NVIDIA functions in sysfs: nothing is read there about any other.
    """

    def __init__(
        self,
        index: int,
        expected: PciAddress | None,
        before: Mapping[PciAddress, Gpu],
        sysfs_root: Path,
        present: Collection[PciAddress],
    ) -> None:
        self._index = index
        self.pci = expected
        self.told_pci = False
        self.problems: list[Problem] = []
        self._before = before
        self._sysfs_root = sysfs_root
        self._present = present
        self._gpu: Gpu | None = None

    def run(self, device: NvmlDevice, watch: Watch) -> None:
        """Ask all; raises GpuLost, SessionLost and DriverNotLoaded, which end the walk."""
        self.pci = pci = watch("pci", device.pci)
        self.told_pci = True
        before = self._before.get(pci)
        uuid = self._ask(watch, "uuid", device.uuid)
        minor = self._ask(watch, "minor", device.minor)
        if before is not None:
            uuid = before.uuid if uuid is None else uuid
            minor = before.minor if minor is None else minor
        if uuid is None or minor is None:
            return
        self._gpu = Gpu(pci, uuid, minor, self._index)
        self._gpu = self._details(self._gpu, device, watch)

    def blame(self, error: NvmlError) -> None:
        """Note why the walk ended early."""
        self.problems.append(problem_of(error))

    def result(self) -> Gpu | None:
        """The GPU with its problems; as it last was when it is lost or hung; None when it has no identity."""
        problems = tuple(self.problems)
        before = self._before.get(self.pci) if self.pci else None
        if before is not None and any(problem.reason in ("lost", "hung") for problem in problems):
            return replace(before, problems=problems)
        if self._gpu is None:
            return None
        return replace(self._gpu, problems=problems)

    def _details(self, gpu: Gpu, device: NvmlDevice, watch: Watch) -> Gpu:
        name = self._ask(watch, "name", device.name)
        capability = self._ask(watch, "compute_capability", device.compute_capability)
        links = self._ask(watch, "nvlinks", device.nvlinks) or ()
        virtualization = _virtualization(self._ask(watch, "virtualization", device.virtualization))
        mode = self._mig_mode(device, watch)
        return Gpu(
            pci=gpu.pci,
            uuid=gpu.uuid,
            minor=gpu.minor,
            index=gpu.index,
            product_name=name,
            brand=self._ask(watch, "brand", device.brand),
            architecture=self._ask(watch, "architecture", device.architecture),
            cuda_compute_capability=f"{capability[0]}.{capability[1]}" if capability else None,
            memory_bytes=self._ask(watch, "memory_bytes", device.memory_bytes),
            addressing_mode=self._ask(watch, "addressing_mode", device.addressing_mode),
            numa_node=self._numa_node(gpu.pci, device, watch),
            pcie_root=sysfs.pcie_root(self._sysfs_root, gpu.pci) if gpu.pci in self._present else None,
            mig_capable=mode if isinstance(mode, bool) else None if mode is None else True,
            mig_enabled=mode if isinstance(mode, bool) else None if mode is None else mode.enabled,
            mig=self._mig(device, watch, mode, virtualization),
            virtualization=virtualization,
            vgpu_profile=_vgpu_profile(name) if virtualization == "vgpu" else None,
            fabric_clique=_clique(self._ask(watch, "fabric", device.fabric)),
            links=_direct_links(links),
            switch_links=sum(end.kind == "switch" for end in links),
        )

    def _ask(self, watch: Watch, name: str, call: Callable[[], T | None]) -> T | None:
        """The call's answer; None when it is not supported, or fails with an error that is then noted."""
        try:
            return watch(name, call)
        except NotSupported:
            return None
        except (GpuLost, SessionLost, DriverNotLoaded):
            raise
        except NvmlError as error:
            self.problems.append(problem_of(error))
            return None

    def _mig_mode(self, device: NvmlDevice, watch: Watch) -> MigMode | Literal[False] | None:
        """The mode; False where the GPU knows none ("not supported" is an answer here), None: not told."""
        try:
            return watch("mig_mode", device.mig_mode)
        except NotSupported:
            return False
        except (GpuLost, SessionLost, DriverNotLoaded):
            raise
        except NvmlError as error:
            self.problems.append(problem_of(error))
            return None

    def _mig(
        self,
        device: NvmlDevice,
        watch: Watch,
        mode: MigMode | Literal[False] | None,
        virtualization: str | None,
    ) -> GpuMig | None:
        """Profiles and instances of a GPU with MIG that this machine may cut: a vGPU guest may not."""
        if not mode or virtualization == "vgpu":
            return None
        try:
            return walk_mig(device, watch, mode)
        except (GpuLost, SessionLost, DriverNotLoaded):
            raise
        except NvmlError as error:
            self.problems.append(problem_of(error))
            return None

    def _numa_node(self, pci: PciAddress, device: NvmlDevice, watch: Watch) -> int | None:
        node = sysfs.numa_node(self._sysfs_root, pci) if pci in self._present else None
        return self._ask(watch, "numa_node", device.numa_node) if node is None else node


def problem_of(error: NvmlError) -> Problem:
    """What an NVML error says about the GPU that it hit."""
    reason: Literal["lost", "hung", "error"] = "error"
    if isinstance(error, GpuLost):
        reason = "lost"
    elif isinstance(error, NvmlTimeout):
        reason = "hung"
    call = error.call if isinstance(error, NvmlCallFailed) else "NVML"
    return Problem(call, reason, f"{error.what}: {error.way_out}")


def _virtualization(mode: Virtualization | None) -> Literal["none", "vgpu"] | None:
    """A GPU passed through whole is a whole GPU; the modes of a vGPU host tell nothing about containers."""
    if mode in ("none", "passthrough"):
        return "none"
    return "vgpu" if mode == "vgpu" else None


def _vgpu_profile(name: str | None) -> str | None:
    """The guest's product name without the vendor: ``GRID A100-10C`` is the profile ``A100-10C``."""
    for word in _VENDOR_WORDS:
        if name and name.startswith(word):
            return name.removeprefix(word)
    return name


def _clique(fabric: FabricInfo | None) -> str | None:
    """``<cluster uuid>.<clique id>`` in a fabric of several nodes; the fabric of one has no cluster UUID."""
    if fabric is None or fabric.state != "completed" or UUID(fabric.cluster_uuid).int == 0:
        return None
    return f"{fabric.cluster_uuid}.{fabric.clique}"


def _direct_links(links: tuple[NvLinkEnd, ...]) -> tuple[NvLink, ...]:
    counts = Counter(end.remote for end in links if end.kind == "gpu" and end.remote is not None)
    return tuple(NvLink(peer, counts[peer]) for peer in sorted(counts))
