"""The MPS supervisor as a process of its own, as users run it."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Self

from tests.clusters import Object
from tests.eventually import eventually
from tests.kubeletplugin.sharing.mps.scene import MpsScene

ROOT = Path(__file__).parents[4]
DEADLINE_SECONDS = 30.0


class SupervisorProcess:
    """The MPS supervisor as a process, for a scene; entering waits until it serves, leaving ends it."""

    def __init__(
        self, mps: MpsScene, *, mounts: bool = False, launcher: tuple[str, ...] = (), health_addr: str = ""
    ) -> None:
        self._process = subprocess.Popen(
            [
                *launcher, sys.executable, "-m", "kubeletplugin.sharing.mps", "--mps-dir", mps.mps_dir,
                "--driver-root", mps.root, "--proc-root", mps.proc, *(() if mounts else ("--no-mounts",)),
                "--health-addr", health_addr,
            ],
            cwd=ROOT, env=os.environ, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._serving: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self.lines: list[str] = []

        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.lines.append(line)
            if '"serving"' in line:
                self._serving.put(item=True)
        self._serving.put(item=False)

    def wait_for(self, event: str) -> Object:
        """Wait until this was logged; the first such line."""

        def lines() -> list[Object]:
            return [line for line in map(json.loads, self.lines) if line["event"] == event]

        return eventually(f"{event} is logged", lines, context=lambda: "".join(self.lines))[0]

    def __enter__(self) -> Self:
        if not self._serving.get(timeout=DEADLINE_SECONDS):
            self.end(signal.SIGKILL)
            raise AssertionError("".join(self.lines))
        return self

    def __exit__(self, *_exc: object) -> None:
        self.end(signal.SIGTERM)

    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def end(self, how: signal.Signals) -> int:
        """Send a signal unless it has ended; returns the exit code."""
        if self._process.poll() is None:
            self._process.send_signal(how)
        code = self._process.wait(DEADLINE_SECONDS)
        self._reader.join(DEADLINE_SECONDS)
        if self._process.stderr is not None:
            self._process.stderr.close()
        return code
