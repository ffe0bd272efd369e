"""The checks of a node: those that doctor has for a node without a cluster, and nvidia-smi beside NVML."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from driver.errors import DriverError, NvmlError
from driver.hardware.gpu import Inventory
from driver.hardware.inventory import Discovery
from driver.nvml.api import DriverNotLoaded, GpuLost, NvmlCallFailed, NvmlDevice, SessionLost
from driver.nvml.deadline import Guard, Watch
from driver.nvml.pci_address import PciAddress
from gpuctl.doctor.check import Check, Finding, check, counted, fail, ok, require, skipped, warn
from gpuctl.doctor.inside.checks import INSIDE
from gpuctl.doctor.inside.seen import NodeSeen
from gpuctl.verify.checks.ctk import CTK_CHECKS
from gpuctl.verify.checks.kernel_checks import KERNEL_CHECKS, OTHER_MACHINE, has_own_files
from gpuctl.verify.checks.smi_differences import Asked, Comparison, compare, compare_list
from gpuctl.verify.checks.smi_xml import MOST_CHARACTERS, SmiUnreadable, read_list, read_log
from gpuctl.verify.subject import Subject
from kubeletplugin.devices.host.driver_files import InstalledDriver
from kubeletplugin.devices.host.driver_programs import DriverPrograms, Said, run_program

T = TypeVar("T")
RunSmi = Callable[..., Said]
"""Runs nvidia-smi with these words."""

WITHOUT_CLUSTER = (
    *("driver-root", "driver-edition", "same-driver", "nvml", "device-nodes", "fabric"),
    *("vgpu-license", "cgroups"),
    *("iommu", "vfio-modules", "vfio-safety", "virtual-functions"),
)
"""The checks of doctor that need neither a cluster nor this driver's processes."""

_SMI = "nvidia-smi"
_SMI_SECONDS = 60.0
"""Without persistence mode the kernel first initialises each GPU, which takes seconds."""

_MOST_SHOWN = 200

_BROKEN = frozenset({"lost", "hung"})


def _of_node(known: Check[NodeSeen]) -> Check[Subject]:
    """A check of doctor as one of a subject."""
    return Check(known.name, known.looks_at, known.fails_when, lambda subject: known.look(subject.seen))


def _doctors_checks() -> tuple[Check[Subject], ...]:
    by_name = {known.name: known for known in INSIDE}
    return tuple(_of_node(by_name[name]) for name in WITHOUT_CLUSTER)


@check(
    "nvidia-smi",
    "whether `nvidia-smi -q -x` says the same as NVML about the node, its GPUs and their MIG devices",
    "a value differs, or nvidia-smi fails, hangs or prints no log; warns about what it prints besides",
)
def _smi(subject: Subject) -> Finding:
    inventory, files = require(subject.seen.inventory), require(subject.seen.driver_files)
    if not any(path.endswith(f"/{_SMI}") for path in files.binaries):
        return skipped(f"driver {files.version} is installed without {_SMI}")
    if not has_own_files(subject):
        return skipped(OTHER_MACHINE)
    try:
        return compare_smi(inventory, ask_gpus(subject), lambda *words: run_smi(subject, words))
    except DriverError as error:
        return fail(error.what, error.way_out)


def compare_smi(inventory: Inventory, asked: dict[PciAddress, Asked], run: RunSmi) -> Finding:
    """Compare NVML's answers with what nvidia-smi prints; ``run`` runs it. Raises DriverError."""
    said = run("-q", "-x")
    try:
        log = read_log("\n".join(said.lines))
    except SmiUnreadable as error:
        raise SmiUnreadable(f"{error.what} (exit code {said.code})", error.way_out) from error
    found = compare(inventory, asked, log)
    if any(gpu.migs for gpu in log.gpus) or any(gpu.mig and gpu.mig.partitions for gpu in inventory.gpus):
        # The log has no UUIDs of MIG devices and no names of their profiles.
        compare_list(found, inventory, read_list("\n".join(run("-L").lines)))
    if found.differences:
        return fail(
            f"nvidia-smi and NVML differ in {counted(len(found.differences), 'value')} of "
            f"{found.same + len(found.differences)}",
            "report it with these lines: one of both is read wrongly, or the GPU changed in between",
            [*found.differences, *_not_compared(found)],
        )
    if said.code != 0 or log.beside:
        # It ends with 14 and a warning if the inforom of a board is broken.
        return warn(
            f"nvidia-smi agrees with NVML in {counted(found.same, 'value')}, but ended with {said.code} and "
            "printed more than its log",
            "look up these lines, and the NVIDIA driver's messages in the kernel log (dmesg)",
            [line[:_MOST_SHOWN] for line in log.beside],
        )
    if not inventory.gpus:
        return skipped("neither NVML nor nvidia-smi lists a GPU")
    return ok(
        f"nvidia-smi agrees with NVML about {counted(len(inventory.gpus), 'GPU')} in "
        f"{counted(found.same, 'value')}",
        _not_compared(found),
    )


def _not_compared(found: Comparison) -> list[str]:
    """Lines with the values that only one of both has."""
    sides = (("NVML", found.only_nvml), ("nvidia-smi", found.only_smi))
    return [
        f"not compared, since only {side} has it: {', '.join(sorted(names))}"
        for side, names in sides
        if names
    ]


def run_smi(subject: Subject, words: Sequence[str], timeout_seconds: float = _SMI_SECONDS) -> Said:
    """Run nvidia-smi of the driver root; raises DriverError."""
    with TemporaryDirectory(prefix="gpu-dra-") as links:
        programs = DriverPrograms(InstalledDriver(subject.places.roots()), Path(links))
        return run_program(
            programs.find(_SMI), words, timeout_seconds=timeout_seconds, most_output_bytes=MOST_CHARACTERS
        )


def ask_gpus(subject: Subject) -> dict[PciAddress, Asked]:
    """What NVML answers beyond the inventory, of each GPU that can be asked."""
    guard = Guard()
    discovery = Discovery(subject.open_nvml(), subject.places.sysfs_root, guard)
    found: dict[PciAddress, Asked] = {}
    try:
        for gpu in subject.gpus:
            # The inventory says already what is wrong with it, and each call would take its whole deadline.
            if _BROKEN.isdisjoint(problem.reason for problem in gpu.problems):
                with suppress(NvmlError):
                    found[gpu.pci] = discovery.on_gpu(gpu.pci, _ask)
    finally:
        discovery.close()
        guard.close()
    return found


def _ask(device: NvmlDevice, watch: Watch) -> Asked:
    """Ask one GPU; an answer that fails is missing, which is what the checks of NVML are about."""

    def answer(name: str, call: Callable[[], T | None]) -> T | None:
        try:
            return watch(name, call)
        except (GpuLost, SessionLost, DriverNotLoaded):
            raise
        except NvmlCallFailed:
            return None

    return Asked(
        compute_mode=answer("compute_mode", device.compute_mode),
        persistence_mode=answer("persistence_mode", device.persistence_mode),
        virtualization=answer("virtualization", device.virtualization),
        fabric=answer("fabric", device.fabric),
        ecc=answer("ecc_errors", device.ecc_errors),
    )


NODE_CHECKS: tuple[Check[Subject], ...] = (*_doctors_checks(), *KERNEL_CHECKS, _smi, *CTK_CHECKS)
"""The checks of the node, in their order."""
