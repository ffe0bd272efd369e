"""What the probe says of the devices that it used; runs it as a process of its own, and reads its line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from driver.errors import DriverError
from gpuctl.cli.output import as_data, camel_case

SECONDS = 120.0
"""How long the probe may take. A cold GPU starts in seconds, and filling a large one takes a few more."""

_KILL_SECONDS = 10.0
_MOST_BYTES = 1 << 20
_SHOWN_CHARACTERS = 300


class NoAnswer(DriverError):
    """The probe gave no answer: it hung, crashed, or printed something else."""


@dataclass(slots=True)
class Device:
    """A device as the probe saw it; None is what it could not find out. ``kernel`` is ``ok`` or a reason."""

    uuid: str | None = None
    name: str | None = None
    compute_capability: str | None = None
    total_bytes: int | None = None
    free_bytes: int | None = None
    allocated_bytes: int = 0
    under_mps: bool | None = None
    kernel: str = "it was not run"


@dataclass(frozen=True, slots=True)
class CallFailed:
    """The first call that failed; ``code`` is None if it returned none."""

    call: str
    code: int | None
    name: str

    def __str__(self) -> str:
        return f"{self.call} failed: {self.name}" + ("" if self.code is None else f" ({self.code})")


@dataclass(frozen=True, slots=True)
class Answer:
    """What the probe found; ``cuda_version`` is what the driver supports, None if it did not say it."""

    cuda_version: str | None
    devices: tuple[Device, ...]
    error: CallFailed | None

    def printed(self) -> str:
        """The line that the probe prints."""
        return json.dumps(as_data(self))

    @classmethod
    def read(cls, text: str) -> Answer:
        """Read the line that the probe printed; raises NoAnswer for anything else."""
        names = {camel_case(one.name): one.name for one in fields(Device)}
        try:
            document = json.loads(text)
            error = document.get("error")
            return cls(
                document.get("cudaVersion"),
                tuple(Device(**{names[key]: one[key] for key in one}) for one in document["devices"]),
                None if error is None else CallFailed(error["call"], error.get("code"), error["name"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as wrong:
            shown = " ".join(text.split())[:_SHOWN_CHARACTERS]
            raise NoAnswer(f"the probe printed {shown or 'nothing'}") from wrong


def ask_probe(arguments: Sequence[str], environment: Mapping[str, str], seconds: float = SECONDS) -> Answer:
    """Run the probe with these arguments and this environment; raises NoAnswer.

    A probe that takes longer is killed. One that hangs in the kernel does not even end then, and is left.
    """
    # Files and not pipes: a process that hangs in the kernel keeps a pipe open, and its reader would wait.
    with tempfile.TemporaryFile() as printed, tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "gpuctl.probe", *arguments],
            # It finds the same packages, wherever this process has them from.
            env={**environment, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=said,
        )
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired as error:
            raise NoAnswer(f"the probe did not end in {seconds:.0f} s{_kill(process)}") from error
        except BaseException:
            _kill(process)
            raise
        printed.seek(0)
        said.seek(0)
        text = printed.read(_MOST_BYTES).decode(errors="replace")
        words = " ".join(said.read(_MOST_BYTES).decode(errors="replace").split())[-_SHOWN_CHARACTERS:]
    if code not in (0, 1) or not text:
        how = f"was ended by signal {-code}" if code < 0 else f"ended with {code}"
        raise NoAnswer(f"the probe {how}: {words or 'it said nothing'}")
    return Answer.read(text)


def _kill(process: subprocess.Popen[bytes]) -> str:
    """Kill the probe; returns what to add about it."""
    process.kill()
    try:
        process.wait(_KILL_SECONDS)
    except subprocess.TimeoutExpired:
        return f", and cannot be killed: process {process.pid} hangs in the kernel"
    return ", and was killed"
