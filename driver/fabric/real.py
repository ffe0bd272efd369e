"""The real fabric manager, called through libnvfm in a child process that is killed if it takes too long."""

# ruff: noqa: D102 - the protocol in driver.fabric.api documents these methods

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Hashable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from driver.errors import NodeIncomplete
from driver.fabric import libnvfm
from driver.fabric.api import (
    CALLS,
    SERVICE,
    FabricError,
    FabricGpu,
    FabricPartition,
    FabricTimeout,
    NoFabricManager,
    fabric_failure,
)
from driver.nvml.pci_address import PciAddress
from driver.roots.driver_roots import DriverRoots
from driver.roots.places import LIBRARY_FOLDERS
from driver.roots.root import below

LIBRARIES = ("libnvfm.so.1", "libnvfm.so")
# Without FM_CMD_UNIX_SOCKET_PATH the fabric manager takes commands at a TCP port of the node's loopback,
# which a pod with a network namespace of its own does not reach.
SOCKETS = (f"run/{SERVICE}/socket", f"var/run/{SERVICE}/socket")
"""Where the socket for commands is, below the driver root or the root of the host."""

_ASK_SECONDS = 5.0
# On systems before Hopper an activation trains the NVLinks, which takes seconds.
_CHANGE_SECONDS = 30.0
_CONNECT_MS = 2000
_KILL_SECONDS = 2.0
_MOST_STUCK = 4


class RealFabricManager:
    """The fabric manager that listens on this node now, if there is one."""

    def __init__(
        self,
        roots: DriverRoots,
        ask_seconds: float = _ASK_SECONDS,
        change_seconds: float = _CHANGE_SECONDS,
    ) -> None:
        self._roots = roots
        self._ask_seconds = ask_seconds
        self._change_seconds = change_seconds

    def instance(self) -> Hashable | None:
        socket = self._socket()
        if socket is None or self._library() is None:
            return None
        try:
            status = socket.stat()
        except OSError:
            return None
        # A fabric manager that starts binds a new socket. Inode numbers are reused, so the time counts too.
        return str(socket), status.st_dev, status.st_ino, status.st_ctime_ns

    def partitions(self) -> tuple[FabricPartition, ...]:
        answer = self._ask("partitions", (), self._ask_seconds)
        try:
            found = [_partition(one) for one in answer]
        except (KeyError, TypeError, ValueError) as error:
            raise FabricError(
                f"{CALLS['partitions']} gave an answer that cannot be read: {error!r}"
            ) from error
        return tuple(sorted(found, key=lambda one: one.number))

    def activate(self, partition: int) -> None:
        self._ask("activate", (partition,), self._change_seconds)

    def deactivate(self, partition: int) -> None:
        self._ask("deactivate", (partition,), self._change_seconds)

    def set_activated(self, partitions: tuple[int, ...]) -> None:
        self._ask("set_activated", partitions, self._change_seconds)

    def _ask(self, method: str, partitions: Sequence[int], seconds: float) -> list[dict[str, Any]]:
        """Make one call; raises FabricError."""
        call, socket, library = CALLS[method], self._socket(), self._library()
        if socket is None:
            raise NoFabricManager("the fabric manager of this node has no socket for commands")
        if library is None:
            raise NoFabricManager(
                f"{LIBRARIES[0]} is not on this node, so its fabric manager cannot be used",
                "install the library in the driver's version: it comes with the fabric manager, or with "
                "its headers",
            )
        request = {
            "library": str(library),
            "socket": str(socket),
            "timeout_ms": _CONNECT_MS,
            "call": call,
            "partitions": list(partitions),
        }
        subject = " and ".join(f"partition {number}" for number in partitions)
        answer = _run(request, call, subject, seconds)
        if "unusable" in answer:
            raise NoFabricManager(f"cannot load {library.name}: {answer['unusable']}")
        if "failed" in answer:
            raise fabric_failure(str(answer["failed"]), int(answer["code"]), subject)
        return list(answer["partitions"])

    def _socket(self) -> Path | None:
        found = (self._at(path) for path in SOCKETS)
        return next((path for path in found if path is not None and path.is_socket()), None)

    def _library(self) -> Path | None:
        paths = (f"{folder}/{name}" for folder in LIBRARY_FOLDERS for name in LIBRARIES)
        found = (self._at(path) for path in paths)
        return next((path for path in found if path is not None and path.is_file()), None)

    def _at(self, path: str) -> Path | None:
        """The path below the driver root, or else below the root of the host; None if neither has it."""
        try:
            found = self._roots.current().at(path)
        except NodeIncomplete:
            found = None
        host = self._roots.host_root
        return below(host, path) if found is None and host is not None else found


class _Stuck:
    """Children that were killed and have not ended yet; they are reaped when they have."""

    # SIGKILL takes effect only when the process leaves the kernel. A call that waits there uninterruptibly
    # (state D) keeps it, for as long as the driver does not answer.

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._children: list[subprocess.Popen[bytes]] = []

    def refuse_more(self) -> None:
        """Raise FabricError while so many are stuck that another one would probably get stuck too."""
        with self._lock:
            # poll() reaps a child that has ended; without it a zombie would stay.
            self._children = [child for child in self._children if child.poll() is None]
            count = len(self._children)
        if count >= _MOST_STUCK:
            raise FabricError(
                f"{count} calls of the fabric manager wait in the kernel and cannot be ended",
                "no other call is made until they return; look into the kernel log (dmesg), the node may "
                "need a restart",
            )

    def end(self, child: subprocess.Popen[bytes]) -> None:
        """Kill a child, and give up waiting for one that does not end."""
        child.kill()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                # Closing stdin flushes what the child has not read.
                with suppress(BrokenPipeError):
                    pipe.close()
        try:
            child.wait(_KILL_SECONDS)
        except subprocess.TimeoutExpired:
            with self._lock:
                self._children.append(child)


_STUCK = _Stuck()


def _run(request: dict[str, Any], call: str, subject: str, seconds: float) -> dict[str, Any]:
    """The child's answer; raises FabricTimeout, or FabricError if it ended without one."""
    _STUCK.refuse_more()
    # -I and -S: no environment variable and no site-packages, which would cost time at the start.
    program = [sys.executable, "-I", "-S", libnvfm.__file__]
    try:
        child = subprocess.Popen(
            program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
    except OSError as error:
        raise FabricError(f"cannot make the call {call}: {error.strerror}", "it is tried again") from error
    try:
        output, _ = child.communicate(json.dumps(request).encode(), seconds)
    except subprocess.TimeoutExpired as error:
        of = f" of {subject}" if subject else ""
        raise FabricTimeout(f"{call}{of} did not return within {seconds:g} s") from error
    finally:
        if child.returncode is None:
            _STUCK.end(child)
    try:
        answer = json.loads(output)
    except ValueError as error:
        raise FabricError(f"{call} ended its process with exit code {child.returncode}") from error
    if not isinstance(answer, dict):
        raise FabricError(f"{call} gave no answer")
    return answer


def _partition(answer: dict[str, Any]) -> FabricPartition:
    gpus = tuple(_gpu(one) for one in answer["gpus"])
    return FabricPartition(int(answer["number"]), gpus, bool(answer["active"]))


def _gpu(answer: dict[str, Any]) -> FabricGpu:
    return FabricGpu(int(answer["physical_id"]), str(answer["uuid"]) or None, _address(str(answer["pci"])))


def _address(text: str) -> PciAddress | None:
    try:
        found = PciAddress.parse(text)
    except ValueError:
        return None
    # The fabric manager writes zeros for an unknown address. No GPU is at 0000:00:00.0.
    return None if found == PciAddress(0, 0, 0, 0) else found
