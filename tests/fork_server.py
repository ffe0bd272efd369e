"""Starts the driver's processes as forks of one process that has imported everything.

A process of the driver spends half a second of processor time on imports, and tests start hundreds. So tests
ask one server for each of them: ``python -P -m MODULE ARGUMENTS`` costs a fork there. The server has a single
thread and no gRPC channel, since a fork copies neither. ``tests/processes/test_bad_flags.py``
starts the same processes as users do.

A request is one message on a socket pair: the module, its arguments and its environment, with four
descriptors: stdin, stdout, stderr, and the pipe that gets the exit status.
"""

import atexit
import json
import os
import pkgutil
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import IO

from envtest.child_processes import RunningProcess, start_process
from gpuctl.demo import watchdog
from tests.clusters import PACKAGE_ROOT

_PREFIX = (sys.executable, "-P", "-m")
_PRELOADED = (
    "driver.process.log",  # first, as in each process: it tells gRPC's core to keep quiet
    "proto",
    "kubernetes_rules",
    "driver",
    "fakegpu",
    "controller",
    "kubeletplugin",
    "gpuctl.demo.brisk",
)
_LEFT_OUT = frozenset({"proto.generate"})
"""Modules with large libraries that the driver's processes hardly ever import."""

_LONGEST_REQUEST_BYTES = 1 << 17


class ForkedProcess:
    """A process that the server has forked, with methods named as in ``subprocess.Popen``."""

    def __init__(self, pid: int, status: int, stdout: IO[str] | None) -> None:
        self.pid = pid
        self.stdout = stdout
        self.returncode: int | None = None
        self._status = status

    def __del__(self) -> None:
        """Close the pipe of a process that nobody waited for."""
        if self.returncode is None:
            os.close(self._status)

    def poll(self) -> int | None:
        """The exit code, None while it runs."""
        return self._read_status(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit code; raises subprocess.TimeoutExpired."""
        code = self._read_status(timeout)
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
        return code

    def send_signal(self, sig: int) -> None:
        """Send it a signal, if it still runs."""
        if self.poll() is None:
            os.kill(self.pid, sig)

    def terminate(self) -> None:
        """Send it SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send it SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def _read_status(self, timeout_seconds: float | None) -> int | None:
        if self.returncode is None:
            with selectors.DefaultSelector() as selector:
                selector.register(self._status, selectors.EVENT_READ)
                if not selector.select(timeout_seconds):
                    return None
            # The exit status as text; nothing if the server has ended and closed the pipe.
            said = os.read(self._status, 16)
            assert said, "the fork server ended before the processes that it forked"
            self.returncode = os.waitstatus_to_exitcode(int(said))
            os.close(self._status)
        return self.returncode


def start(command: Sequence[str], environment: Mapping[str, str], output: int) -> RunningProcess:
    """Start a process in a session of its own; what it writes goes to ``output``. Python is forked."""
    if tuple(command[:3]) == _PREFIX:
        return _fork(command[3:], environment, output, None)
    return start_process(command, environment, output)


def start_read(command: Sequence[str], environment: Mapping[str, str]) -> ForkedProcess:
    """Start ``python -P -m MODULE``, whose output is read from ``stdout`` as text."""
    assert tuple(command[:3]) == _PREFIX
    read, write = os.pipe()
    try:
        return _fork(command[3:], environment, write, os.fdopen(read))
    finally:
        os.close(write)


def _fork(
    command: Sequence[str], environment: Mapping[str, str], output: int, stdout: IO[str] | None
) -> ForkedProcess:
    module, *arguments = command
    request = json.dumps([module, arguments, dict(environment)]).encode()
    with _one_request:
        _, control = _server()
        status, ended = os.pipe()
        with Path(os.devnull).open("rb") as nothing:
            socket.send_fds(control, [request], [nothing.fileno(), output, output, ended])
        os.close(ended)
        return ForkedProcess(int(control.recv(16)), status, stdout)


_one_request = threading.Lock()


@cache
def _server() -> tuple[subprocess.Popen[bytes], socket.socket]:
    """The fork server of this process and the socket to it; the server ends with this process."""
    # SOCK_SEQPACKET: one send is one request, with its descriptors.
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * _LONGEST_REQUEST_BYTES)
    # Without the variable by which the watchdog of a demo knows the processes that end with it.
    variables = {name: value for name, value in os.environ.items() if name != watchdog.MARK}
    with theirs:
        process = subprocess.Popen(
            [*_PREFIX, "tests.fork_server", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env={**variables, "PYTHONPATH": str(PACKAGE_ROOT)},
            start_new_session=True,
        )
    atexit.register(_end, process, ours)
    return process, ours


def _end(process: subprocess.Popen[bytes], ours: socket.socket) -> None:
    ours.close()
    process.wait()


def _import_everything() -> None:
    for name in _PRELOADED:
        package = import_module(name)
        for found in pkgutil.walk_packages(getattr(package, "__path__", ()), f"{name}."):
            if found.name not in _LEFT_OUT:
                import_module(found.name)


def _serve(control: socket.socket) -> tuple[str, list[str]]:
    """Fork for each request; returns in the forks, with the module to run and its arguments."""
    # By the pidfd of a process: its id, and the pipe for its exit status.
    ended: dict[int, tuple[int, int]] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is not control:
                    selector.unregister(key.fd)
                    pid, pipe = ended.pop(key.fd)
                    _, status = os.waitpid(pid, 0)
                    os.close(key.fd)
                    _tell(pipe, status)
                    continue
                request, descriptors, _, _ = socket.recv_fds(control, _LONGEST_REQUEST_BYTES, 4)
                if not request:
                    sys.exit(0)
                module, arguments, environment = json.loads(request)
                *standard, pipe = descriptors
                pid = os.fork()
                if pid == 0:
                    # A fork has copies of all descriptors: with the pipes of others open here, their readers
                    # would not see the end.
                    _become(standard, [pipe, *ended, *(other for _, other in ended.values())], environment)
                    return module, arguments
                for descriptor in standard:
                    os.close(descriptor)
                # Readable once the process has ended, so one select waits for processes and requests.
                watched = os.pidfd_open(pid)
                ended[watched] = pid, pipe
                selector.register(watched, selectors.EVENT_READ)
                control.send(str(pid).encode())


def _tell(pipe: int, status: int) -> None:
    try:
        os.write(pipe, str(status).encode())
    # Nobody waits for this process any more.
    except BrokenPipeError:
        pass
    finally:
        os.close(pipe)


def _become(standard: Sequence[int], others: Sequence[int], environment: Mapping[str, str]) -> None:
    """Make this fork look like a process that was just started."""
    # As start_process does, so that both kinds of process are ended the same way.
    os.setsid()
    for number, descriptor in enumerate(standard):
        os.dup2(descriptor, number)
    for descriptor in {*standard, *others}:
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(environment)


def main() -> None:
    """Serve on the inherited socket that the first argument names, until its other end is closed."""
    control = socket.socket(fileno=int(sys.argv[1]))
    _import_everything()
    module, arguments = _serve(control)
    control.close()
    main_module = f"{module}.__main__" if hasattr(import_module(module), "__path__") else module
    # runpy warns of a module that it runs and that is imported already.
    sys.modules.pop(main_module, None)
    sys.argv = [main_module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
