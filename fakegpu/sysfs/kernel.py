"""The pretend kernel behind the port of the kubelet plugin: answers writes into the sysfs of a fake machine.

Reading needs no port: what is read is the plain files, which every write changes at once.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

from fakegpu.machine.fake_machine import FakeMachine
from fakegpu.sysfs.binding import Node, StillInUse, load
from fakegpu.sysfs.drivers import with_needs
from fakegpu.sysfs.state import FaultKind, KernelFault, Waiting
from fakegpu.sysfs.tree import PRETENDED
from fakegpu.sysfs.writes import (
    answers_at_once,
    fault_for,
    is_locked,
    is_withheld,
    perform,
    queued,
    request_of,
    settled,
    without_use,
)

MODPROBE = "modprobe"
"""How faults name the loading of a module: ``modprobe vfio_pci``."""


class FakeKernel:
    """The kernel of a fake machine, seen by one process; others that open the same machine see the same.

    The files below ``sysfs_root``, which ``build_sysfs`` has laid, follow the machine from now on. There are
    no files to write to below any other root, such as the node's own sysfs.
    """

    def __init__(self, sysfs_root: Path, machine: FakeMachine) -> None:
        self._root = sysfs_root
        self._machine = machine
        if (sysfs_root / PRETENDED).is_file():
            machine.attach_sysfs(sysfs_root)

    def write(self, path: Path, text: str, deadline_seconds: float) -> None:
        """Write to a file of sysfs in one call.

        Raises OSError with the kernel's own number, TimeoutError when it did not return in time: the write is
        still under way then, and is done when what it waits for is over.
        """
        end = time.monotonic() + deadline_seconds
        number = self._begin(path, text)
        while number is not None:
            if self._is_done(number):
                return
            if time.monotonic() >= end:
                self._give_up(number, path, deadline_seconds)
                return
            self._machine.wait()

    def read(self, path: Path, deadline_seconds: float) -> str:
        """The text of a file that the kernel gives out under the lock of its function.

        Raises OSError, TimeoutError while a write to that function does not return.
        """
        end = time.monotonic() + deadline_seconds
        place = self._place(path)
        while is_withheld(settled(self._machine.node()), place):
            if time.monotonic() >= end:
                raise TimeoutError(errno.ETIMEDOUT, f"the kernel did not answer in {deadline_seconds:g} s")
            self._machine.wait()
        self._machine.settle()
        return path.read_text(encoding="ascii")

    def load_module(self, name: str, deadline_seconds: float) -> None:  # noqa: ARG002 - of the port
        """Have a module loaded, with those that it needs; raises OSError where there is no such module."""
        module = name.replace("-", "_")
        words = f"{MODPROBE} {module}"
        fault = self._spent(words)
        if fault is not None and fault.kind == "fail":
            raise OSError(fault.error, os.strerror(fault.error), name)
        if fault is not None and fault.kind == "ignore":
            return
        self._die(fault, "die-before")
        self._machine.change_node(lambda node: load(node, with_needs(node.spec, module)))
        self._die(fault, "die-after")

    def _begin(self, path: Path, text: str) -> int | None:
        """Do a write; returns its number where it has to wait, raises OSError where it is refused."""
        place = self._place(path)
        fault = self._spent(place)
        if fault is not None and fault.kind == "fail":
            raise OSError(fault.error, os.strerror(fault.error), str(path))
        if fault is not None and fault.kind == "ignore":
            return None
        self._die(fault, "die-before")
        numbers: list[int] = []

        def edit(node: Node) -> Node:
            request = request_of(node, self._place(path), text)
            waits = is_locked(node, request.pci) and not answers_at_once(node, request)
            if not waits and fault_for(node, place, "hang") is None:
                try:
                    return perform(node, request)
                except StillInUse as waiting:
                    node = waiting.node
            node, number = queued(node, place, request)
            numbers.append(number)
            return node

        try:
            self._machine.change_node(edit)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from None
        self._die(fault, "die-after")
        return numbers[0] if numbers else None

    def _place(self, path: Path) -> str:
        """The file's path below the root, without links; raises OSError where there is none."""
        if not path.is_file() or not (self._root / PRETENDED).is_file():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return path.resolve().relative_to(self._root.resolve()).as_posix()

    def _is_done(self, number: int) -> bool:
        """Whether a write that waited is done; raises what it was refused with."""
        waiting = settled(self._machine.node()).kernel.waiting
        if any(one.number == number and one.error is None for one in waiting):
            return False
        return self._take(number, given_up=False)

    def _give_up(self, number: int, path: Path, deadline_seconds: float) -> None:
        """Wait no longer; raises TimeoutError unless the write is done by now."""
        if not self._take(number, given_up=True):
            raise TimeoutError(
                errno.ETIMEDOUT, f"the write did not return within {deadline_seconds:g} s", str(path)
            )

    def _take(self, number: int, *, given_up: bool) -> bool:
        """Take the result of a write, if there is one; with ``given_up`` nobody asks again."""
        found: list[Waiting] = []

        def edit(node: Node) -> Node:
            found.extend(one for one in node.kernel.waiting if one.number == number)
            kept = []
            for one in node.kernel.waiting:
                if one.number != number:
                    kept.append(one)
                elif one.error is None:
                    kept.append(replace(one, given_up=given_up))
            return replace(node, kernel=replace(node.kernel, waiting=tuple(kept)))

        self._machine.change_node(edit)
        if not found or found[0].error is None:
            return not found
        if found[0].error:
            raise OSError(found[0].error, os.strerror(found[0].error), found[0].path)
        return True

    def _spent(self, words: str) -> KernelFault | None:
        """The rule that spoils a call, used up by one; None without."""
        kinds = ("fail", "ignore", "die-before", "die-after")
        found: list[KernelFault] = []

        def edit(node: Node) -> Node:
            fault = fault_for(node, words, *kinds)
            if fault is None:
                return node
            found.append(fault)
            return without_use(node, fault)

        if fault_for(self._machine.node(), words, *kinds) is not None:
            self._machine.change_node(edit)
        return found[0] if found else None

    def _die(self, fault: KernelFault | None, kind: FaultKind) -> None:
        if fault is not None and fault.kind == kind:
            os.kill(os.getpid(), signal.SIGKILL)
