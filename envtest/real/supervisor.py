"""The process that owns all processes of a cluster and leaves nothing behind when it ends.

It is the first process of the cluster's PID namespace: orphans become its children, and when it ends the
kernel kills all others of the namespace. It ends on request, on SIGTERM, or when its owner's process ends.
Requests come through a unix socket, one JSON line each, answered by one JSON line.
"""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from envtest.client.errors import ClusterError
from envtest.client.layout import ClusterLayout
from envtest.real import cgroups, isolation
from envtest.real.slots import Slot

READY_LINE = b"ready\n"
KILL_SECONDS = 10.0

Request = dict[str, Any]
Answer = dict[str, Any]


@dataclass(slots=True)
class Child:
    """A process that was asked for; ``returncode`` is negative for a signal, None while it runs."""

    pid: int
    returncode: int | None = None


class Supervisor:
    """Starts and stops processes by name, and reaps whatever ends below it.

    ``child_ended`` is a descriptor that becomes readable when a child ends, ``ends`` are descriptors that
    become readable when it is time to end.
    """

    def __init__(self, layout: ClusterLayout, child_ended: int, ends: Sequence[int]) -> None:
        self._layout = layout
        self._children: dict[str, Child] = {}
        self.child_ended = child_ended
        self.ends = frozenset(ends)

    def answer(self, request: Request) -> Answer:
        """Carry out a request; ``error`` in the answer says why it failed."""
        operations: dict[str, Callable[[Request], Answer]] = {
            "start": self._start,
            "signal": self._signal,
            "wait": self._wait,
            "states": self._states,
        }
        operation = operations.get(request["op"])
        if operation is None:
            return {"error": f"unknown operation {request['op']}"}
        try:
            return operation(request)
        except (OSError, KeyError) as error:
            return {"error": f"{request['op']} {request.get('name', '')}: {error!r}"}

    def reap(self) -> None:
        """Note which children ended, and reap orphans as well."""
        while True:
            try:
                # Several children may have ended for one SIGCHLD: signals of one kind are merged while they
                # are pending.
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for child in self._children.values():
                if child.pid == pid:
                    child.returncode = os.waitstatus_to_exitcode(status)

    def kill_all(self) -> None:
        """Kill every process of the namespace but this one, and wait until they are gone."""
        deadline = time.monotonic() + KILL_SECONDS
        while time.monotonic() < deadline:
            try:
                # As process 1 of its PID namespace it reaches all processes in it but itself, and none
                # outside.
                os.kill(-1, signal.SIGKILL)
            except ProcessLookupError:
                return
            self._await_child(0.05)
            self.reap()

    def _start(self, request: Request) -> Answer:
        name, command = request["name"], request["command"]
        known = self._children.get(name)
        if known is not None and known.returncode is None:
            return {"error": f"{name} runs already, as process {known.pid}"}
        log = os.fspath(self._layout.log(name))
        # A process that is started again writes behind its log of before.
        append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        pid = os.posix_spawnp(
            command[0],
            command,
            {**os.environ, **request["environment"]},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, log, append, 0o644),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            # A session of its own, and no signal blocked, as a process expects it.
            setsid=True,
            setsigmask=[],
        )
        self._children[name] = Child(pid)
        return {"pid": pid}

    def _signal(self, request: Request) -> Answer:
        child = self._children[request["name"]]
        if child.returncode is None:
            os.kill(child.pid, request["signal"])
        return {}

    def _wait(self, request: Request) -> Answer:
        """Wait for the end of a process; returncode is None if it still runs when the wait ends."""
        child = self._children[request["name"]]
        deadline = time.monotonic() + request["timeout_seconds"]
        while child.returncode is None:
            remaining = deadline - time.monotonic()
            if remaining <= 0 or self.ends & self._await_child(remaining):
                break
            self.reap()
        return {"returncode": child.returncode}

    def _states(self, _request: Request) -> Answer:
        self.reap()
        children = {
            name: {"pid": child.pid, "returncode": child.returncode} for name, child in self._children.items()
        }
        return {"processes": children, "namespace": str(Path("/proc/self/ns/pid").readlink())}

    def _await_child(self, timeout_seconds: float) -> set[int]:
        """Wait until a child ended or it is time to end; returns the descriptors that say so."""
        with selectors.DefaultSelector() as selector:
            for source in (self.child_ended, *self.ends):
                selector.register(source, selectors.EVENT_READ)
            ready = {key.fd for key, _ in selector.select(timeout_seconds)}
        if self.child_ended in ready:
            os.read(self.child_ended, 4096)
        return ready


def receive(connection: socket.socket) -> Request:
    """Read one request; {} when the other end closed without one."""
    with connection.makefile("rb") as lines:
        line = lines.readline()
    return dict(json.loads(line)) if line else {}


def send(connection: socket.socket, message: Answer) -> None:
    """Write one answer; the client may be gone by now."""
    try:
        connection.sendall(json.dumps(message).encode() + b"\n")
    except OSError as error:
        sys.stderr.write(f"nobody took the answer {message}: {error}\n")


def serve(supervisor: Supervisor, listener: socket.socket) -> socket.socket | None:
    """Answer requests until it is time to end; returns the connection that asked for it, if one did."""
    with selectors.DefaultSelector() as selector:
        for source in (listener.fileno(), supervisor.child_ended, *supervisor.ends):
            selector.register(source, selectors.EVENT_READ)
        while True:
            ready = {key.fd for key, _ in selector.select()}
            if supervisor.ends & ready:
                return None
            if supervisor.child_ended in ready:
                os.read(supervisor.child_ended, 4096)
                supervisor.reap()
            if listener.fileno() in ready:
                connection, _ = listener.accept()
                request = receive(connection)
                if request.get("op") == "shutdown":
                    return connection
                with connection:
                    if request:
                        send(connection, supervisor.answer(request))


def wake_on(*signals: signal.Signals) -> int:
    """A descriptor that becomes readable when one of the signals arrives."""
    reader, writer = os.pipe()
    # A signal handler must never block.
    os.set_blocking(writer, False)

    # A byte in the pipe wakes a select, which a signal alone would not (PEP 475).
    def wake(_number: int, _frame: object) -> None:
        try:
            os.write(writer, b"x")
        # The pipe is full, so its reader wakes up in any case.
        except BlockingIOError:
            return

    for number in signals:
        signal.signal(number, wake)
    return reader


def clean(layout: ClusterLayout, slot: Slot) -> None:
    """Unmount, remove the control groups, remove the files; must run in the cluster's namespace.

    Raises:
        ClusterError: something is still in use; files below a mount are never removed, because
            they may be the machine's.
    """
    # First of all, so that no file is removed through a mount.
    mounted = isolation.unmount_below(layout.folder)
    if mounted:
        raise ClusterError(f"cannot unmount {', '.join(map(str, mounted))}: files are left there")
    busy = cgroups.remove(slot.cgroup_prefix)
    shutil.rmtree(layout.folder)
    if busy:
        raise ClusterError(f"processes live on in the control groups {', '.join(map(str, busy))}")


@click.command()
@click.option("--folder", type=click.Path(path_type=Path), required=True)
@click.option("--slot", "slot_index", type=int, required=True)
@click.option("--slot-lock", type=int, required=True, help="Descriptor that holds the slot's lock.")
@click.option("--owner", type=int, required=True, help="Descriptor (pidfd) of the process to end with.")
def main(folder: Path, slot_index: int, slot_lock: int, owner: int) -> None:
    """Own the processes of the cluster in FOLDER until its end."""
    layout, slot = ClusterLayout(folder), Slot(slot_index)
    for descriptor in (slot_lock, owner):
        # They came through exec and would go on to every child: the slot would never be free.
        os.set_inheritable(descriptor, False)  # noqa: FBT003 - it takes no keywords
    child_ended = wake_on(signal.SIGCHLD)
    ends = [wake_on(signal.SIGTERM, signal.SIGINT), owner]
    # What an earlier cluster of this slot has left: its lock is free, so it is gone.
    cgroups.remove(slot.cgroup_prefix)
    isolation.arrange(layout)
    supervisor = Supervisor(layout, child_ended, ends)
    with socket.socket(socket.AF_UNIX) as listener:
        # Requests wait in the backlog while one is answered: there is one thread.
        listener.bind(str(layout.supervisor_socket))
        listener.listen()
        os.write(1, READY_LINE)
        # Whoever started the cluster reads one line and closes the pipe; later output goes to the log.
        os.dup2(2, 1)
        asker = serve(supervisor, listener)
    supervisor.kill_all()
    answer: Answer = {}
    try:
        clean(layout, slot)
    except (ClusterError, OSError) as error:
        answer = {"error": f"cleaning up after the cluster: {error}"}
    if asker is not None:
        with asker:
            send(asker, answer)


if __name__ == "__main__":
    main()
