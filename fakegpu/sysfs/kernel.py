"""The pretend kernel that the kubelet plugin uses with a fake machine: it answers writes to sysfs.

Most reading needs no call: the files are plain files, and every write changes them at once.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

from fakegpu.machine.fake_machine import FakeMachine
from fakegpu.machine.faults import KernelFault, KernelFaultKind
from fakegpu.sysfs import writes
from fakegpu.sysfs.binding import Node, StillInUse, load
from fakegpu.sysfs.drivers import with_needs
from fakegpu.sysfs.state import Waiting
from fakegpu.sysfs.tree import PRETENDED


class FakeKernel:
    """The kernel of a fake machine as one process sees it; other processes share it.

    The files below ``sysfs_root``, which ``build_sysfs`` has made, are kept up to date from now on. Below any
    other root, such as the node's own sysfs, no file can be written.
    """

    def __init__(self, sysfs_root: Path, machine: FakeMachine) -> None:
        self._root = sysfs_root
        self._machine = machine
        if (sysfs_root / PRETENDED).is_file():
            machine.attach_sysfs(sysfs_root)

    def write(self, path: Path, text: str, deadline_seconds: float) -> None:
        """Write to a file of sysfs in one call; raises OSError with the kernel's errno.

        Raises TimeoutError if the write did not return in time. It then goes on in the kernel, and is done
        once what it waits for is over.
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
        """Read a file that the kernel shows only under the lock of its function.

        Raises OSError, or TimeoutError if a write to that function does not return in time.
        """
        end = time.monotonic() + deadline_seconds
        place = self._place(path)
        while writes.read_waits(writes.settled(self._machine.node()), place):
            if time.monotonic() >= end:
                raise TimeoutError(errno.ETIMEDOUT, f"the kernel did not answer in {deadline_seconds:g} s")
            self._machine.wait()
        self._machine.settle()
        return path.read_text(encoding="ascii")

    def load_module(self, name: str, deadline_seconds: float) -> None:  # noqa: ARG002 - of the protocol
        """Load a module and those that it needs; raises OSError for an unknown module.

        Fault rules match ``modprobe NAME`` for it.
        """
        # The kernel's names of modules have underscores; modprobe takes both.
        module = name.replace("-", "_")
        fault = self._hit_fault(f"modprobe {module}")
        if fault is not None and fault.kind == "fail":
            raise OSError(fault.error, os.strerror(fault.error), name)
        if fault is not None and fault.kind == "ignore":
            return
        self._die(fault, "die-before")
        self._machine.change_node(lambda node: load(node, with_needs(node.spec, module)))
        self._die(fault, "die-after")

    def _begin(self, path: Path, text: str) -> int | None:
        """Do a write; returns its number if it has to wait, raises OSError if the kernel refuses it."""
        place = self._place(path)
        fault = self._hit_fault(place)
        if fault is not None and fault.kind == "fail":
            raise OSError(fault.error, os.strerror(fault.error), str(path))
        if fault is not None and fault.kind == "ignore":
            return None
        self._die(fault, "die-before")
        numbers: list[int] = []

        def edit(node: Node) -> Node:
            # The path is resolved again under the lock of the state: a driver's folder may be gone by now.
            request = writes.request_of(node, self._place(path), text)
            waits = writes.is_locked(node, request.pci) and not writes.needs_no_lock(node, request)
            if not waits and writes.fault_for(node, place, "hang") is None:
                try:
                    return writes.perform(node, request)
                except StillInUse as waiting:
                    node = waiting.node
            node, number = writes.queued(node, place, request)
            numbers.append(number)
            return node

        try:
            self._machine.change_node(edit)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from None
        self._die(fault, "die-after")
        return numbers[0] if numbers else None

    def _place(self, path: Path) -> str:
        """The file's path below the root, without links; raises FileNotFoundError without the file."""
        # Never write to a real sysfs: only a pretended one has the file PRETENDED in its root.
        if not path.is_file() or not (self._root / PRETENDED).is_file():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return path.resolve().relative_to(self._root.resolve()).as_posix()

    def _is_done(self, number: int) -> bool:
        """Whether a write that waited is done; raises OSError if the kernel refused it."""
        waiting = writes.settled(self._machine.node()).kernel.waiting
        if any(one.number == number and one.error is None for one in waiting):
            return False
        return self._take(number, given_up=False)

    def _give_up(self, number: int, path: Path, deadline_seconds: float) -> None:
        """Stop waiting; raises TimeoutError unless the write is done by now."""
        if not self._take(number, given_up=True):
            raise TimeoutError(
                errno.ETIMEDOUT, f"the write did not return within {deadline_seconds:g} s", str(path)
            )

    def _take(self, number: int, *, given_up: bool) -> bool:
        """Whether a write is done; forgets it then, and raises OSError if the kernel refused it.

        With ``given_up`` the kernel forgets it by itself later.
        """
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

    def _hit_fault(self, words: str) -> KernelFault | None:
        """The rule that spoils a write or the loading of a module; counts a hit of it."""
        kinds = ("fail", "ignore", "die-before", "die-after")
        found: list[KernelFault] = []

        def edit(node: Node) -> Node:
            fault = writes.fault_for(node, words, *kinds)
            if fault is None:
                return node
            found.append(fault)
            return writes.with_hit(node, fault)

        if writes.fault_for(self._machine.node(), words, *kinds) is not None:
            self._machine.change_node(edit)
        return found[0] if found else None

    def _die(self, fault: KernelFault | None, kind: KernelFaultKind) -> None:
        # SIGKILL cannot be caught: no handler and no finally clause runs, as in a crash.
        if fault is not None and fault.kind == kind:
            os.kill(os.getpid(), signal.SIGKILL)
