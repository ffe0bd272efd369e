"""The servers of a fake MPS: children of the control daemon that hold the GPUs as long as they live."""

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
    """Starts and ends the servers of one daemon. A server ends with its daemon, however that ends.

    ``flag`` is what a process opens the machine with.
    """

    def __init__(self, machine: FakeMachine, flag: str, gpus: tuple[PciAddress, ...], program: Path) -> None:
        self._machine = machine
        self._flag = flag
        self._gpus = gpus
        self._program = program
        self._lifelines: dict[int, int] = {}

    def start(self) -> int:
        """Start one; returns its process id. Raises CommandRefused where it could not compute."""
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
        """End one, and wait until it has gone."""
        os.close(self._lifelines.pop(pid))
        os.waitpid(pid, 0)
        self._release(pid)

    def ended(self) -> list[int]:
        """The servers that have ended by themselves since the last look."""
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
        """The server itself: it keeps nothing of the daemon's but the pipe, whose end is its own."""
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.closerange(3, lifeline)
            os.closerange(lifeline + 1, os.sysconf("SC_OPEN_MAX"))
            name_process(SERVER_NAME)
            os.read(lifeline, 1)
            # The daemon's own view of the machine has files open that are closed here.
            machine = FakeMachine.open(self._flag)
            for gpu in self._gpus:
                machine.end_process(gpu, os.getpid())
        finally:
            os._exit(0)

    def _release(self, pid: int) -> None:
        for gpu in self._gpus:
            self._machine.end_process(gpu, pid)


def name_process(name: str) -> None:
    """Give this process the name that the kernel shows; it keeps the first 15 bytes."""
    Path("/proc/self/comm").write_text(name)
