"""Writes what the NVIDIA driver of a node answered into a folder: ``python -m tools.hardware --record``.

    machine.yaml      a fake machine with the same hardware, for --nvml fake: and --machine
    nvml.json         every call of NVML that only reads, with its answer or its return code
    nvidia-smi-q.xml  what nvidia-smi -q -x printed
    mps.jsonl         questions to an MPS daemon, with its answers; only where the node may be changed
    left-out.txt      what is missing above, and why

Whatever identifies the node, its boards and its users has a stand-in, since the folder is sent to others.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from driver.errors import ConfigError, DriverError, NodeIncomplete
from driver.nvml.api import GPU_CALLS, DriverNotLoaded, GpuLost, NvmlCallFailed, NvmlDevice, SessionLost
from driver.nvml.deadline import DEADLINE_SECONDS, Guard, Watch
from driver.nvml.pci_address import PciAddress
from fakegpu.mps.record import record
from fakegpu.mps.transcript import Run, Transcript, write_transcript
from gpuctl.cli.unread import Unread
from gpuctl.gather.archive import write_new
from gpuctl.verify.subject import Subject
from kubeletplugin.devices.host.driver_files import InstalledDriver
from kubeletplugin.devices.host.driver_programs import DriverPrograms, Program
from tools.hardware.calls import READS, NotedCall, NotedCalls, RunningCall
from tools.hardware.machine_file import NvmlAnswers, machine_file
from tools.hardware.nvidia_smi import run_smi
from tools.hardware.stand_ins import StandIns

MACHINE, CALLS, LOG, MPS, LEFT_OUT = (
    *("machine.yaml", "nvml.json", "nvidia-smi-q.xml", "mps.jsonl", "left-out.txt"),
)
"""The files of a recording."""

VERSIONS = ("driver_version", "cuda_driver_version")

MPS_QUESTIONS = (
    Run(commands=("get_server_list",)),
    Run(commands=("get_default_active_thread_percentage",)),
    Run(commands=("set_default_active_thread_percentage 25",)),
    Run(commands=("get_default_active_thread_percentage",)),
    Run(commands=("set_default_device_pinned_mem_limit 0 3584M",)),
    Run(commands=("get_default_device_pinned_mem_limit 0",)),
    Run(commands=("get_server_list",)),
    Run(commands=("quit",)),
)
"""What a daemon is asked after its start; none of it starts a server, so nothing runs on the GPU."""

_MPS_CONTROL = "nvidia-cuda-mps-control"
_LOG_BEGINS = "<nvidia_smi_log"


def write_recording(
    subject: Subject,
    folder: Path,
    *,
    may_change: bool = False,
    deadline_seconds: float = DEADLINE_SECONDS,
) -> tuple[str, ...]:
    """Record the node into a folder, which is made if it is missing; returns the names of the new files.

    With ``may_change`` an MPS daemon is started on a GPU that no process uses, asked, and ended. A call of
    NVML that takes longer than the deadline ends the questions about its GPU. Raises ConfigError if the
    folder has such files already or cannot be written; whatever else fails is written into ``left-out.txt``.
    """
    _check_folder(folder)
    # Not socket.getfqdn, which asks name servers and takes long where none answers.
    full = socket.gethostname()
    stand_ins = StandIns((full, full.partition(".")[0], os.environ.get("NODE_NAME", "")))
    left_out: list[str] = []
    gpus = _read_nvml(subject, left_out, deadline_seconds)
    files: dict[str, str] = {CALLS: _calls_text(gpus, stand_ins)}
    others: tuple[tuple[str, Callable[[], str]], ...] = (
        (MACHINE, lambda: stand_ins.text(_machine_text(subject, gpus, left_out))),
        (LOG, lambda: stand_ins.log(_log_text(subject))),
        (MPS, lambda: stand_ins.text(_mps_text(subject, gpus, may_change=may_change))),
    )
    for name, write in others:
        try:
            files[name] = write()
        except (DriverError, OSError, subprocess.SubprocessError) as error:
            left_out.append(f"{name}: {_reason(error)}")
    if left_out:
        files[LEFT_OUT] = stand_ins.text("".join(f"{line}\n" for line in left_out))
    _write(folder, files)
    return tuple(files)


def _reason(error: Exception) -> str:
    return f"{error.what}: {error.way_out}" if isinstance(error, DriverError) else str(error)


def _check_folder(folder: Path) -> None:
    there = [name for name in (MACHINE, CALLS, LOG, MPS, LEFT_OUT) if os.path.lexists(folder / name)]
    if there:
        raise ConfigError(f"{folder} has {', '.join(there)} already", "name a folder without a recording")


def _write(folder: Path, files: Mapping[str, str]) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, text in files.items():
            write_new(folder / name, text.encode())
    except OSError as error:
        raise ConfigError(
            f"cannot write the recording: {error}", "name a folder that can be written, with room for it"
        ) from error


def _read_nvml(subject: Subject, left_out: list[str], deadline_seconds: float) -> tuple[NotedCalls, ...]:
    """Make all calls about each GPU; returns them by GPU, in the order of addresses."""
    inventory = subject.seen.inventory
    if isinstance(inventory, Unread):
        left_out.append(f"{CALLS}: {inventory.why}")
        return ()
    unread = (one.pci for one in inventory.unread if one.pci is not None)
    addresses = sorted({*(gpu.pci for gpu in inventory.gpus), *unread})
    found: list[NotedCalls] = []
    guard = Guard(deadline_seconds)

    def ask(pci: PciAddress, watch: Watch) -> None:
        nvml = subject.open_nvml()
        watch("init", nvml.init)
        # Without persistence mode the first handle initialises the GPU.
        watch("device_by_pci", partial(nvml.device_by_pci, pci), patient=True)
        notes = NotedCalls(nvml, watch)
        found.append(notes)
        for call in (notes.nvml.driver_version, notes.nvml.cuda_driver_version, notes.nvml.device_count):
            with suppress(NvmlCallFailed):
                call()
        _ask_everything(notes.nvml.device_by_pci(pci))
        watch("shutdown", nvml.shutdown)

    try:
        for pci in addresses:
            try:
                guard.run(str(pci), partial(ask, pci))
            except NvmlCallFailed as error:
                left_out.append(f"GPU {pci}: {error.what}")
    finally:
        guard.close()
    return tuple(found)


def _ask_everything(device: NvmlDevice) -> None:
    """Ask all questions, also those about each profile, instance and MIG device.

    Raises GpuLost, SessionLost and DriverNotLoaded; another question that fails is passed over.
    """
    answers = {method: _ask(device, method) for method in READS}
    for profile in answers["gpu_instance_profiles"] or ():
        _ask(device, "gpu_instance_placements", profile.id)
    for instance in answers["gpu_instances"] or ():
        for method in ("compute_instance_profiles", "compute_instances", "partition_utilisation"):
            _ask(device, method, instance.id)
    for mig in answers["mig_devices"] or ():
        _ask(device, "partition_memory_use", mig.gpu_instance_id, mig.compute_instance_id)


def _ask(device: NvmlDevice, method: str, *arguments: int) -> Any:
    try:
        return getattr(device, method)(*arguments)
    except (SessionLost, DriverNotLoaded, GpuLost):
        raise
    except NvmlCallFailed:
        return None


def _calls_text(gpus: Sequence[NotedCalls], stand_ins: StandIns) -> str:
    """The calls as JSON, one in a line."""
    lines: list[Mapping[str, Any]] = []
    for number, notes in enumerate(gpus):
        for one in notes.calls:
            # Each GPU's worker asks for the versions, and a handle means nothing outside of its session.
            if (number and one.method not in GPU_CALLS) or one.method == "device_by_pci":
                continue
            answer = {"answer": stand_ins.answer(one.answer, one.method)}
            lines.append(
                {
                    **_about(one),
                    **({"arguments": list(one.arguments)} if one.arguments else {}),
                    **(answer if one.code is None else {"code": one.code}),
                    "milliseconds": round(one.milliseconds, 3),
                }
            )
        lines.extend({**_about(one), "hangs": True} for one in notes.running)
    return "[\n" + ",\n".join(map(json.dumps, lines)) + "\n]\n"


def _about(call: NotedCall | RunningCall) -> dict[str, str]:
    gpu = {"gpu": call.subject} if call.subject else {}
    return {**gpu, "call": call.method, "function": call.function}


def _answers(notes: NotedCalls) -> dict[tuple[object, ...], Any]:
    """The answers by method and arguments; calls that failed are missing."""
    return {(one.method, *one.arguments): one.answer for one in notes.calls if one.code is None}


def _machine_text(subject: Subject, gpus: Sequence[NotedCalls], left_out: list[str]) -> str:
    """The machine file; what it cannot say about this node is added to ``left_out``."""
    versions: dict[str, str] = {}
    answered = []
    for notes in gpus:
        found = _answers(notes)
        versions |= {name: found[(name,)] for name in VERSIONS if (name,) in found}
        plain = {str(key[0]): answer for key, answer in found.items() if len(key) == 1}
        placements = {
            int(str(key[1])): answer for key, answer in found.items() if key[0] == "gpu_instance_placements"
        }
        answered.append(NvmlAnswers(plain, placements))
    partitions = subject.seen.fabric.partitions
    if isinstance(partitions, Unread):
        left_out.append(f"{MACHINE}: fabric partitions: {partitions.why}")
        partitions = None
    made = machine_file(versions, answered, subject.places.sysfs_root, partitions or ())
    left_out.extend(f"{MACHINE}: {line}" for line in made.left_out)
    return made.text()


def _log_text(subject: Subject) -> str:
    said = run_smi(subject, ("-q", "-x"))
    if not any(_LOG_BEGINS in line for line in said.lines):
        raise NodeIncomplete(f"nvidia-smi -q -x printed no log: {said.words[:200]}", "run it on the node")
    return "".join(f"{line}\n" for line in said.lines)


def _mps_text(subject: Subject, gpus: Sequence[NotedCalls], *, may_change: bool) -> str:
    if not may_change:
        raise ConfigError("no MPS daemon was started", "run it with --may-change")
    found = [_answers(notes) for notes in gpus]
    free = next((number for number, answers in enumerate(found) if _is_free(answers)), None)
    uuids = [str(answers.get(("uuid",), "")) for answers in found]
    if free is None or not all(uuids):
        raise ConfigError(
            "no GPU is free for an MPS daemon", "end the processes of one that is not in MIG mode"
        )
    start = Run(("-d",), {"CUDA_VISIBLE_DEVICES": f"$GPU{free}"})
    questions = Transcript("documented", "gpuctl verify", "", (start, *MPS_QUESTIONS))
    with _mps_control(subject) as program:
        version = str(found[free].get(("driver_version",), "unknown"))
        return write_transcript(record(program.path, questions, uuids, version, program.environment))


def _is_free(answers: Mapping[tuple[object, ...], Any]) -> bool:
    """Whether NVML lists no process on the GPU, and it is in the modes in which an MPS daemon can use it."""
    mode = answers.get(("mig_mode",))
    return (
        answers.get(("processes",)) == ()
        and answers.get(("compute_mode",)) in ("default", "exclusive-process")
        and (mode is None or not (mode.enabled or mode.pending))
    )


@contextmanager
def _mps_control(subject: Subject) -> Iterator[Program]:
    """The program of MPS, while its links to libraries exist; raises NodeIncomplete, StorageError."""
    with tempfile.TemporaryDirectory(prefix="gpu-dra-verify-") as folder:
        yield DriverPrograms(InstalledDriver(subject.places.roots()), Path(folder)).find(_MPS_CONTROL)
