"""One MPS control daemon as a child of the supervisor: started, waited for by a thread, ended.

The daemon ends with the supervisor's container. A daemon that outlives its supervisor elsewhere is ended by
the next one (see ``processes.end_left_over``).
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable

from driver.errors import ClaimBlocked, StorageError
from kubeletplugin.devices.host.driver_programs import DriverPrograms, cannot_be_run
from kubeletplugin.kubelet.wire.mps_daemon import MpsDaemon
from kubeletplugin.sharing.mps import processes
from kubeletplugin.sharing.mps.control import CONTROL
from kubeletplugin.sharing.mps.daemon_shm import DaemonMemory
from kubeletplugin.sharing.mps.folders import DaemonFolder


class DaemonProcess:
    """A control daemon that runs, or has ended since; ``died(self)`` is called once it has ended."""

    def __init__(
        self,
        child: subprocess.Popen[bytes],
        daemon: MpsDaemon,
        died: Callable[[DaemonProcess], None],
    ) -> None:
        self.pid = child.pid
        self.since = time.monotonic()
        self.ended = threading.Event()
        # What it was started with.
        self._devices, self._multi_user = daemon.devices, daemon.multi_user
        self._child = child
        self._died = died
        # A daemon thread, so that the supervisor can end before the child does.
        threading.Thread(target=self._wait, name=f"mps {daemon.name}", daemon=True).start()

    def serves(self, daemon: MpsDaemon) -> bool:
        """Whether it was started for the same devices and users."""
        return (self._devices, self._multi_user) == (daemon.devices, daemon.multi_user)

    def has_ended(self) -> bool:
        """Whether it has ended, even if the thread that waits for it has not run since."""
        try:
            ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:  # the thread was faster
            return True
        return ended is not None

    def end(self, patience_seconds: float) -> None:
        """End it by SIGTERM, then SIGKILL; raises ClaimBlocked if it does not end."""
        self._child.terminate()
        if not self.ended.wait(patience_seconds):
            self._child.kill()
        if not self.ended.wait(processes.GONE_SECONDS):
            raise ClaimBlocked(
                f"MPS control daemon {self.pid} was killed but has not ended",
                "it is tried again; a process that the NVIDIA driver holds needs the GPU to be reset",
            )

    def how_it_ended(self) -> str:
        """How a daemon that has ended did so, for messages."""
        code = self._child.returncode
        return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    def _wait(self) -> None:
        self._child.wait()
        self.ended.set()
        self._died(self)


def start_daemon(
    programs: DriverPrograms,
    folder: DaemonFolder,
    daemon: MpsDaemon,
    memory: DaemonMemory,
    died: Callable[[DaemonProcess], None],
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
    return DaemonProcess(child, daemon, died)
