"""A CUDA probe that keeps what it allocated until it is told to end, in a control group of its own if needed.

It is a program of this machine, outside of any container, with the variables that a container would get.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector

from driver.nvml.api import Nvml
from driver.process.sockets import service_socket_name
from fakegpu.machine.cgroups import CGROUP_ROOT
from fakegpu.nvml.flag import pretended_cgroups
from gpuctl.probe.answer import Answer
from gpuctl.verify.change.plugin import StepFailed

CONTROL_GROUPS = "gpu-dra-verify"
"""The control group above those of all probes."""
CONTROL_GROUP = "FAKEGPU_CGROUP"
"""The variable by which the fake CUDA knows its control group."""

_PROTOCOL = 1
_GRACE_SECONDS, _LIMIT_SECONDS = 5.0, 30.0
_MOST_BYTES = 1 << 20
_JOIN = 'echo $$ >"$0" && exec "$@"'


@contextmanager
def control_group(name: str, nvml: Nvml) -> Iterator[tuple[str, tuple[str, ...], dict[str, str]]]:
    """A new control group: its path in /proc/PID/cgroup, the words that start a program in it, and variables.

    Raises OSError where it cannot be made.
    """
    path, groups = f"/{CONTROL_GROUPS}/{name}", pretended_cgroups(nvml)
    if groups is not None:
        made = groups.make(path)
        try:
            yield path, (), {CONTROL_GROUP: made.path}
        finally:
            groups.remove(path)
        return
    folder = Path(f"{CGROUP_ROOT}{path}")
    folder.mkdir(parents=True)
    try:
        yield path, ("/bin/sh", "-c", _JOIN, str(folder / "cgroup.procs")), {}
    finally:
        _remove(folder)
        # The group of another probe may still be in it.
        with suppress(OSError):
            folder.parent.rmdir()


def remove_control_groups() -> bool:
    """Kill what runs in the control groups of probes, and remove them; returns whether they are gone."""
    above = Path(CGROUP_ROOT, CONTROL_GROUPS)
    # One whose process does not end does not keep the others.
    gone = [_remove(folder) for folder in (*above.glob("*/"), above)]
    return all(gone)


def _remove(folder: Path) -> bool:
    deadline = time.monotonic() + _GRACE_SECONDS
    while folder.is_dir() and time.monotonic() < deadline:
        # The kernel removes a group only after the end of its processes.
        with suppress(OSError):
            (folder / "cgroup.kill").write_text("1")
        with suppress(OSError):
            folder.rmdir()
    return not folder.is_dir()


def hold_to_limit(sockets: Path, options: Mapping[str, str], group: str) -> None:
    """Ask the plugin for the memory limit of a control group, as gpu-memory-hook does.

    Raises StepFailed with the plugin's reason.
    """
    state = {"ociVersion": "1.3.0", "id": Path(group).name, "status": "creating", "pid": os.getpid()}
    call = {"version": _PROTOCOL, "claim": options["claim"], "device": options["device"]}
    line = json.dumps({**call, "state": {**state, "annotations": {}}, "cgroup": f"0::{group}\n"})
    received = b""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_LIMIT_SECONDS)
        try:
            connection.connect(str(sockets / service_socket_name()))
            connection.sendall(line.encode() + b"\n")
            while not received.endswith(b"\n") and (part := connection.recv(_MOST_BYTES)):
                received += part
            answer = json.loads(received)
        except (OSError, ValueError) as error:
            raise StepFailed(f"the plugin sets no limit: {error}", "see its log") from error
    if answer.get("ok") is not True:
        raise StepFailed(f"the plugin sets no limit: {answer.get('message')}", "see its log")


@contextmanager
def held_probe(
    words: Sequence[str],
    environment: Mapping[str, str],
    errors: Path,
    seconds: float,
    note: Callable[[int], None],
) -> Iterator[Answer]:
    """Start the probe and wait for what it says, within so many seconds; it is ended with the block.

    ``words`` are its command line. ``errors`` is the file that gets its stderr. ``note`` is called with its
    process id. Raises StepFailed, and NoAnswer for a line that is no answer.
    """
    with errors.open("wb") as file:
        process = subprocess.Popen(
            words,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=file,
            env={**environment, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,
        )
    try:
        note(process.pid)
        yield Answer.read(_line(process, errors, seconds))
    finally:
        # A client of MPS that is killed while it uses the GPU can take the other clients with it.
        if process.stdin is not None:
            process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_SECONDS)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        try:
            process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise StepFailed(
                f"process {process.pid} cannot be killed: it hangs in the kernel",
                "look for errors of the GPU with dmesg; such a process ends only with a reboot",
            ) from error


def _line(process: subprocess.Popen[bytes], errors: Path, seconds: float) -> str:
    assert process.stdout is not None  # noqa: S101 - Popen was given a pipe
    received, deadline, why = b"", time.monotonic() + seconds, "ended without a line"
    with process.stdout as output, DefaultSelector() as selector:
        selector.register(output, EVENT_READ)
        while b"\n" not in received and len(received) < _MOST_BYTES:
            if not selector.select(max(0.0, deadline - time.monotonic())):
                why = f"printed no line within {seconds:g} s"
                break
            part = os.read(output.fileno(), _MOST_BYTES)
            if not part:
                break
            received += part
    if b"\n" in received:
        return received.partition(b"\n")[0].decode(errors="replace")
    said = errors.read_text(errors="replace").strip()[-1500:] or "nothing"
    raise StepFailed(f"the probe {why}; it said: {said}", "see what it wrote")
