"""Runs processes that end before the n-th change of a fake node's disk."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from kubeletplugin.kubelet.wire.names import cdi_spec_file_name
from tests.kubeletplugin.crashing_process import ENDED

UID = "0f5b2a52-6b35-4d0e-9d4d-6d0d8d2f6c11"

_PROGRAM = Path(__file__).with_name("crashing_process.py")


class Crashes:
    """The program that forks them; it is started with the first one, and ends with the block."""

    def __init__(self) -> None:
        self._server: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.communicate(timeout=60)

    def ended(self, folder: Path, operation: str, end_before: int, machine: str, device: str) -> bool:
        """Run one operation for the claim of ``UID``; whether it ended before that change of the disk.

        The first change that an unprepare makes is to remove the CDI spec.

        ``machine`` is the name of the fake machine whose state lies in the folder.
        """
        if self._server is None:
            self._server = subprocess.Popen(
                [sys.executable, str(_PROGRAM)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        named = f"{machine}@{folder / 'machine.json'}"
        print(
            json.dumps([str(folder), operation, UID, end_before, named, device]),
            file=self._server.stdin,
            flush=True,
        )
        code = int(self._server.stdout.readline())
        assert code in (0, ENDED)
        spec = folder / "cdi" / cdi_spec_file_name(UID)
        if operation == "unprepare":
            assert spec.exists() == (end_before == 1), "the CDI spec goes first"
        return code == ENDED
