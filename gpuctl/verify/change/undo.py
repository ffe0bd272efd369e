"""The record of what a verification has to undo, and undoing it, also after a kill or a power cut.

The record is on the disk before anything is changed, and goes when everything is as before. Undoing may be
interrupted at any point: what is left of it is done by the next one.
"""

from __future__ import annotations

import json
import os
import select
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from driver.errors import ConfigError, DriverError, StorageError
from driver.nvml.pci_address import PciAddress
from driver.process.boot import running_boot_id
from driver.process.durable import make_private_folder, remove_durably, write_durably
from envtest.child_processes import RunningProcess
from fakegpu.machine.fake_machine import FakeMachine
from gpuctl.demo import watchdog
from gpuctl.doctor.check import Finding, Result, fail, ok
from gpuctl.doctor.inside.places import Places
from gpuctl.verify.change.gpu_state import (
    FunctionState,
    GpuState,
    InstanceState,
    bring_back,
    differences,
    gpu_tools,
    is_fake,
    read_state,
    record_path,
    remove_own_folder,
)
from gpuctl.verify.change.held_probe import remove_control_groups

RESTORED = "restored"
"""The place of what restoring found."""
RESTORE = "gpuctl verify --restore"

_VERSION = 1
_END_SECONDS = 10.0
_PROC = Path("/proc")
_START_FIELD = 22 - 3
"""Where /proc/PID/stat has the start time, counted from the field after the name (proc(5))."""

T = TypeVar("T")
P = TypeVar("P", bound=RunningProcess)


@dataclass(frozen=True, slots=True)
class Started:
    """A process by its id and its start time in clock ticks since the boot: no other one has both."""

    pid: int
    ticks: int


@dataclass(frozen=True, slots=True)
class Undo:
    """What has to be undone.

    ``owner`` is the process that verifies, ``processes`` are those that it started. ``folder`` is its folder,
    empty while there is none. ``gpus`` are the states before. ``places`` are the flags by which the GPUs were
    found. ``cgroups`` are the pretended control groups that a fake machine had before.
    """

    boot_id: str
    owner: Started
    places: dict[str, str]
    gpus: tuple[GpuState, ...]
    folder: str = ""
    processes: tuple[Started, ...] = ()
    cgroups: str | None = None


class UndoRecord:
    """The record of the verification that runs in this process; each change of it is on the disk at once."""

    def __init__(self, places: Places, gpus: Iterable[GpuState]) -> None:
        """Write it. Raises StorageError, and ConfigError if there is one that was not undone."""
        self._path = record_path(places)
        if self._path.exists():
            raise unfinished(self._path)
        make_private_folder(self._path.parent)
        cgroups = FakeMachine.open(places.nvml).state.pretend_cgroups if is_fake(places) else None
        flags = {one.name: str(getattr(places, one.name)) for one in fields(Places)}
        owner = started(os.getpid())
        self._undo = Undo(running_boot_id(), owner, flags, tuple(gpus), cgroups=cgroups)
        self._write()

    @property
    def gpus(self) -> tuple[GpuState, ...]:
        """The states of the GPUs before."""
        return self._undo.gpus

    def note_folder(self, folder: Path) -> None:
        """Note the folder of the verification, before anything is in it."""
        self._undo = replace(self._undo, folder=str(folder))
        self._write()

    def note_process(self, pid: int) -> None:
        """Note a process that was just started."""
        self._undo = replace(self._undo, processes=(*self._undo.processes, started(pid)))
        self._write()

    def start_noted(
        self,
        start: Callable[[Sequence[str], Mapping[str, str], int], P],
        command: Sequence[str],
        environment: Mapping[str, str],
        output: int,
    ) -> P:
        """Start a process by ``start``, and note it."""
        process = start(command, environment, output)
        self.note_process(process.pid)
        return process

    def _write(self) -> None:
        text = json.dumps({"version": _VERSION, **asdict(self._undo)}, indent=1)
        write_durably(self._path, text.encode() + b"\n")


def unfinished(path: Path) -> ConfigError:
    """The error for a record that was not undone, or whose verification still runs."""
    with suppress(OSError, ConfigError):
        owner = _read(path.read_bytes(), path).owner
        if owner.pid != os.getpid() and _runs(owner):
            return ConfigError(f"another verification runs, as process {owner.pid}", "wait for its end")
    return ConfigError(
        f"an earlier verification was not undone, as {path} says", f"run {RESTORE} with the same flags"
    )


def restore(places: Places, say: Callable[[str], None]) -> tuple[Result, ...]:
    """Undo what an earlier verification left: processes, folders, and the state of its GPUs.

    Each step is announced before it is done. The record is removed once everything is as before. Raises
    ConfigError and StorageError for a record that cannot be found or read.
    """
    path = record_path(places)
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return (result("undone", ok("there is nothing to restore"), RESTORED),)
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror}", "run this as root") from error
    undo = _read(text, path)
    same_boot = undo.boot_id == running_boot_id()
    owner = undo.owner
    if same_boot and owner.pid != os.getpid() and _runs(owner):
        why = fail(f"the verification still runs, as process {owner.pid}", "wait for its end, or end it")
        return (result("undone", why, RESTORED),)
    processes = undo.processes if same_boot else ()
    results = [_processes_ended(undo, processes, say)]
    results += [_brought_back(undo, state, say) for state in undo.gpus]
    if all(one.status == "ok" for one in results):
        say("forget what was to be undone")
        _forget_cgroups(undo)
        remove_durably(path)
        remove_own_folder(path.parent)
    return tuple(results)


def _processes_ended(undo: Undo, processes: Sequence[Started], say: Callable[[str], None]) -> Result:
    """End probes, the driver's processes and MPS daemons, and remove the folder."""
    say("end the processes of the verification")
    # The last that was started first: while a client of MPS runs, its daemon must not be killed.
    ended = [(one, _end(one)) for one in reversed(processes)]
    failed = [f"process {one.pid} cannot be killed" for one, has_ended in ended if not has_ended]
    if undo.folder:
        watchdog.clear(undo.folder)
        if Path(undo.folder).exists():
            failed.append(f"{undo.folder} cannot be removed")
    if undo.places["nvml"] == "real" and not remove_control_groups():
        failed.append("a process in a control group of a probe does not end")
    if failed:
        why = fail("something of the verification is left on this machine", f"run {RESTORE} again", failed)
        return result("processes-ended", why, RESTORED)
    none = ok("no process or file of the verification is left")
    return result("processes-ended", none, RESTORED)


def _brought_back(undo: Undo, before: GpuState, say: Callable[[str], None]) -> Result:
    """Bring one GPU back, and look whether it is as before."""
    check, gpu = "gpu-restored", f"GPU {before.pci}"
    say(f"bring {gpu} back")
    try:
        places, pci = _places(undo.places), PciAddress.parse(before.pci)
        if is_fake(places):
            # A fake machine does not see that an MPS server was killed. The GPU had no process before.
            FakeMachine.open(places.nvml).set_processes(pci, ())
        with gpu_tools(places) as tools:
            failed = bring_back(tools, before)
            left = differences(before, read_state(tools, pci, before.uuid))
    except DriverError as error:
        failed, left = (error.what,), ()
    if not failed and not left:
        return result(check, ok(f"{gpu} is as it was before the verification"), RESTORED)
    way_out = f"run {RESTORE} again; if that does not help, restart the machine"
    return result(
        check, fail(f"{gpu} is not as it was before the verification", way_out, (*failed, *left)), RESTORED
    )


def _forget_cgroups(undo: Undo) -> None:
    """Let a fake machine have the control groups that it had."""
    places = _places(undo.places)
    if undo.cgroups == "":
        FakeMachine.open(places.nvml).stop_pretending_cgroups()


def _places(flags: dict[str, str]) -> Places:
    kinds = {one.name: one.type for one in fields(Places)}
    values: dict[str, Any] = {
        name: Path(value) if kinds[name] == "Path" else value for name, value in flags.items()
    }
    return Places(**values)


def _read(text: bytes, path: Path) -> Undo:
    try:
        found = json.loads(text)
        if found.pop("version") != _VERSION:
            raise ValueError("it has another version")
        found["owner"] = Started(**found["owner"])
        found["processes"] = _each(Started, found["processes"])
        found["gpus"] = tuple(map(_gpu, found["gpus"]))
        return Undo(**found)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConfigError(
            f"{path} cannot be read: {error}",
            "use the version of gpuctl that wrote it, or restart the machine and remove the file",
        ) from error


def _gpu(found: dict[str, Any]) -> GpuState:
    parts = {"functions": _each(FunctionState, found["functions"])}
    instances = _each(InstanceState, found["instances"])
    active = found["partitions"]
    return GpuState(
        **{**found, **parts, "instances": instances, "partitions": None if active is None else tuple(active)}
    )


def _each(kind: Callable[..., T], listed: Iterable[dict[str, Any]]) -> tuple[T, ...]:
    return tuple(kind(**one) for one in listed)


def started(pid: int) -> Started:
    """A process that runs; one that has ended gets a start time that no process has."""
    try:
        # The name is in parentheses and may contain any character.
        after_name = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
        return Started(pid, int(after_name[_START_FIELD]))
    except (OSError, ValueError, IndexError):
        return Started(pid, -1)


def _runs(one: Started) -> bool:
    return one.ticks >= 0 and started(one.pid) == one


def _end(one: Started) -> bool:
    """Kill a process if it still runs, and wait for its end; whether it has ended."""
    try:
        handle = os.pidfd_open(one.pid)
    except OSError:
        return True
    try:
        # The descriptor stays with one process, so it is checked after it is opened.
        if not _runs(one):
            return True
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        return bool(select.select([handle], [], [], _END_SECONDS)[0])
    finally:
        os.close(handle)


def result(check: str, finding: Finding, place: str = "claims") -> Result:
    """What one check of this part found."""
    return Result(place, check, finding.status, finding.message, finding.way_out or None, finding.details)
