"""Finds the MPS processes of the node in /proc, and ends those that are left of a pipe directory.

Any pod can give a process the name, the arguments and the environment of a control daemon, so these prove
nothing. What the kernel shows decides. Our processes are in the supervisor's control group: what the
supervisor starts stays there, and nobody else gets in without rights over the node. A daemon of somebody else
counts only if it has rights over the node, CAP_SYS_ADMIN in the supervisor's user namespace: a process with
that right can stop a GPU's work anyway.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from driver.errors import ClaimBlocked
from driver.process.privileges import rights_of
from kubeletplugin.sharing.mps.control import CONTROL

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
