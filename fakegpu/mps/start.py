"""Starts the control daemon of a fake MPS, in the foreground or as a process of its own."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from driver.errors import DriverError
from fakegpu.machine.fake_machine import FakeMachine
from fakegpu.mps.daemon import CannotStart, Daemon, hang
from fakegpu.mps.devices import visible_devices
from fakegpu.mps.faults import START

if TYPE_CHECKING:
    from collections.abc import Sequence

_OPTIONS = {"-d": "background", "-f": "foreground", "-M": "multi-user", "--multiuser-server": "multi-user"}


def start(flag: str, options: Sequence[str], pipes: Path, programs: Path) -> int:
    """Start a daemon for the devices of CUDA_VISIBLE_DEVICES; returns the exit code.

    ``flag`` opens the machine, ``programs`` is the folder where the server's program lies.
    """
    asked = {_OPTIONS.get(option) for option in options}
    if None in asked or len(asked & {"background", "foreground"}) != 1:
        _say("Usage: nvidia-cuda-mps-control [-d | -f] [-M]")
        return 1
    try:
        daemon = _daemon(flag, pipes, programs)
        daemon.control.multi_user = "multi-user" in asked
        return _in_background(daemon) if "background" in asked else _in_foreground(daemon)
    except (CannotStart, DriverError) as error:
        _say(str(error))
        return 1


def _daemon(flag: str, pipes: Path, programs: Path) -> Daemon:
    """The daemon for the devices that CUDA sees; raises CannotStart where a rule refuses it."""
    machine = FakeMachine.open(flag)
    devices = visible_devices(machine, os.environ.get("CUDA_VISIBLE_DEVICES"))
    logs = Path(os.environ.get("CUDA_MPS_LOG_DIRECTORY", "/var/log/nvidia-mps"))
    fault = machine.spend_mps_fault(START, tuple(device.pci for device in devices))
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
    """Leave the daemon behind as a process of its own; returns once it serves, or has said why not."""
    read_end, write_end = os.pipe()
    if os.fork():
        os.close(write_end)
        return 0 if os.read(read_end, 1) else 1
    os.close(read_end)
    os.setsid()
    try:
        daemon.open()
    except CannotStart as error:
        _say(str(error))
        os._exit(1)
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
