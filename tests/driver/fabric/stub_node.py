"""A node whose libnvfm is built from ``nvfm_stub.c``: its library, its socket, and the file behind them."""

import os
import shutil
import stat
import subprocess
from collections.abc import Sequence
from pathlib import Path

from driver.fabric.real import RealFabricManager
from tests.gpus import DriverRoots

_SOURCE = Path(__file__).with_name("nvfm_stub.c")


def build_stub(folder: Path) -> Path:
    """The library, built with the compiler of this machine."""
    library = folder / "libnvfm.so.1"
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-Wall", "-Werror", "-o", str(library), str(_SOURCE)], check=True
    )
    return library


class StubNode:
    """The root of a node's file system, with a fabric manager in shared mode that has these partitions."""

    def __init__(
        self, folder: Path, library: Path, partitions: Sequence[Sequence[int]], *, identities: bool = False
    ) -> None:
        self.root = folder
        (folder / "usr/lib64").mkdir(parents=True)
        shutil.copyfile(library, folder / "usr/lib64" / library.name)
        self.socket = folder / "run/nvidia-fabricmanager/socket"
        self.socket.parent.mkdir(parents=True)
        self._partitions = partitions
        self._identities = identities
        self.start(waits=False)

    def manager(self, seconds: float = 30.0) -> RealFabricManager:
        """The fabric manager as the driver asks it."""
        return RealFabricManager(DriverRoots.fixed(self.root), seconds, seconds)

    def start(self, *, waits: bool = True, shared: bool = True) -> None:
        """Start the fabric manager, which believes that nothing is active."""
        self.stop()
        os.mknod(self.socket, stat.S_IFSOCK | 0o600)
        lines = [f"{int(shared)} {int(waits)} {int(self._identities)}"]
        lines += [
            " ".join(map(str, (number, 0, len(gpus), *gpus))) for number, gpus in enumerate(self._partitions)
        ]
        self._state.write_text("\n".join(lines) + "\n")

    def stop(self) -> None:
        """End the fabric manager."""
        self.socket.unlink(missing_ok=True)
        self._state.unlink(missing_ok=True)

    def hang(self) -> None:
        """Let no call return."""
        self.socket.with_name("socket.hang").touch()

    @property
    def _state(self) -> Path:
        return self.socket.with_name("socket.state")
