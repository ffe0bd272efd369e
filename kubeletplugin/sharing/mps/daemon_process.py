"""One MPS control daemon as a process: started or adopted, seen to die, ended.

It leads a session of its own, so that it outlives the supervisor: the daemon's end is that of all its
clients, and an update of the supervisor must not end pods. The next supervisor finds it by its control group
and its pipe directory. In a container it ends with the container's other processes, and is started anew.
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
from kubeletplugin.sharing.mps.control import CONTROL
from kubeletplugin.sharing.mps.folders import DaemonFolder
from kubeletplugin.sharing.mps.memory import Memory
from kubeletplugin.sharing.mps.processes import (
    PROC,
    VISIBLE_DEVICES,
    ended_within,
    kill,
    own_daemon,
    read_process,
)


@dataclass(eq=False, slots=True)
class DaemonProcess:
    """A control daemon that was there when this was made; ``pidfd`` tells when it ends.

    ``devices`` and ``multi_user`` are what it was started with. ``child`` is None for one that another
    supervisor started: how it ended is then unknown.
    """

    pid: int
    pidfd: int
    devices: tuple[str, ...]
    multi_user: bool
    child: subprocess.Popen[bytes] | None = None
    since: float = field(default_factory=time.monotonic)

    def ended_within(self, seconds: float) -> bool:
        """Whether it has ended, or does so within that time."""
        return ended_within(self.pidfd, seconds)

    def serves(self, daemon: MpsDaemon) -> bool:
        """Whether it was started for the same devices and users."""
        return (self.devices, self.multi_user) == (daemon.devices, daemon.multi_user)

    def end(self, patience_seconds: float) -> None:
        """End it by SIGTERM, then SIGKILL; raises ClaimBlocked when it stays all the same."""
        if not self.ended_within(0):
            signal.pidfd_send_signal(self.pidfd, signal.SIGTERM)
        if not self.ended_within(patience_seconds):
            kill(self.pidfd, f"MPS control daemon {self.pid}")

    def close(self) -> str:
        """Let go of one that has ended; returns how it ended, for people."""
        if self.child is None:
            with suppress(
                ChildProcessError
            ):  # it is ours only if this process started it before it began anew
                os.waitid(os.P_PIDFD, self.pidfd, os.WEXITED | os.WNOHANG)
        os.close(self.pidfd)
        if self.child is None:
            return "ended"
        code = self.child.wait()
        return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def start_daemon(
    programs: DriverPrograms, folder: DaemonFolder, daemon: MpsDaemon, memory: Memory
) -> DaemonProcess:
    """Start the daemon, which does not answer yet; raises NodeIncomplete or StorageError.

    What it prints goes to a file: a pipe would end it when nobody reads any longer.
    """
    program = programs.find(CONTROL)
    command, environment = memory.command(
        folder,
        [program.path, "-f", *(["-M"] if daemon.multi_user else [])],
        {**program.environment, **folder.environment(), VISIBLE_DEVICES: ",".join(daemon.devices)},
    )
    try:
        output = os.open(folder.output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StorageError(
            f"{folder.output} cannot be written: {error.strerror}", f"make {folder.path} writable"
        ) from error
    try:
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
    """The daemon that lives in this folder already; None when there is none."""
    found = own_daemon(folder.pipes)
    if found is None:
        return None
    try:
        pidfd = os.pidfd_open(found.pid)
    except ProcessLookupError:
        return None
    if read_process(PROC, found.pid) != found:  # the id has become another process's
        os.close(pidfd)
        return None
    return DaemonProcess(found.pid, pidfd, found.devices or (), found.multi_user)
