"""Writes what the NVIDIA driver of a node answered into a folder: ``gpuctl verify --record``.

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
import platform
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from driver.errors import ConfigError, DriverError, NodeIncomplete, NvmlError
from driver.fabric.seen import NO_FABRIC
from driver.nvml.api import GPU_CALLS, NODE_CALLS, Nvml, NvmlCallFailed, NvmlDevice
from driver.nvml.deadline import Guard, Watch
from fakegpu.mps.record import record
from fakegpu.mps.transcript import Run, Transcript, write_transcript
from gpuctl.doctor.check import require
from gpuctl.doctor.outside.seen import Unread
from gpuctl.gather.archive import write_new
from gpuctl.verify.machine_file import GpuAnswers, machine_file
from gpuctl.verify.stand_ins import StandIns
from gpuctl.verify.subject import Subject
from kubeletplugin.devices.host.driver_files import InstalledDriver
from kubeletplugin.devices.host.driver_programs import DriverPrograms, Program, read_output

T = TypeVar("T")

MACHINE, CALLS, LOG, MPS, LEFT_OUT = (
    *("machine.yaml", "nvml.json", "nvidia-smi-q.xml", "mps.jsonl", "left-out.txt"),
)
"""The files of a recording."""

READS = (
    *("pci", "uuid", "minor", "index", "name", "brand", "architecture", "compute_capability"),
    *("memory_bytes", "memory_use", "addressing_mode", "numa_node", "nvlinks", "fabric", "module_id"),
    *("virtualization", "vgpu_types", "licensable_features", "mig_mode", "mig_without_reset"),
    *("gpu_instance_profiles", "gpu_instances", "mig_devices", "mig_processes"),
    *("compute_mode", "persistence_mode", "process_ids", "processes", "busy_processes", "utilisation"),
    *("power_milliwatts", "power_limit_milliwatts", "temperature_celsius", "recovery_action"),
    *("remapped_rows", "retired_pages_pending", "unrepairable_memory", "ecc_errors", "fabric_health"),
)
"""The calls about one GPU that change nothing and take no arguments, in the order in which they are made."""

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

_SMI, _MPS_CONTROL = "nvidia-smi", "nvidia-cuda-mps-control"
_SMI_SECONDS = 60.0
_MOST_LOG_BYTES = 16 << 20
_LOG_BEGINS = "<nvidia_smi_log"
_NODE = "node"


@dataclass(slots=True)
class _Call:
    """A call of NVML as it was made: with its answer, its return code, or neither if it did not return."""

    method: str
    arguments: tuple[int, ...] = ()
    answer: object = None
    code: int | None = None
    returned: bool = False


@dataclass(slots=True)
class _Calls:
    """The calls on the node, or on one GPU, in their order. Only one thread adds to it."""

    gpu: str = ""
    made: list[_Call] = field(default_factory=list)

    def ask(self, watch: Watch, method: str, call: Callable[[], T], *arguments: int) -> T:
        """Make a call and note it; raises what it raises."""
        noted = _Call(method, arguments)
        self.made.append(noted)
        try:
            noted.answer = answer = watch(method, call)
        except NvmlCallFailed as error:
            noted.code = error.code
            raise
        finally:
            noted.returned = True
        return answer

    def answers(self) -> dict[tuple[str, tuple[int, ...]], Any]:
        """The answers, by call and arguments."""
        return {
            (one.method, one.arguments): one.answer for one in self.made if one.returned and one.code is None
        }


def write_recording(subject: Subject, folder: Path, *, may_change: bool = False) -> tuple[str, ...]:
    """Record the node into a folder, which is made if it is missing; returns the names of the new files.

    With ``may_change`` an MPS daemon is started on a GPU that no process uses, asked, and ended. Raises
    ConfigError if the folder has such files already or cannot be written; whatever else fails is written into
    ``left-out.txt``.
    """
    _check_folder(folder)
    stand_ins = StandIns((socket.gethostname(), platform.node(), socket.getfqdn()))
    node, gpus, left_out = _read_nvml(subject.open_nvml())
    files: dict[str, str] = {CALLS: _calls_text((node, *gpus), stand_ins)}
    for name, write in (
        (MACHINE, lambda: _machine_text(subject, node, gpus, left_out)),
        (LOG, lambda: _log_text(subject)),
        (MPS, lambda: _mps_text(subject, gpus, may_change=may_change)),
    ):
        try:
            text = write()
        except (DriverError, OSError, subprocess.SubprocessError) as error:
            left_out.append(f"{name}: {error}")
            continue
        files[name] = stand_ins.log(text) if name == LOG else stand_ins.text(text)
    if left_out:
        files[LEFT_OUT] = stand_ins.text("".join(f"{line}\n" for line in left_out))
    _write(folder, files)
    return tuple(files)


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


def _read_nvml(nvml: Nvml) -> tuple[_Calls, tuple[_Calls, ...], list[str]]:
    """Make all calls; returns those on the node and on each GPU, and what went wrong."""
    node, gpus, left_out = _Calls(), list[_Calls](), list[str]()
    guard = Guard()
    try:
        count = guard.run(_NODE, lambda watch: _read_node(nvml, node, watch))
        gpus = [_Calls(f"index {index}") for index in range(count)]
        jobs = {calls.gpu: partial(_read_gpu, nvml, index, calls) for index, calls in enumerate(gpus)}
        for key, result in guard.side_by_side(jobs).items():
            if isinstance(result, NvmlCallFailed):
                left_out.append(f"GPU with {key}: {result.what}")
        with suppress(NvmlError):
            guard.run(_NODE, lambda watch: watch("shutdown", nvml.shutdown))
    except NvmlError as error:
        left_out.append(f"NVML: {error.what}")
    finally:
        guard.close()
    return node, tuple(gpus), left_out


def _read_node(nvml: Nvml, calls: _Calls, watch: Watch) -> int:
    calls.ask(watch, "init", nvml.init)
    for method, call in (
        ("driver_version", nvml.driver_version),
        ("cuda_driver_version", nvml.cuda_driver_version),
    ):
        with suppress(NvmlCallFailed):
            calls.ask(watch, method, call)
    return calls.ask(watch, "device_count", nvml.device_count)


def _read_gpu(nvml: Nvml, index: int, calls: _Calls, watch: Watch) -> None:
    # Without persistence mode the kernel initialises the GPU now, which takes seconds.
    device = watch("device_by_index", lambda: nvml.device_by_index(index), patient=True)
    for method in READS:
        with suppress(NvmlCallFailed):
            answer = calls.ask(watch, method, getattr(device, method))
            if method == "pci":
                calls.gpu = str(answer)
    found = calls.answers()
    for profile in found.get(("gpu_instance_profiles", ())) or ():
        _ask_about(calls, watch, device, "gpu_instance_placements", profile.id)
    for instance in found.get(("gpu_instances", ())) or ():
        _ask_about(calls, watch, device, "compute_instance_profiles", instance.id)
        _ask_about(calls, watch, device, "compute_instances", instance.id)
    for partition in found.get(("mig_devices", ())) or ():
        ids = (partition.gpu_instance_id, partition.compute_instance_id)
        _ask_about(calls, watch, device, "partition_memory_use", *ids)


def _ask_about(calls: _Calls, watch: Watch, device: NvmlDevice, method: str, *arguments: int) -> None:
    with suppress(NvmlCallFailed):
        calls.ask(watch, method, partial(getattr(device, method), *arguments), *arguments)


def _calls_text(every: Sequence[_Calls], stand_ins: StandIns) -> str:
    """The calls as JSON, one in a line."""
    functions = NODE_CALLS | GPU_CALLS
    lines = []
    for calls in every:
        for one in calls.made:
            result: dict[str, Any] = {"answer": stand_ins.answer(one.answer, one.method)}
            if one.code is not None:
                result = {"code": one.code}
            elif not one.returned:
                result = {"hangs": True}
            about = {"gpu": calls.gpu} if calls.gpu else {}
            given = {"arguments": list(one.arguments)} if one.arguments else {}
            lines.append(
                json.dumps(
                    {**about, "call": one.method, "function": functions[one.method], **given, **result}
                )
            )
    return "[\n" + ",\n".join(lines) + "\n]\n"


def _machine_text(subject: Subject, node: _Calls, gpus: Sequence[_Calls], left_out: list[str]) -> str:
    """The machine file; what it cannot say about this node is added to ``left_out``."""
    versions = {method: answer for (method, _), answer in node.answers().items() if isinstance(answer, str)}
    answered = []
    for calls in gpus:
        found = calls.answers()
        placements = {
            ids[0]: one for (method, ids), one in found.items() if method == "gpu_instance_placements"
        }
        plain = {method: one for (method, ids), one in found.items() if not ids}
        answered.append(GpuAnswers(plain, placements))
    inventory = subject.seen.inventory
    fabric = NO_FABRIC if isinstance(inventory, Unread) else inventory.fabric
    made = machine_file(versions, answered, subject.places.sysfs_root, fabric)
    left_out.extend(f"{MACHINE}: {line}" for line in made.left_out)
    return made.text()


def _log_text(subject: Subject) -> str:
    with _program(subject, _SMI) as program:
        code, output = read_output(
            program, ["-q", "-x"], timeout_seconds=_SMI_SECONDS, most_bytes=_MOST_LOG_BYTES
        )
    text = output.decode(errors="replace")
    if _LOG_BEGINS not in text:
        words = " / ".join(line.strip() for line in text.splitlines() if line.strip())
        raise NodeIncomplete(f"nvidia-smi -q -x printed no log ({code}): {words[:200]}", "run it on the node")
    return text


def _mps_text(subject: Subject, gpus: Sequence[_Calls], *, may_change: bool) -> str:
    if not may_change:
        raise ConfigError("no MPS daemon was started", "run it with --may-change")
    found = [calls.answers() for calls in gpus]
    free = next((number for number, answers in enumerate(found) if _is_free(answers)), None)
    uuids = [str(answers.get(("uuid", ()), "")) for answers in found]
    if free is None or not all(uuids):
        raise ConfigError(
            "no GPU is free for an MPS daemon", "end the processes that use one, outside of MIG mode"
        )
    start = Run(("-d",), {"CUDA_VISIBLE_DEVICES": f"$GPU{free}"})
    questions = Transcript("documented", "gpuctl verify", "", (start, *MPS_QUESTIONS))
    with _program(subject, _MPS_CONTROL) as program:
        version = str(require(subject.seen.inventory).driver_version or "unknown")
        return write_transcript(record(program.path, questions, uuids, version, program.environment))


def _is_free(answers: Mapping[tuple[str, tuple[int, ...]], Any]) -> bool:
    """Whether NVML lists no process on the GPU, and it is in the modes in which an MPS daemon can use it."""
    mode = answers.get(("mig_mode", ()))
    return (
        answers.get(("processes", ())) == ()
        and answers.get(("compute_mode", ())) in ("default", "exclusive-process")
        and (mode is None or not (mode.enabled or mode.pending))
    )


@contextmanager
def _program(subject: Subject, name: str) -> Iterator[Program]:
    """A program of the driver, as long as its links to libraries exist; raises NodeIncomplete, StorageError."""
    with tempfile.TemporaryDirectory(prefix="gpu-dra-verify-") as folder:
        yield DriverPrograms(InstalledDriver(subject.places.roots()), Path(folder)).find(name)
