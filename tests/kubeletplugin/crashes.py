"""Runs processes that end before the n-th change of a fake node's disk."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from tests.kubeletplugin.crashing_process import ENDED
from tests.kubeletplugin.fake_node import FakeNode
from tests.plugin import ClaimRef, cdi_spec_file_name

N = TypeVar("N", bound=FakeNode)

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

    def ends(
        self,
        folder: Path,
        operation: str,
        machine: str,
        made: Callable[[Path], tuple[N, ClaimRef]],
        fewest: int,
    ) -> Iterator[tuple[N, ClaimRef, bool]]:
        """A node for each change of its disk before which a process ended, and last one that ended well.

        ``made(folder)`` makes a node with the claim of ``UID``. There are ``fewest`` changes.
        """
        for changes in count(1):
            at = folder / f"{operation}-{changes}"
            at.mkdir()
            node, ref = made(at)
            results = node.api[ref.namespace, ref.name]["status"]["allocation"]["devices"]["results"]
            devices = [result["device"] for result in results]
            if operation == "unprepare":
                node.prepare(ref)
            node.discovery.close()
            node.stop()
            ended = self.ended(at, operation, changes, machine, devices)
            node.restart()
            yield node, ref, ended
            node.stop()
            if not ended:
                assert changes > fewest, "every write, rename and removal is one end"
                return

    def ended(
        self, folder: Path, operation: str, end_before: int, machine: str, devices: Sequence[str]
    ) -> bool:
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
        print(
            json.dumps([str(folder), operation, UID, end_before, machine, devices]),
            file=self._server.stdin,
            flush=True,
        )
        code = int(self._server.stdout.readline())
        assert code in (0, ENDED)
        spec = folder / "cdi" / cdi_spec_file_name(UID)
        if operation == "unprepare":
            assert spec.exists() == (end_before == 1), "the CDI spec goes first"
        return code == ENDED
