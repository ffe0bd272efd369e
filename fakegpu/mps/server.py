"""The servers of a fake MPS: child processes of the control daemon that use its GPUs until they end."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import NoReturn

from driver.nvml.pci_address import PciAddress
from fakegpu.machine.fake_machine import FakeMachine
from fakegpu.mps.control import CommandRefused

SERVER_NAME = "nvidia-cuda-mps-server"


class ServerProcesses:
    """Starts and ends the servers of one daemon. A server ends with its daemon, however the daemon ends.

    ``flag`` opens the machine.
    """

    def __init__(self, machine: FakeMachine, flag: str, gpus: tuple[PciAddress, ...], program: Path) -> None:
        self._machine = machine
        self._flag = flag
        self._gpus = gpus
        self._program = program
        # Process id -> write end of a pipe that the server reads from: it ends once that end is closed, which
        # the kernel also does if the daemon is killed.
        self._lifelines: dict[int, int] = {}

    def start(self) -> int:
        """Start a server and return its process id; raises CommandRefused if it could not use the GPUs."""
        self._check()
        read_end, write_end = os.pipe()
        pid = os.fork()
        if pid == 0:
            self._live(read_end)
        os.close(read_end)
        self._lifelines[pid] = write_end
        for gpu in self._gpus:
            self._machine.add_process(gpu, pid)
        return pid

    def end(self, pid: int) -> None:
        """End a server, and wait until its process has ended."""
        os.close(self._lifelines.pop(pid))
        os.waitpid(pid, 0)
        self._release(pid)

    def ended(self) -> list[int]:
        """The servers that have ended by themselves since the last call."""
        gone = [pid for pid in self._lifelines if os.waitpid(pid, os.WNOHANG)[0] == pid]
        for pid in gone:
            os.close(self._lifelines.pop(pid))
            self._release(pid)
        return gone

    def _check(self) -> None:
        if not os.access(self._program, os.X_OK):
            raise CommandRefused(f"Failed to start server: {self._program} is missing")
        if not self._gpus:
            raise CommandRefused("Failed to start server: no device is visible")
        for gpu in self._gpus:
            state = self._machine.state.gpus[gpu]
            if state.compute_mode == "prohibited":
                raise CommandRefused("Failed to start server: the compute mode is PROHIBITED")
            if state.compute_mode == "exclusive-process" and state.process_ids:
                raise CommandRefused("Failed to start server: another process has the GPU for itself")

    def _live(self, lifeline: int) -> NoReturn:
        """Run the server process."""
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            # Close the daemon's sockets and the pipes of other servers, which would otherwise outlast them.
            os.closerange(3, lifeline)
            os.closerange(lifeline + 1, os.sysconf("SC_OPEN_MAX"))
            name_process(SERVER_NAME)
            # Nothing is ever written: this returns when the daemon has closed its end.
            os.read(lifeline, 1)
            # Open the machine again: the files that the daemon's FakeMachine has open were closed above.
            machine = FakeMachine.open(self._flag)
            for gpu in self._gpus:
                machine.end_process(gpu, os.getpid())
        finally:
            # A forked child must not run the exit handlers of its parent.
            os._exit(0)

    def _release(self, pid: int) -> None:
        for gpu in self._gpus:
            self._machine.end_process(gpu, pid)


def name_process(name: str) -> None:
    """Give this process the name that the kernel shows; it keeps the first 15 bytes."""
    Path("/proc/self/comm").write_text(name)
