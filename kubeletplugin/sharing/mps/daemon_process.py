"""One MPS control daemon as a process: started or adopted, watched until it ends, ended.

A daemon outlives the supervisor: all of its clients fail when it ends, and an update of the supervisor must
not end pods. The next supervisor finds it by its control group and its pipe directory. If the supervisor's
container ends, the daemon ends with it, and is started again.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field

from driver.errors import StorageError
from kubeletplugin.devices.host.driver_programs import DriverPrograms, cannot_be_run
from kubeletplugin.kubelet.wire.mps_daemon import MpsDaemon
from kubeletplugin.sharing.mps import processes
from kubeletplugin.sharing.mps.control import CONTROL
from kubeletplugin.sharing.mps.daemon_shm import Memory
from kubeletplugin.sharing.mps.folders import DaemonFolder


@dataclass(eq=False, slots=True)
class DaemonProcess:
    """A control daemon that runs, or has ended since."""

    pid: int
    # A descriptor of the process. It becomes readable when the process ends, and unlike the id, it never
    # means another process.
    pidfd: int
    # What it was started with.
    devices: tuple[str, ...]
    multi_user: bool
    # None if another supervisor started it: how it ended is then unknown.
    child: subprocess.Popen[bytes] | None = None
    since: float = field(default_factory=time.monotonic)

    def ended_within(self, seconds: float) -> bool:
        """Whether it has ended, or ends within this time."""
        return processes.ended_within(self.pidfd, seconds)

    def serves(self, daemon: MpsDaemon) -> bool:
        """Whether it was started for the same devices and users."""
        return (self.devices, self.multi_user) == (daemon.devices, daemon.multi_user)

    def end(self, patience_seconds: float) -> None:
        """End it by SIGTERM, then SIGKILL; raises ClaimBlocked if it does not end."""
        if not self.ended_within(0):
            signal.pidfd_send_signal(self.pidfd, signal.SIGTERM)
        if not self.ended_within(patience_seconds):
            processes.kill(self.pidfd, f"MPS control daemon {self.pid}")

    def close(self) -> str:
        """Release a process that has ended; returns how it ended, for messages."""
        if self.child is None:
            # It is a child of this process if this process started it and then replaced itself by execve.
            # Then it has to be reaped; otherwise there is no such child.
            with suppress(ChildProcessError):
                os.waitid(os.P_PIDFD, self.pidfd, os.WEXITED | os.WNOHANG)
        os.close(self.pidfd)
        if self.child is None:
            return "ended"
        code = self.child.wait()
        return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def start_daemon(
    programs: DriverPrograms, folder: DaemonFolder, daemon: MpsDaemon, memory: Memory
) -> DaemonProcess:
    """Start the daemon, which does not answer yet; raises NodeIncomplete or StorageError."""
    program = programs.find(CONTROL)
    command, environment = memory.command(
        folder,
        [program.path, "-f", *(["-M"] if daemon.multi_user else [])],
        {**program.environment, **folder.environment(), processes.VISIBLE_DEVICES: ",".join(daemon.devices)},
    )
    # Its output goes to a file: the write to a pipe that nobody reads any longer would end it (SIGPIPE).
    try:
        output = os.open(folder.output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StorageError(
            f"cannot write {folder.output}: {error.strerror}", f"make {folder.path} writable"
        ) from error
    try:
        # In a session of its own, it gets no signals that are sent to the supervisor's process group.
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            env=environment, cwd="/", start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise cannot_be_run(program, error) from error
    finally:
        os.close(output)
    return DaemonProcess(child.pid, os.pidfd_open(child.pid), daemon.devices, daemon.multi_user, child)


def adopt_daemon(folder: DaemonFolder) -> DaemonProcess | None:
    """The daemon that runs in this folder already; None if there is none."""
    found = processes.own_daemon(folder.pipes)
    if found is None:
        return None
    try:
        pidfd = os.pidfd_open(found.pid)
    except ProcessLookupError:
        return None
    # Read again: before the descriptor was open, the id may have passed to another process.
    if processes.read_process(processes.PROC, found.pid) != found:
        os.close(pidfd)
        return None
    return DaemonProcess(found.pid, pidfd, found.devices or (), found.multi_user)
