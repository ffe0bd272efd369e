"""The control daemon of a fake MPS: one thread that serves commands and CUDA clients on a unix socket."""

from __future__ import annotations

import fcntl
import json
import os
import selectors
import signal
import socket
import struct
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from driver.errors import DriverError
from driver.nvml.pci_address import PciAddress
from fakegpu.machine.fake_machine import FakeMachine
from fakegpu.machine.faults import MPS_START, MpsFault
from fakegpu.mps.client import PRIVILEGED, SOCKET
from fakegpu.mps.control import QUESTIONS, CommandRefused, Control, Limits, limit_mib, thread_percentage
from fakegpu.mps.server import SERVER_NAME, ServerProcesses, name_process

_MOST_CLIENTS, _MOST_CLIENTS_BEFORE_VOLTA = 48, 16
_VOLTA = (7, 0)
_MOST_SLICES = 7

_CONTROL_NAME = "nvidia-cuda-mps-control"
_PID_FILE, _LOCK, _LOG_PIPE = f"{_CONTROL_NAME}.pid", "control_lock", "log"

# How often the daemon looks for servers that were killed.
_POLL_SECONDS = 0.02
_MOST_LINE_BYTES = 65536

_OPTIONS = {"-d": "background", "-f": "foreground", "-M": "multi-user", "--multiuser-server": "multi-user"}


@dataclass(frozen=True, slots=True)
class CudaDevice:
    """One device as CUDA counts them; ``share`` is the part of the GPU's compute slices that it has."""

    uuid: str
    pci: PciAddress
    share: float = 1.0


def _visible_devices(machine: FakeMachine, text: str | None) -> tuple[CudaDevice, ...]:
    """The devices that CUDA_VISIBLE_DEVICES names by index or UUID; all GPUs for None. Raises NvmlError."""
    nvml = machine.nvml()
    nvml.init()
    gpus = [nvml.device_by_index(index) for index in range(nvml.device_count())]
    known = {str(index): CudaDevice(gpu.uuid(), gpu.pci()) for index, gpu in enumerate(gpus)}
    whole = tuple(known.values())
    if text is None:
        return whole
    known |= {device.uuid: device for device in whole}
    for gpu in gpus:
        for mig in gpu.mig_devices():
            known[mig.uuid] = CudaDevice(mig.uuid, gpu.pci(), mig.compute_instance_slices / _MOST_SLICES)
    seen: list[CudaDevice] = []
    for name in text.split(","):
        # As in CUDA, the first unknown name ends the list.
        if name not in known:
            break
        seen.append(known[name])
    return tuple(seen)


def most_clients(machine: FakeMachine, devices: tuple[CudaDevice, ...]) -> int:
    """How many clients a server for these devices takes, in proportion for a MIG device; at least one."""
    volta = machine.spec.product.compute_capability >= _VOLTA
    most = _MOST_CLIENTS if volta else _MOST_CLIENTS_BEFORE_VOLTA
    return max(1, int(most * min((device.share for device in devices), default=1.0)))


class CannotStart(Exception):
    """The daemon cannot start; the message is what it prints."""


class Daemon:
    """A daemon for some devices, with its sockets in the folder ``pipes`` and its log in ``logs``."""

    def __init__(
        self, flag: str, devices: tuple[CudaDevice, ...], pipes: Path, logs: Path, programs: Path
    ) -> None:
        """``flag`` opens the machine; ``programs`` is the folder of the server's program."""
        self._machine = machine = FakeMachine.open(flag)
        self._state = Path(flag.rpartition("@")[2])
        self._gpus = tuple(dict.fromkeys(device.pci for device in devices))
        self._pipes = pipes
        self._log = logs / "control.log"
        self._servers = ServerProcesses(machine, flag, self._gpus, programs / SERVER_NAME)
        uuids = tuple(device.uuid for device in devices)
        self.control = Control(uuids, most_clients(machine, devices), self)
        self._selector = selectors.DefaultSelector()
        self._listeners: dict[socket.socket, str] = {}
        self._privileged: set[socket.socket] = set()
        self._buffers: dict[socket.socket, bytes] = {}
        self._clients: dict[int, socket.socket] = {}
        self._waiting: list[tuple[socket.socket, dict[str, Any]]] = []
        self._quitters: list[socket.socket] = []
        self._force_at: float | None = None
        self._done = False

    def open(self) -> None:
        """Take the lock and the socket, and write the pid file; raises CannotStart."""
        for folder in (self._pipes, self._log.parent):
            try:
                folder.mkdir(exist_ok=True)
            except OSError as error:
                raise CannotStart(f"Failed to create directory {folder}: {error.strerror}") from error
        # The kernel releases the lock with the process, so a daemon that was killed does not block the next.
        self._lock = (self._pipes / _LOCK).open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise CannotStart("An instance of this daemon is already running") from error
        self._listen(PRIVILEGED, 0o755)
        self._listen(SOCKET, 0o666)
        (self._pipes / _LOG_PIPE).unlink(missing_ok=True)
        os.mkfifo(self._pipes / _LOG_PIPE)
        (self._pipes / _PID_FILE).write_text(f"{os.getpid()}\n")
        # The modes that these files have on real nodes.
        for name, mode in ((_LOCK, 0o666), (_LOG_PIPE, 0o777), (_PID_FILE, 0o666)):
            (self._pipes / name).chmod(mode)
        name_process(_CONTROL_NAME)
        self._note(f"Starting control daemon using socket {self._pipes / SOCKET}")
        self._note(
            f"To connect CUDA applications to this daemon, set env CUDA_MPS_PIPE_DIRECTORY={self._pipes}"
        )

    def serve(self) -> None:
        """Serve until ``quit``, SIGTERM or until the machine's state file is removed; then clean up."""
        # sys.exit raises SystemExit in the main thread, which runs this, so the finally clause runs as well.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        try:
            while not self._done and self._state.exists():
                for key, _ in self._selector.select(_POLL_SECONDS):
                    self._read(key.fileobj)
                for pid in self._servers.ended():
                    self._note(f"Server {pid} exited")
                    self.control.server_left(pid)
                self._connect_waiting()
                self._continue_quitting()
        finally:
            self.control.shut(force=True)
            for name in (_PID_FILE, SOCKET, PRIVILEGED, _LOG_PIPE):
                (self._pipes / name).unlink(missing_ok=True)
            # The lock goes first: who asked to quit may start another daemon as soon as the answer is there.
            self._lock.close()
            for connection in self._quitters:
                _reply(connection, {"answer": ""})

    def _listen(self, name: str, mode: int) -> None:
        """Serve a socket of the pipe directory; raises CannotStart."""
        path = self._pipes / name
        # bind fails with EADDRINUSE while the file of a former socket exists.
        path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX)
        self._listeners[listener] = name
        try:
            listener.bind(str(path))
        except OSError as error:
            raise CannotStart(f"Failed to bind {path}: {error}") from error
        path.chmod(mode)
        listener.listen()
        self._selector.register(listener, selectors.EVENT_READ)

    def start_server(self, uid: int) -> int:
        """Start a server; raises CommandRefused."""
        try:
            pid = self._servers.start()
        except CommandRefused as refused:
            self._note(str(refused))
            raise
        self._note(f"Starting new server {pid} for user {uid}")
        self._note(f"NEW SERVER {pid}: Ready")
        return pid

    def end_server(self, pid: int) -> None:
        """End a server."""
        self._servers.end(pid)
        self._note(f"Server {pid} exited with status 0")

    def drop_client(self, pid: int) -> None:
        """End the connection of a client."""
        self._close(self._clients.pop(pid))

    def _read(self, source: object) -> None:
        """Accept a connection, or handle the lines that a connection sent."""
        listener = next((known for known in self._listeners if known is source), None)
        if listener is not None:
            connection, _ = listener.accept()
            self._buffers[connection] = b""
            if self._listeners[listener] == PRIVILEGED:
                self._privileged.add(connection)
            self._selector.register(connection, selectors.EVENT_READ)
            return
        connection = next(known for known in self._buffers if known is source)
        with suppress(ConnectionError):
            data = connection.recv(_MOST_LINE_BYTES)
            if data:
                self._buffers[connection] += data
                while connection in self._buffers and b"\n" in self._buffers[connection]:
                    line, _, self._buffers[connection] = self._buffers[connection].partition(b"\n")
                    self._handle(connection, json.loads(line))
                return
        # No data: the other side has closed the connection, which ends a client.
        self._close(connection)

    def _handle(self, connection: socket.socket, question: dict[str, Any]) -> None:
        if "command" in question:
            self._command(connection, question["command"].split())
        else:
            self._connect(connection, question)

    def _command(self, connection: socket.socket, words: list[str]) -> None:
        self._note(f"Cmd:{' '.join(words)}")
        if connection not in self._privileged and words[0] not in QUESTIONS:
            _reply(connection, {"answer": f"Permission denied: {words[0]}"})
            return
        fault = self._spoiled(words[0])
        if fault and fault.kind == "refuse":
            _reply(connection, {"answer": fault.words})
            return
        if fault and fault.kind == "lie" and words[0].startswith("set_"):
            words = [*words[:-1], fault.words]
        if words[0] == "quit":
            self._quit(connection, words[1:])
            return
        try:
            answer = self.control.answer(words)
        except CommandRefused as refused:
            answer = str(refused)
        # At once, without the clean-up of ``serve``: sockets and pid file stay, as after a crash.
        if fault and fault.kind == "die":
            os._exit(1)
        _reply(connection, {"answer": answer})

    def _spoiled(self, command: str) -> MpsFault | None:
        fault = self._machine.hit_mps_fault(command, self._gpus)
        if fault and fault.kind == "hang":
            hang(self._machine, fault)
        return fault

    def _quit(self, connection: socket.socket, options: list[str]) -> None:
        match options:
            case []:
                pass
            case ["-t", seconds] if seconds.isdigit():
                self._force_at = time.monotonic() + int(seconds)
            case _:
                _reply(connection, {"answer": "Usage: quit [-t TIMEOUT]"})
                return
        self._quitters.append(connection)
        self.control.quitting = True

    def _continue_quitting(self) -> None:
        if not self.control.quitting:
            return
        force = self._force_at is not None and time.monotonic() >= self._force_at
        self._done = self.control.shut(force=force)

    def _connect(self, connection: socket.socket, client: dict[str, Any]) -> None:
        """Connect a client to a server, refuse it, or let it wait."""
        pid = _peer(connection) if client["pid"] is None else int(client["pid"])
        uid = int(client["uid"])
        try:
            if pid in self._clients:
                raise CommandRefused(f"process {pid} is a client already")
            own = Limits(
                thread_percentage(client["percentage"] or "100"), _own_limits(client["pinned"] or "")
            )
            server = self.control.connect(pid, uid, own)
        except CommandRefused as refused:
            self._note(f"Client {pid} from user {uid} refused: {refused}")
            _reply(connection, {"refused": str(refused)})
            return
        if server is None:
            self._waiting.append((connection, client))
            return
        self._clients[pid] = connection
        self._note(f"NEW CLIENT {pid} from user {uid}: Server {server.pid}")
        limits = server.clients[pid]
        pinned = dict(sorted(limits.pinned_mib.items()))
        answer = {"server": server.pid, "percentage": limits.percentage, "pinned_mib": pinned}
        _reply(connection, {**answer, "devices": list(self.control.devices)})

    def _connect_waiting(self) -> None:
        """Try again to connect the clients that wait."""
        waiting, self._waiting = self._waiting, []
        for connection, client in waiting:
            if connection in self._buffers:
                self._connect(connection, client)

    def _close(self, connection: socket.socket) -> None:
        if self._buffers.pop(connection, None) is None:
            return
        self._selector.unregister(connection)
        self._privileged.discard(connection)
        connection.close()
        for pid in [pid for pid, known in self._clients.items() if known is connection]:
            del self._clients[pid]
            self.control.client_left(pid)

    def _note(self, text: str) -> None:
        moment = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        with self._log.open("a") as log:
            log.write(f"[{moment} Control {os.getpid():>5}] {text}\n")


def hang(machine: FakeMachine, fault: MpsFault) -> None:
    """Do nothing for as long as the rule exists."""
    while fault in machine.state.mps_faults:
        machine.wait()


def _peer(connection: socket.socket) -> int:
    """The process at the other end, by the id that it has here (unix(7), SO_PEERCRED)."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    process_id: int = struct.unpack("3i", credentials)[0]
    return process_id


def _own_limits(text: str) -> dict[str, int]:
    """CUDA_MPS_PINNED_DEVICE_MEM_LIMIT, ``0=1G,1=512MB``; raises CommandRefused."""
    pairs = [entry.partition("=") for entry in text.split(",") if entry]
    return {device: limit_mib(value) for device, _, value in pairs}


def _reply(connection: socket.socket, answer: dict[str, Any]) -> None:
    # The client may be gone.
    with suppress(OSError):
        connection.sendall(json.dumps(answer).encode() + b"\n")


def start_daemon(flag: str, options: Sequence[str], pipes: Path, programs: Path) -> int:
    """Start a daemon for the devices of CUDA_VISIBLE_DEVICES; returns the exit code.

    ``flag`` opens the machine, ``programs`` is the folder of the server's program.
    """
    chosen = {_OPTIONS.get(option) for option in options}
    if None in chosen or len(chosen & {"background", "foreground"}) != 1:
        _say("Usage: nvidia-cuda-mps-control [-d | -f] [-M]")
        return 1
    try:
        daemon = _daemon(flag, pipes, programs)
        daemon.control.multi_user = "multi-user" in chosen
        return _in_background(daemon) if "background" in chosen else _in_foreground(daemon)
    except (CannotStart, DriverError) as error:
        _say(str(error))
        return 1


def _daemon(flag: str, pipes: Path, programs: Path) -> Daemon:
    """The daemon for the devices that CUDA sees; raises CannotStart if a fault rule refuses the start."""
    machine = FakeMachine.open(flag)
    devices = _visible_devices(machine, os.environ.get("CUDA_VISIBLE_DEVICES"))
    logs = Path(os.environ.get("CUDA_MPS_LOG_DIRECTORY", "/var/log/nvidia-mps"))
    fault = machine.hit_mps_fault(MPS_START, tuple(device.pci for device in devices))
    if fault and fault.kind == "hang":
        hang(machine, fault)
    if fault and fault.kind in ("refuse", "die"):
        raise CannotStart(fault.words)
    return Daemon(flag, devices, pipes, logs, programs)


def _in_foreground(daemon: Daemon) -> int:
    daemon.open()
    daemon.serve()
    return 0


def _in_background(daemon: Daemon) -> int:
    """Start the daemon as a process of its own; returns once it serves, or has printed why it cannot."""
    read_end, write_end = os.pipe()
    if os.fork():
        # The parent waits for a byte. If the child exits without one, the pipe is closed and nothing is read.
        os.close(write_end)
        return 0 if os.read(read_end, 1) else 1
    os.close(read_end)
    # A session of its own: no signal of the caller's terminal or process group reaches the daemon.
    os.setsid()
    try:
        daemon.open()
    except CannotStart as error:
        _say(str(error))
        os._exit(1)
    # Otherwise a caller that reads the program's output through a pipe would wait for the daemon to end.
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    os.write(write_end, b"1")
    os.close(write_end)
    daemon.serve()
    return 0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
