"""Reads from one GPU all that the inventory has about it, and notes which calls failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, TypeVar
from uuid import UUID

from driver.errors import NvmlError
from driver.hardware import pci as sysfs
from driver.hardware.call_effects import DECIDING, EVERYTHING, MAY_END
from driver.hardware.condition import ConditionReading, problems_of
from driver.hardware.gpu import NOT_ASKED, Gpu, GpuMig, NvLink, Problem, Reason, UnreadGpu, without_answers
from driver.hardware.mig_walk import KnownProfiles, MigWalk
from driver.hardware.vgpu import VgpuLicense, license_of
from driver.hardware.vgpu_places import VgpuHost, read_vgpu_host
from driver.nvml.api import (
    GPU_CALLS,
    Code,
    DriverNotLoaded,
    FabricFailed,
    FabricInfo,
    GpuLost,
    MigMode,
    NotSupported,
    NvmlCallFailed,
    NvmlDevice,
    NvmlTimeout,
    SessionLost,
)
from driver.nvml.deadline import Watch
from driver.nvml.limits_probe import can_be_limited
from driver.nvml.pci_address import PciAddress
from driver.nvml.vgpu import vgpu_profile

T = TypeVar("T")
Virtual = Literal["none", "vgpu", "host-vgpu"]

FABRIC_NOT_STARTED = "not-started"
_FABRIC_IS_NOT_UP = {
    FABRIC_NOT_STARTED: Problem(
        GPU_CALLS["fabric"],
        "fabric",
        "the NVLink fabric is not set up, and CUDA fails with error 802 until it is: start the fabric "
        "manager",
        FABRIC_NOT_STARTED,
    ),
    "in-progress": Problem(
        GPU_CALLS["fabric"],
        "fabric",
        "the NVLink fabric is still being set up, and CUDA does not start until it is: check that the "
        "fabric manager runs",
    ),
}
_LICENSE_NEEDED = (
    "this vGPU has no license, and CUDA stops working after a while without one: check that nvidia-gridd "
    "runs, and see its log"
)
_HARMLESS = frozenset(
    {
        *(Code.INVALID_ARGUMENT, Code.NOT_SUPPORTED, Code.FUNCTION_NOT_FOUND, Code.NO_PERMISSION),
        *(Code.NOT_FOUND, Code.OPERATING_SYSTEM),
    }
)
"""Return codes which mean that the call cannot be made, and say nothing about the GPU."""


class GpuWalk:
    """One check of one GPU. ``run`` fills it in the GPU's worker; the caller reads it, also after a timeout.

    ``pci`` is the address that the caller expects, until NVML gives the real one (``pci_is_certain``).
    ``before`` has the last state of all GPUs; its values stay where this check gets no answers
    (driver.hardware.call_effects). ``present`` are the NVIDIA functions in sysfs, which is read for no other
    function. Memory limits are asked for only on a node with ``cgroup_v2``.
    """

    def __init__(
        self,
        index: int,
        expected: PciAddress | None,
        before: Mapping[PciAddress, Gpu],
        sysfs_root: Path,
        present: Collection[PciAddress],
        cgroup_v2: bool,
        known_profiles: KnownProfiles,
    ) -> None:
        self._index = index
        self.pci = expected
        self.pci_is_certain = False
        self.problems: list[Problem] = []
        self._before = before
        self._sysfs_root = sysfs_root
        self._present = present
        self._cgroup_v2 = cgroup_v2
        self._known_profiles = known_profiles
        self._former: Gpu | None = None
        self._unanswered: set[str] = set()
        self._gpu: Gpu | None = None
        self._fabric_up = False

    def run(self, device: NvmlDevice, watch: Watch) -> None:
        """Make all calls; GpuLost, SessionLost and DriverNotLoaded end the walk and are raised."""
        self.pci = pci = watch("pci", device.pci)
        self.pci_is_certain = True
        self._former = before = self._before.get(pci)
        # The UUID decides whether the earlier state is of this board or of one that was exchanged.
        uuid = self._ask(watch, "uuid", device.uuid, before.uuid if before else None)
        if before is not None and uuid != before.uuid:
            self._former = before = None
        minor = self._ask(watch, "minor", device.minor, before.minor if before else None)
        if uuid is None or minor is None:
            return
        # From here on there is something to report, even if the next call hangs and the walk is abandoned.
        blank = self._with_pcie_place(Gpu(pci, uuid, minor, self._index, unanswered=EVERYTHING))
        self._gpu = blank
        former = without_answers(before.condition if before else NOT_ASKED)
        self._gpu = gpu = replace(self._details(blank, before or blank, device, watch), condition=former)
        # Last, so that a call about health that hangs costs nothing that decides about the devices.
        reading = ConditionReading(device, watch, former, self.add_problem, in_fabric=self._in_fabric(gpu))
        self._gpu = replace(gpu, condition=reading.run())
        self.problems.extend(problems_of(self._gpu.condition))

    def add_problem(self, error: NvmlError) -> None:
        """Add the problem of a call on which no device depends, or of one that ended the walk early."""
        self.problems.append(problem_of(error))

    def result(self) -> Gpu | None:
        """The GPU with its problems, in its last state if this check did not end; None without identity."""
        problems = tuple(self.problems)
        before = self._before.get(self.pci) if self.pci else None
        if before is not None and self._gpu is not None and self._gpu.uuid != before.uuid:
            before = None
        if before is not None and (self._gpu is None or self._gpu.unanswered == EVERYTHING):
            return replace(before, problems=problems, condition=without_answers(before.condition))
        if self._gpu is None:
            return None
        return replace(self._gpu, problems=problems)

    def _details(self, blank: Gpu, before: Gpu, device: NvmlDevice, watch: Watch) -> Gpu:
        """All of the GPU. ``before`` is the same board at an earlier check, or a blank one."""
        name = self._ask(watch, "name", device.name, before.product_name)
        capability = self._ask(
            watch, "compute_capability", lambda: _dotted(device), before.cuda_compute_capability
        )
        architecture = self._ask(watch, "architecture", device.architecture, before.architecture)
        links, switch_links = self._ask(
            watch, "nvlinks", lambda: _links(device), (before.links, before.switch_links)
        ) or ((), 0)
        virtualization: Virtual | None = self._ask(
            watch, "virtualization", lambda: _virtualization(device), before.virtualization
        )
        mode, capable = self._mig_mode(device, watch, before)
        return Gpu(
            pci=blank.pci,
            uuid=blank.uuid,
            minor=blank.minor,
            index=blank.index,
            product_name=name,
            brand=self._ask(watch, "brand", device.brand, before.brand),
            architecture=architecture,
            cuda_compute_capability=capability,
            memory_bytes=self._ask(watch, "memory_bytes", device.memory_bytes, before.memory_bytes),
            reserved_bytes=self._reserved(device, watch, before.reserved_bytes),
            addressing_mode=self._ask(
                watch, "addressing_mode", device.addressing_mode, before.addressing_mode
            ),
            numa_node=self._numa_node(blank.pci, device, watch, before.numa_node),
            pcie_root=blank.pcie_root,
            pcie_switches=blank.pcie_switches,
            cpu_affinity=blank.cpu_affinity,
            mig_capable=capable,
            mig_enabled=mode.enabled if mode else capable,
            mig=self._mig(blank.uuid, device, watch, mode, virtualization, architecture, before),
            virtualization=virtualization,
            vgpu_profile=vgpu_profile(name) if name and virtualization == "vgpu" else None,
            vgpu=self._vgpu(blank.pci, device, watch, before) if virtualization == "host-vgpu" else None,
            module_id=self._ask(watch, "module_id", device.module_id, before.module_id),
            vgpu_license=self._license(device, watch, virtualization, before),
            memory_limits=self._memory_limits(device, watch, mode, before.memory_limits),
            fabric_clique=self._fabric(device, watch, mode, before.fabric_clique),
            links=links,
            switch_links=switch_links,
            unanswered=frozenset(self._unanswered),
        )

    def _ask(
        self, watch: Watch, name: str, call: Callable[[], T | None], before: T | None = None
    ) -> T | None:
        """The call's answer; ``before`` if it fails, which is noted; None if it is not supported."""
        try:
            return watch(name, call)
        except (GpuLost, SessionLost, DriverNotLoaded):
            raise
        except NotSupported as error:
            # A value that was there before cannot become unsupported on a healthy GPU.
            if before is None or name in MAY_END:
                return None
            self._note_failure(name, error, known=True)
        except NvmlError as error:
            self._note_failure(name, error, known=self._known(name))
        return before if self._known(name) else None

    def _known(self, *names: str) -> bool:
        """Whether this board answered these calls at an earlier check."""
        return self._former is not None and self._former.unanswered.isdisjoint(names)

    def _note_failure(self, name: str, error: NvmlError, known: bool) -> None:
        """Note a call that failed. ``known``: an earlier answer replaces this one."""
        self.problems.append(problem_of(error, keeps_away=known and name in DECIDING))
        if not known:
            self._unanswered.add(name)

    def _reserved(self, device: NvmlDevice, watch: Watch, before: int | None) -> int | None:
        """The memory that the NVIDIA driver keeps: the most that this board has ever reported."""
        # NVML reports another reserve in MIG mode than outside of it. Shares must not change size with the
        # mode.
        now = self._ask(watch, "memory_use", lambda: device.memory_use().reserved_bytes, before)
        return now if now is None or before is None else max(now, before)

    def _mig_mode(self, device: NvmlDevice, watch: Watch, before: Gpu) -> tuple[MigMode | None, bool | None]:
        """The mode, and whether the GPU has MIG at all; None for what NVML did not report."""
        former = None
        if before.mig is not None:
            former = MigMode(before.mig.enabled, before.mig.pending)
        elif before.mig_capable and before.mig_enabled is not None:
            # The mode was known while MIG's other calls failed.
            former = MigMode(before.mig_enabled, before.mig_enabled)
        mode = self._ask(watch, "mig_mode", device.mig_mode, former)
        if mode is not None:
            return mode, True
        return None, None if "mig_mode" in self._unanswered else False

    def _mig(
        self,
        uuid: str,
        device: NvmlDevice,
        watch: Watch,
        mode: MigMode | None,
        virtualization: Virtual | None,
        architecture: str | None,
        before: Gpu,
    ) -> GpuMig | None:
        """The state of MIG, unless this machine may not make instances: a vGPU guest may not."""
        if not mode or virtualization == "vgpu":
            return None
        walk = MigWalk(
            device, watch, before.mig, before.unanswered, self._note_failure, uuid, self._known_profiles
        )
        return walk.run(mode, architecture)

    def _vgpu(self, pci: PciAddress, device: NvmlDevice, watch: Watch, before: Gpu) -> VgpuHost:
        """The vGPUs that this host can make of the GPU, and those that exist."""
        former = before.vgpu.types if before.vgpu is not None else None
        types = self._ask(watch, "vgpu_types", device.vgpu_types, former)
        return read_vgpu_host(self._sysfs_root, pci, types)

    def _license(
        self, device: NvmlDevice, watch: Watch, virtualization: Virtual | None, before: Gpu
    ) -> VgpuLicense | None:
        """The license of a vGPU, None for any other GPU; a vGPU without one has a problem."""
        if virtualization != "vgpu":
            return None
        call = "licensable_features"
        found = self._ask(watch, call, lambda: license_of(device.licensable_features()), before.vgpu_license)
        if found is not None and not found.licensed:
            self.problems.append(Problem(GPU_CALLS[call], "unlicensed", _LICENSE_NEEDED))
        return found

    def _memory_limits(
        self, device: NvmlDevice, watch: Watch, mode: MigMode | None, before: bool | None
    ) -> bool | None:
        """Whether the driver can limit the memory of containers."""
        if not self._cgroup_v2:
            return None
        try:
            found = can_be_limited(device, watch)
        except (GpuLost, SessionLost, DriverNotLoaded):
            raise
        except NvmlError as error:
            self._note_failure("memory_limits", error, known=self._known("memory_limits"))
            return before
        # In MIG mode there are no limits, which says nothing about the time after it.
        return before if not found and mode and mode.enabled else found

    def _fabric(
        self, device: NvmlDevice, watch: Watch, mode: MigMode | None, before: str | None
    ) -> str | None:
        """The clique. A fabric that is not up, or has failed, is a problem, except for a GPU in MIG mode."""
        problem: Problem | None
        try:
            info = watch("fabric", device.fabric)
        except (GpuLost, SessionLost, DriverNotLoaded):
            raise
        except NotSupported:
            return None
        except FabricFailed as error:
            text = f"{error.what}: {error.way_out}"
            problem = Problem(GPU_CALLS["fabric"], "fabric", text, "failed")
        except NvmlError as error:
            self._note_failure("fabric", error, known=self._known("fabric"))
            return before
        else:
            # Only a fabric that is up has a clique and a health.
            self._fabric_up = info.state == "completed"
            problem = _FABRIC_IS_NOT_UP.get(info.state)
            if problem is None:
                return _clique(info)
        # A GPU in MIG mode talks to no other GPU, so it needs no fabric.
        if mode is None or not mode.enabled:
            self.problems.append(problem)
        return before

    def _in_fabric(self, gpu: Gpu) -> bool:
        """Whether the GPU uses a fabric that is up; a GPU in MIG mode uses none."""
        return self._fabric_up and not gpu.mig_enabled

    def _with_pcie_place(self, gpu: Gpu) -> Gpu:
        """The GPU with its place in the PCIe tree, as far as sysfs shows it."""
        if gpu.pci not in self._present:
            return gpu
        return replace(
            gpu,
            pcie_root=sysfs.pcie_root(self._sysfs_root, gpu.pci),
            pcie_switches=sysfs.pcie_switches(self._sysfs_root, gpu.pci),
            cpu_affinity=sysfs.local_cpus(self._sysfs_root, gpu.pci),
        )

    def _numa_node(self, pci: PciAddress, device: NvmlDevice, watch: Watch, before: int | None) -> int | None:
        # sysfs first: it costs no NVML call, and it is what the kernel itself goes by.
        node = sysfs.numa_node(self._sysfs_root, pci) if pci in self._present else None
        return self._ask(watch, "numa_node", device.numa_node, before) if node is None else node


def problem_of(error: NvmlError, *, keeps_away: bool = False) -> Problem:
    """The problem of a GPU with which a call ended in this error.

    ``keeps_away``: the call decides about the devices, so any failure of it must keep new pods away.
    """
    call = error.call if isinstance(error, NvmlCallFailed) else "NVML"
    return Problem(call, _reason(error, keeps_away), f"{error.what}: {error.way_out}")


def _reason(error: NvmlError, keeps_away: bool) -> Reason:
    if isinstance(error, GpuLost):
        return "lost"
    if isinstance(error, NvmlTimeout):
        return "hung"
    code = error.code if isinstance(error, NvmlCallFailed) else None
    if code == Code.RESET_REQUIRED:
        return "reset-required"
    return "error" if code in _HARMLESS and not keeps_away else "failing"


def _dotted(device: NvmlDevice) -> str:
    major, minor = device.compute_capability()
    return f"{major}.{minor}"


def _links(device: NvmlDevice) -> tuple[tuple[NvLink, ...], int]:
    """The direct links, and the number of links into switches."""
    ends = device.nvlinks()
    counts = Counter(end.remote for end in ends if end.kind == "gpu" and end.remote is not None)
    direct = tuple(NvLink(peer, counts[peer]) for peer in sorted(counts))
    return direct, sum(end.kind == "switch" for end in ends)


def _virtualization(device: NvmlDevice) -> Virtual | None:
    """The mode, with passthrough as none; None for modes that mean nothing for containers."""
    mode = device.virtualization()
    # A GPU that is passed through is a whole GPU for this machine. vSGA is for graphics of desktops.
    if mode in ("none", "passthrough"):
        return "none"
    return mode if mode in ("vgpu", "host-vgpu") else None


def _clique(fabric: FabricInfo) -> str | None:
    """``<cluster uuid>.<clique id>`` in a fabric of several nodes, None in any other."""
    # The fabric manager of a single node leaves the cluster UUID at zero.
    if fabric.state != "completed" or UUID(fabric.cluster_uuid).int == 0:
        return None
    return f"{fabric.cluster_uuid}.{fabric.clique}"


def unread_gpus(
    unidentified: Sequence[GpuWalk], unlisted: tuple[UnreadGpu, ...], sysfs_tells: bool
) -> tuple[UnreadGpu, ...]:
    """The GPUs whose identity was never read, with their problems.

    ``unidentified`` are their walks, ``unlisted`` the functions in sysfs that NVML did not report.
    ``sysfs_tells``: sysfs shows functions at all.
    """
    found = [UnreadGpu(walk.pci, tuple(walk.problems)) for walk in unidentified if walk.pci_is_certain]
    rest = list(unlisted)
    without_pci = [walk for walk in unidentified if not walk.pci_is_certain]
    if not sysfs_tells:
        return (*found, *(UnreadGpu(None, tuple(walk.problems)) for walk in without_pci))
    # NVML's indexes are in the order of PCI addresses. If there are as many walks without an address as there
    # are addresses without a walk, the two belong together in that order.
    if len(without_pci) == len(rest):
        rest = [
            replace(one, problems=tuple(walk.problems)) for one, walk in zip(rest, without_pci, strict=True)
        ]
    # Which problem belongs to which address is not known, so each address gets all of them.
    elif without_pci:
        rest = [
            replace(one, problems=tuple(p for walk in without_pci for p in walk.problems)) for one in rest
        ]
    return (*found, *rest)
