"""Runs a command of this machine in a guest, and hands back how it ended and what it said."""

import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from envtest.client.errors import NotReady
from tests.guest.machine.initramfs import initramfs
from tests.guest.machine.kernel_package import guest_kernel
from tests.guest.machine.machine import command_line

FOLDER_IN_GUEST = Path("/run/guest")
"""Where the guest has the folder whose files come back."""

_LAST_LINES = 40


@dataclass(frozen=True, slots=True)
class Ended:
    """The exit status of the command, its output, the kernel's messages, and the files that it left."""

    code: int
    output: str
    console: str
    files: dict[str, bytes]


def run_in_guest(command: Sequence[str], folder: Path, patience_seconds: float) -> Ended:
    """Start a guest, run the command in ``folder`` as its only work, and wait until the guest has ended.

    The guest sees the files of this machine at their places; what it writes is gone with it, except below
    ``FOLDER_IN_GUEST``.

    Raises MissingPrerequisite where this machine cannot start a guest, NotReady for a guest that did not end
    in time or without a word.
    """
    kernel = guest_kernel()
    busybox = shutil.which("busybox")
    assert busybox is not None, "guest_kernel has looked for it"
    with tempfile.TemporaryDirectory(prefix="guest-") as work:
        shared = Path(work, "shared")
        shared.mkdir()
        (shared / "modules").write_text(str(kernel.modules.resolve()))
        (shared / "run").write_text(_script(command, folder))
        archive = Path(work, "initramfs")
        archive.write_bytes(initramfs(Path(busybox), kernel.module_files))
        console = Path(work, "console")
        with console.open("wb") as file:
            guest = subprocess.Popen(
                command_line(kernel.image, archive, shared),
                stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
            )  # fmt: skip
            try:
                guest.wait(patience_seconds)
            except subprocess.TimeoutExpired:
                pass
            finally:
                guest.kill()
                guest.wait()
        return _ended(shared, console.read_text(errors="replace"))


def _script(command: Sequence[str], folder: Path) -> str:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    kept["PYTHONDONTWRITEBYTECODE"] = "1"
    lines = [f"export {name}={shlex.quote(value)}" for name, value in kept.items()]
    return "\n".join([*lines, f"cd {shlex.quote(str(folder))}", shlex.join(command), ""])


def _ended(shared: Path, console: str) -> Ended:
    files = {path.name: path.read_bytes() for path in shared.iterdir() if path.is_file()}
    output = files.pop("output", b"").decode(errors="replace")
    code = files.pop("code", b"").strip()
    if not code:
        last = "\n".join([*console.splitlines(), *output.splitlines()][-_LAST_LINES:])
        raise NotReady(f"the guest did not end by itself; the last that it said:\n{last}")
    return Ended(int(code), output, console, files)
