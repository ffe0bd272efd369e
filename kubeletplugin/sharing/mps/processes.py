"""Finds the MPS processes of the node in /proc, and ends those that are left of a pipe directory.

Any pod can give a process the name, the arguments and the environment of a control daemon, so these prove
nothing. What the kernel shows decides. Our processes are in the supervisor's control group: what the
supervisor starts stays there, and nobody else gets in without rights over the node. A daemon of somebody else
counts only if it has rights over the node, CAP_SYS_ADMIN in the supervisor's user namespace: a process with
that right can stop a GPU's work anyway.
"""

from __future__ import annotations

import os
import re
import select
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from driver.errors import ClaimBlocked
from driver.process.privileges import rights_of
from kubeletplugin.devices.host.driver_programs import DriverPrograms, ProgramHangs, Said, run_program
from kubeletplugin.kubelet.wire.mps_daemon import MpsDaemon
from kubeletplugin.sharing.mps.folders import DaemonFolder

CONTROL = "nvidia-cuda-mps-control"

_PERCENTAGE = re.compile(r"\d+\.\d+", re.ASCII)
_AMOUNT = re.compile(r"(\d+)([GM])B?", re.ASCII)
_PID = re.compile(r"\d+", re.ASCII)
_MIB_PER_GIB = 1024


class NoDaemon(ClaimBlocked):
    """No daemon serves the pipe directory, or it ended before it answered."""


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers to a batch by their format: percentages, amounts of memory, process ids, and words."""

    percentages: tuple[str, ...] = ()
    amounts: tuple[str, ...] = ()
    pids: tuple[int, ...] = ()
    words: tuple[str, ...] = ()


def sort_answers(lines: tuple[str, ...]) -> Answers:
    """Sort the lines of an answer by their format."""

    def matching(pattern: re.Pattern[str]) -> tuple[str, ...]:
        return tuple(line for line in lines if pattern.fullmatch(line))

    patterns = (_PERCENTAGE, _AMOUNT, _PID)
    rest = tuple(line for line in lines if not any(pattern.fullmatch(line) for pattern in patterns))
    return Answers(matching(_PERCENTAGE), matching(_AMOUNT), tuple(map(int, matching(_PID))), rest)


def limit_commands(daemon: MpsDaemon, server: int | None = None) -> list[str]:
    """Commands that set and read back the limits of new servers, or those of a running one."""
    # Memory limits are set by ordinal: the daemon accepts a UUID but does not apply the limit.
    percentage, pinned = "active_thread_percentage", "device_pinned_mem_limit"
    of = " " if server is None else f" {server} "
    default = "default_" if server is None else ""
    limits = [(ordinal, mib) for ordinal, mib in enumerate(daemon.pinned_memory_mib) if mib]
    return [
        f"set_{default}{percentage}{of}{daemon.active_thread_percentage}",
        *(f"set_{default}{pinned}{of}{ordinal} {mib}M" for ordinal, mib in limits),
        f"get_{default}{percentage}{of}".rstrip(),
        *(f"get_{default}{pinned}{of}{ordinal}" for ordinal, _ in limits),
    ]


def limits_fault(daemon: MpsDaemon, answers: Answers) -> str | None:
    """What is wrong with the limits that were read back; None if they are right."""
    if answers.words:
        return f"refused its limits: {' / '.join(answers.words)}"
    wanted = [mib for mib in daemon.pinned_memory_mib if mib]
    if not answers.percentages or len(answers.amounts) != len(wanted):
        return f"did not report its limits, but {[*answers.percentages, *answers.amounts]}"
    percentage = answers.percentages[-1]  # the command that sets it may have answered with it as well
    if float(percentage) != daemon.active_thread_percentage:
        asked = daemon.active_thread_percentage
        return f"has an active thread percentage of {percentage} where {asked} was set"
    for mib, amount in zip(wanted, answers.amounts, strict=True):
        if not is_amount(mib, amount):
            return f"has a pinned memory limit of {amount} where {mib}M was set"
    return None


def is_amount(mib: int, text: str) -> bool:
    """Whether an amount that was read back is this limit in MiB."""
    match = _AMOUNT.fullmatch(text)
    if match is None:
        return False
    return int(match[1]) == (mib // _MIB_PER_GIB if match[2] == "G" else mib)


class Control:
    """Commands for the daemon of one folder: for its limits, its servers, its end.

    The daemon answers nothing to most commands that worked and words to those that did not, so every limit is
    read back. Amounts are read back in whole G, rounded down, from 1 GiB on; percentages with a decimal,
    ``100.0``; process ids are whole numbers. By these formats, the answers to a batch of commands are sorted.
    """

    def __init__(self, programs: DriverPrograms, folder: DaemonFolder, command_seconds: float) -> None:
        """``command_seconds`` is how long a batch of commands may take."""
        self._programs = programs
        self._folder = folder
        self._command_seconds = command_seconds

    def set_limits(self, daemon: MpsDaemon, deadline: float) -> None:
        """Set the limits of all future clients and read them back, before ``deadline`` (monotonic).

        Raises NoDaemon, ProgramHangs, or ClaimBlocked if a limit is refused or differs from what was set.
        """
        # The defaults apply to servers that start later; those that run get the limits one by one.
        defaults = self._ask([*limit_commands(daemon), "get_server_list"], deadline)
        fault = limits_fault(daemon, defaults)
        if fault is not None:
            raise self._wrong(daemon, fault)
        for server in defaults.pids:
            # A server that has ended meanwhile refuses them, and does not matter any more.
            fault = limits_fault(daemon, self._ask(limit_commands(daemon, server), deadline))
            if fault is not None and server in self._ask(["get_server_list"], deadline).pids:
                raise self._wrong(daemon, f"{fault} (server {server})")

    def quit(self, seconds: int, timeout_seconds: float) -> None:
        """Make the daemon quit, and its clients after this many seconds at the latest; raises as above."""
        self._run([f"quit -t {seconds}"], timeout_seconds)

    def _ask(self, commands: list[str], deadline: float) -> Answers:
        left = max(0.0, deadline - time.monotonic())
        return sort_answers(self._run(commands, min(left, self._command_seconds)).lines)

    def _run(self, commands: list[str], timeout_seconds: float) -> Said:
        try:
            said = run_program(
                self._programs.find(CONTROL),
                (),
                environment=self._folder.environment(),
                said="".join(f"{command}\n" for command in commands),
                timeout_seconds=timeout_seconds,
            )
        except ProgramHangs as error:
            raise ProgramHangs(
                f"the MPS daemon {self._folder.path.name} does not answer: {error.what}", error.way_out
            ) from error
        if said.code != 0:
            raise NoDaemon(f"no MPS daemon answers in {self._folder.pipes}: {said.words}", "it is started")
        return said

    def _wrong(self, daemon: MpsDaemon, fault: str) -> ClaimBlocked:
        return ClaimBlocked(
            f"the MPS daemon {daemon.name} {fault}",
            f"it is tried again; see {self._folder.logs}, and check whether the GPU supports this limit",
        )


PROC = Path("/proc")
PIPE_DIRECTORY, VISIBLE_DEVICES = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_VISIBLE_DEVICES"
DEFAULT_PIPES = "/tmp/nvidia-mps"  # noqa: S108 - MPS's own default

# The kernel keeps 15 characters of a name (TASK_COMM_LEN). So the daemon and its servers have the same one.
_COMM = CONTROL[:15]
_DAEMON_OPTIONS = frozenset({"-d", "-f"})
GONE_SECONDS = 5.0
_MOST_CHARACTERS = 1 << 20


@dataclass(frozen=True, slots=True)
class MpsProcess:
    """A process with the name of a control daemon or a server of MPS."""

    pid: int
    parent: int
    arguments: tuple[str, ...]
    # None if it cannot be read.
    environment: Mapping[str, str] | None
    # Whether it is in the supervisor's control group.
    in_our_group: bool
    # Whether it has rights over the node.
    is_privileged: bool

    @property
    def is_daemon(self) -> bool:
        """Whether its arguments are those of a control daemon; a process that it forked has the same."""
        named = any(argument.rpartition("/")[2] == CONTROL for argument in self.arguments)
        return named and not _DAEMON_OPTIONS.isdisjoint(self.arguments)

    @property
    def pipes(self) -> str:
        """Its pipe directory."""
        return (self.environment or {}).get(PIPE_DIRECTORY, DEFAULT_PIPES)

    @property
    def devices(self) -> tuple[str, ...] | None:
        """The devices of its CUDA_VISIBLE_DEVICES; None without one, or if its environment is unreadable."""
        text = (self.environment or {}).get(VISIBLE_DEVICES)
        return None if text is None else tuple(word.strip() for word in text.split(",") if word.strip())


def mps_processes(proc: Path = PROC) -> list[MpsProcess]:
    """All MPS processes in a /proc, sorted by id; raises ClaimBlocked if it cannot be read."""
    try:
        pids = sorted(int(name) for name in os.listdir(proc) if name.isascii() and name.isdigit())  # noqa: PTH208
    except OSError as error:
        raise ClaimBlocked(f"cannot read {proc}: {error.strerror}", "mount it") from error
    found = (read_process(proc, pid) for pid in pids)
    return [process for process in found if process is not None]


def read_process(proc: Path, pid: int) -> MpsProcess | None:
    """The MPS process with this id; None if it is another program, has ended, or does not count."""
    folder = proc / str(pid)
    try:
        if _text(folder / "comm").strip() != _COMM:
            return None
        in_our_group = _text(folder / "cgroup") == _text(proc / "self" / "cgroup")
        its, own = rights_of(folder), rights_of(proc / "self")
        is_privileged = its is not None and own is not None and its.is_privileged(own)
        # Arguments and environment are as long as a process likes, so those of other pods are not read.
        if not (in_our_group or is_privileged):
            return None
        arguments = tuple(_text(folder / "cmdline").rstrip("\0").split("\0"))
        # The name is in parentheses and may contain any character; the state and the parent follow it.
        parent = int(_text(folder / "stat").rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return MpsProcess(pid, parent, arguments, _environment(folder), in_our_group, is_privileged)


def _environment(folder: Path) -> Mapping[str, str] | None:
    try:
        pairs = _text(folder / "environ").split("\0")
    except OSError:
        return None
    return dict(pair.split("=", 1) for pair in pairs if "=" in pair)


def _text(file: Path) -> str:
    """The beginning of a file of /proc; raises OSError."""
    with file.open(errors="replace") as opened:
        return opened.read(_MOST_CHARACTERS)


def daemons(processes: list[MpsProcess]) -> Iterator[MpsProcess]:
    """The control daemons among them, without the processes that these forked."""
    pids = {process.pid for process in processes if process.is_daemon}
    return (process for process in processes if process.is_daemon and process.parent not in pids)


def end_left_over(pipes: Path, proc: Path = PROC) -> None:
    """Kill each MPS process of ours with this pipe directory; raises ClaimBlocked if one does not end."""
    # Servers outlive a daemon that was killed. One of them would keep the next daemon from a GPU in compute
    # mode EXCLUSIVE_PROCESS.
    for process in mps_processes(proc):
        if not process.in_our_group or (process.environment or {}).get(PIPE_DIRECTORY) != str(pipes):
            continue
        try:
            pidfd = os.pidfd_open(process.pid)
        except ProcessLookupError:
            continue
        try:
            # The id may have passed to another process before the descriptor was open, so it is read again.
            if read_process(proc, process.pid) == process:
                kill(pidfd, f"MPS process {process.pid} of {pipes}")
        finally:
            os.close(pidfd)


def kill(pidfd: int, name: str) -> None:
    """Kill a process and wait until it has ended; raises ClaimBlocked if it does not."""
    try:
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except ProcessLookupError:
        return
    if not ended_within(pidfd, GONE_SECONDS):
        raise ClaimBlocked(
            f"{name} was killed but has not ended",
            "it is tried again; a process that the NVIDIA driver holds needs the GPU to be reset",
        )


def ended_within(pidfd: int, seconds: float) -> bool:
    """Whether a process has ended, or ends within this time."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(seconds * 1000))
