"""The check of CUDA: a probe uses one whole GPU that nobody uses, and NVML shows it, and its end."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event

from driver.errors import NvmlError
from driver.hardware.gpu import Gpu
from driver.hardware.inventory import Discovery
from driver.nvml.api import NotSupported, NvmlDevice
from driver.nvml.deadline import Guard, Watch
from driver.nvml.modes import ComputeMode
from driver.roots.root import SLASH, Root
from gpuctl.cli.unread import Unread
from gpuctl.doctor.check import Check, Finding, fail, ok, skipped, warn
from gpuctl.probe.answer import SECONDS, Answer, Device, NoAnswer, ask_probe
from gpuctl.probe.run import OK
from gpuctl.verify.subject import Subject
from kubeletplugin.devices.host.driver_files import DriverFiles

MOST_MISSING, _MOST_RESERVED_BYTES = 0.05, 768 << 20
"""The part of a GPU's memory that CUDA need not have: the NVIDIA driver keeps some hundred MiB for itself.

On a small vGPU that is more than the part.
"""

_LEFT_BYTES = 16 << 20
"""How much more memory than before may be in use after the probe. The GPU may stay initialised."""

_END_SECONDS = 5.0
_POLL_SECONDS = 0.1
_LIBRARY_PATH = "LD_LIBRARY_PATH"

_WAYS_OUT = {
    46: "another process took the GPU, or its compute mode allows none: see nvidia-smi -q -d COMPUTE",
    100: "see that /dev/nvidiactl, /dev/nvidia-uvm and /dev/nvidia0 exist and can be opened from here",
    221: "install libnvidia-ptxjitcompiler, a part of the NVIDIA driver",
    802: "see that nvidia-fabricmanager runs: without it CUDA does not start on GPUs with NVSwitch",
    803: "end the processes that use GPUs, and load the kernel module of the installed driver, or reboot",
    999: "look for Xid messages in the kernel log, and see that the module nvidia_uvm is loaded",
}
"""By CUresult, what to do about a call that failed."""

_WAY_OUT = "look for Xid messages in the kernel log; CUDA programs have to work on the node first"


@dataclass(frozen=True, slots=True)
class _Use:
    """How a GPU is used at one moment, by NVML; None is what the GPU does not report."""

    processes: frozenset[int]
    used_bytes: int | None
    mode: ComputeMode | None


def cuda_checks(seconds: float = SECONDS) -> tuple[Check[Subject], ...]:
    """The checks of CUDA; the probe is killed after so many seconds."""
    return (
        Check(
            "cuda-probe",
            (
                "CUDA on one whole GPU that nobody uses: a program allocates 64 MiB, runs a kernel from PTX "
                "and compares what it computed; what CUDA and NVML say about the GPU; whether its memory is "
                "free after it"
            ),
            (
                "a call fails, hangs or computes wrongly, another GPU is seen, memory differs by more than "
                "5 %, or stays"
            ),
            partial(_cuda_probe, seconds=seconds),
        ),
    )


def _cuda_probe(subject: Subject, *, seconds: float) -> Finding:
    with _nvml(subject) as ask:
        chosen, reasons = _idle_gpu(subject, ask)
        if chosen is None:
            return Finding("skipped", "no whole GPU is idle", "run it again when a GPU is free", reasons)
        gpu, before = chosen
        try:
            with program_environment(subject) as variables:
                environment = {**variables, "CUDA_VISIBLE_DEVICES": gpu.uuid}
                cuda = ["--cuda", subject.places.nvml] if subject.is_fake else []
                answer = ask_probe(cuda, environment, seconds)
        except NoAnswer as error:
            return fail(f"{gpu.pci}: {error.what}", _WAY_OUT)
        except OSError as error:
            return skipped(f"the probe cannot be started: {error.strerror}")
        finding = _judged(answer, gpu)
        left = _left(ask, gpu, before)
    if left and finding.status != "fail":
        return fail(f"{gpu.pci}: {left}", "see which process uses the GPU: nvidia-smi")
    return finding


Ask = Callable[[Gpu], _Use | str]
"""Asks NVML how a GPU is used; returns why that failed if it did."""


@contextmanager
def _nvml(subject: Subject) -> Iterator[Ask]:
    """Asks NVML about one GPU at a time until the block ends. A call that hangs is given up."""

    def job(device: NvmlDevice, watch: Watch) -> _Use:
        processes = frozenset(watch("process_ids", device.process_ids))
        mode = used_bytes = None
        with suppress(NotSupported):
            mode = watch("compute_mode", device.compute_mode)
        with suppress(NotSupported):
            used_bytes = watch("memory_use", device.memory_use).used_bytes
        return _Use(processes, used_bytes, mode)

    guard = Guard()
    discovery = Discovery(subject.open_nvml(), subject.places.sysfs_root, guard)

    def ask(gpu: Gpu) -> _Use | str:
        try:
            return discovery.on_gpu(gpu.pci, job)
        except NvmlError as error:
            return error.what

    try:
        yield ask
    finally:
        with suppress(NvmlError):
            discovery.close()
        guard.close()


def _idle_gpu(subject: Subject, ask: Ask) -> tuple[tuple[Gpu, _Use] | None, tuple[str, ...]]:
    """The first GPU that nobody uses, with its use, and why each one before it was passed over."""
    reasons: list[str] = []
    claimed = _claimed(subject)
    for gpu in subject.gpus:
        use = ask(gpu)
        reason = use if isinstance(use, str) else _in_the_way(gpu, use, claimed)
        if not reason and not isinstance(use, str):
            return (gpu, use), tuple(reasons)
        reasons.append(f"{gpu.pci}: {reason}")
    return None, tuple(reasons)


def _in_the_way(gpu: Gpu, use: _Use, claimed: Mapping[str, str]) -> str:
    """Why the probe leaves a GPU alone; empty if it may use it."""
    if gpu.mig_enabled:
        return "MIG is on"
    if use.processes:
        return f"processes use it: {', '.join(map(str, sorted(use.processes)))}"
    if str(gpu.pci) in claimed:
        return f"the claim {claimed[str(gpu.pci)]} has it"
    if use.mode == "prohibited":
        return "its compute mode is prohibited"
    return ""


def _claimed(subject: Subject) -> dict[str, str]:
    """The GPUs that claims hold according to the plugin's journal: their addresses, each with a claim."""
    journal = subject.seen.journal
    entries = [] if isinstance(journal, Unread) else journal.values()
    return {
        pci: f"{entry.namespace}/{entry.name}"
        for entry in entries
        if not isinstance(entry, Unread) and entry.holds
        for pci in entry.gpus
    }


@contextmanager
def program_environment(subject: Subject, folder: Path | None = None) -> Iterator[dict[str, str]]:
    """The environment of a program that finds libcuda, and nothing that says which GPU it uses.

    Links to the libraries are made below ``folder``, by default below the system's for temporary files.
    """
    # Nothing of MPS: the GPU is idle, and a daemon elsewhere on the node does not serve it.
    known = {name: value for name, value in os.environ.items() if not name.startswith(("CUDA_", "NVIDIA_"))}
    # No MPS daemon has its sockets there; without the variable CUDA would look for one in /tmp.
    known["CUDA_MPS_PIPE_DIRECTORY"] = os.devnull
    roots = subject.places.roots()
    roots.look()
    root, files = roots.state()[0] or roots.current(), subject.seen.driver_files
    if subject.is_fake or root.seen == SLASH or isinstance(files, Unread):
        yield known
        return
    with tempfile.TemporaryDirectory(prefix="gpuctl-verify-", dir=folder) as links:
        _link_libraries(root, files, Path(links))
        yield {**known, _LIBRARY_PATH: ":".join(filter(None, (links, known.get(_LIBRARY_PATH))))}


def _link_libraries(root: Root, files: DriverFiles, folder: Path) -> None:
    """Make links to the driver's libraries in a folder, by all of their names."""
    # Not the driver root's own folders: they also have another system's libc, with which Python crashes.
    names = {path.rpartition("/")[2] for path in files.libraries}
    for place in dict.fromkeys(files.below_root(path).rpartition("/")[0] for path in files.libraries):
        seen = root.at(place)
        for entry in sorted(seen.iterdir()) if seen is not None else ():
            real = root.at(f"{place}/{entry.name}")
            link = folder / entry.name
            if real is not None and real.name in names and not link.is_symlink():
                link.symlink_to(real.absolute())


def _judged(answer: Answer, gpu: Gpu) -> Finding:
    """What the probe's answer says about the GPU that it was to use."""
    if answer.error is not None:
        way_out = _WAYS_OUT.get(answer.error.code or 0, _WAY_OUT)
        if answer.error.call in ("dlopen", "dlsym"):
            way_out = "install libcuda, a part of the NVIDIA driver, for this machine's architecture"
        return fail(f"{gpu.pci}: {answer.error}", way_out)
    uuids = [device.uuid for device in answer.devices]
    if uuids != [gpu.uuid]:
        shown = ", ".join(map(str, uuids)) or "no GPU"
        return fail(f"{gpu.pci}: a program that may see only {gpu.uuid} sees {shown}", _WAY_OUT)
    device = answer.devices[0]
    if device.kernel != OK:
        return fail(f"{gpu.pci}: {device.kernel}", f"do not hand out this GPU; {_WAY_OUT}")
    if wrong := _differences(device, gpu):
        return fail(f"{gpu.pci}: {'; '.join(wrong)}", "report it: the driver publishes what NVML says")
    if gpu.product_name not in (None, device.name):
        said = f"CUDA calls it {device.name!r}, NVML {gpu.product_name!r}"
        return warn(f"{gpu.pci}: {said}", "report it: claims choose GPUs by the name that NVML says")
    cuda = f"CUDA {answer.cuda_version}, compute capability {device.compute_capability}"
    memory = f"{(device.total_bytes or 0) >> 20} MiB for CUDA of {(gpu.memory_bytes or 0) >> 20} MiB"
    worked = "the kernel computed what it should, and its memory is free again"
    return ok(f"{gpu.pci}: {device.name}, {cuda}, {memory}; {worked}")


def _differences(device: Device, gpu: Gpu) -> list[str]:
    """Where CUDA and NVML differ about a GPU in what matters. What NVML does not know is not compared."""
    found = []
    capability, by_nvml = device.compute_capability, gpu.cuda_compute_capability
    if by_nvml not in (None, capability):
        found.append(f"CUDA says compute capability {capability}, NVML {by_nvml}")
    cuda_bytes, gpu_bytes = device.total_bytes or 0, gpu.memory_bytes
    if gpu_bytes is not None:
        missing = gpu_bytes - cuda_bytes
        if not 0 <= missing <= max(gpu_bytes * MOST_MISSING, _MOST_RESERVED_BYTES):
            found.append(f"CUDA has {cuda_bytes >> 20} MiB, NVML says {gpu_bytes >> 20} MiB")
    return found


def _left(ask: Ask, gpu: Gpu, before: _Use) -> str:
    """What the probe has left on the GPU; empty if nothing."""
    until = time.monotonic() + _END_SECONDS
    while True:
        now = ask(gpu)
        if isinstance(now, str):
            return f"NVML does not say how the GPU is used after the probe: {now}"
        more = (now.used_bytes or 0) - (before.used_bytes or 0)
        if more <= _LEFT_BYTES:
            return ""
        if time.monotonic() > until:
            return f"NVML still shows {more >> 20} MiB more in use than before, although the probe has ended"
        Event().wait(_POLL_SECONDS)


CUDA_CHECKS = cuda_checks()
