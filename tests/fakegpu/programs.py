"""The fake programs of a driver root, run as real processes."""

import os
import subprocess
from contextlib import suppress
from pathlib import Path

from fakegpu.mps.client import PRIVILEGED, Connection, DaemonGone
from tests.gpus import FakeMachine, build_driver_root

DEADLINE_SECONDS = 30


class Programs:
    """A machine in a file, its driver root, and its programs; daemons use the folders of ``mps``."""

    def __init__(self, folder: Path, machine: str) -> None:
        self.machine = FakeMachine.open(f"{machine}@{folder / 'state.json'}")
        self.root = build_driver_root(folder / "root", self.machine)
        self.pipes = folder / "pipe"
        self.logs = folder / "log"

    def uuid(self, index: int) -> str:
        return self.machine.uuid(self.machine.pci(index))

    def smi(self, *words: str) -> tuple[int, list[str]]:
        """Exit code and lines of nvidia-smi."""
        done = subprocess.run(
            [self.root / "usr/bin/nvidia-smi", *words],
            stdout=subprocess.PIPE, text=True, check=False, timeout=DEADLINE_SECONDS,
        )  # fmt: skip
        return done.returncode, done.stdout.splitlines()

    def environment(self, visible: str | None = "0") -> dict[str, str]:
        own = {"CUDA_MPS_PIPE_DIRECTORY": str(self.pipes), "CUDA_MPS_LOG_DIRECTORY": str(self.logs)}
        return os.environ | own | ({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible})

    def control(self, *options: str, said: str = "", visible: str | None = "0") -> tuple[int, list[str]]:
        """Exit code and lines of nvidia-cuda-mps-control; ``said`` is its stdin."""
        done = subprocess.run(
            [self.root / "usr/bin/nvidia-cuda-mps-control", *options],
            stdout=subprocess.PIPE, input=said, text=True, check=False,
            timeout=DEADLINE_SECONDS, env=self.environment(visible),
        )  # fmt: skip
        return done.returncode, done.stdout.splitlines()

    def ask(self, command: str) -> list[str]:
        """The answer to one command, whose daemon must be there."""
        code, lines = self.control(said=f"{command}\n")
        assert code == 0
        return lines

    def daemon_pid(self) -> int:
        return int((self.pipes / "nvidia-cuda-mps-control.pid").read_text())

    def end(self) -> None:
        """End a daemon that is still there."""
        self.machine.heal_mps()
        with suppress(DaemonGone):
            line = Connection(self.pipes, PRIVILEGED)
            line.ask({"command": "quit -t 0"})
            line.close()
