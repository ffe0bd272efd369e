"""The desired settings of an MPS control daemon, as a value: checked, written to a file and read again."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from typing import Any

from driver.errors import ClaimRefused
from driver.kube.decode import decode_json

SOCKET = "supervisor.sock"
"""The supervisor's socket in its folder."""

PROTOCOL = 1
"""The version of what plugin and supervisor send each other; raised if one must know something new."""

MOST_DEVICES = 64
MOST_PINNED_MIB = 2**31
MOST_PERCENT = 100

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
_DEVICE = re.compile(r"(?:GPU|MIG)-[0-9A-Za-z][0-9A-Za-z/-]{0,95}", re.ASCII)


@dataclass(frozen=True, slots=True)
class MpsDaemon:
    """A control daemon and its limits."""

    # A DNS label: the name of the shared device.
    name: str
    # The UUIDs of GPUs, or of one MIG device, in the order of their ordinals.
    devices: tuple[str, ...]
    # Without it, MPS serves the clients of one user at a time, and those of others wait.
    multi_user: bool = False
    # What every client gets at most, from 1 to 100.
    active_thread_percentage: int = MOST_PERCENT
    # What every client gets at most of each device, by ordinal; 0 or a missing value is no limit.
    pinned_memory_mib: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class MpsState:
    """Whether a daemon serves with its limits set, and the reason if not."""

    name: str
    running: bool
    message: str = ""


@dataclass(frozen=True, slots=True)
class MpsStates:
    """All daemons of the supervisor, as they were at ``told_ns`` (CLOCK_MONOTONIC)."""

    daemons: tuple[MpsState, ...]
    told_ns: int


def checked_name(name: str) -> str:
    """The name itself if it may become the name of a folder; raises ClaimRefused."""
    if not _NAME.fullmatch(name):
        raise ClaimRefused(f"{name[:64]!r} is not a name of an MPS daemon", "give the name of a device")
    return name


def checked_daemon(daemon: MpsDaemon) -> MpsDaemon:
    """The daemon itself if it can be run; raises ClaimRefused."""
    checked_name(daemon.name)
    devices, pinned = daemon.devices, daemon.pinned_memory_mib
    if not 0 < len(devices) <= MOST_DEVICES or len(set(devices)) != len(devices):
        raise _refused(daemon, f"must serve 1 to {MOST_DEVICES} different devices, not {len(devices)}")
    for device in devices:
        if not _DEVICE.fullmatch(device):
            raise _refused(
                daemon, f"cannot serve {device[:64]!r}, which is not the UUID of a GPU or a MIG device"
            )
    if len(devices) > 1 and any(device.startswith("MIG-") for device in devices):
        raise _refused(daemon, "must serve a single MIG device, since CUDA sees no more than one")
    if not 1 <= daemon.active_thread_percentage <= MOST_PERCENT:
        raise _refused(daemon, f"must give clients 1 to 100 percent, not {daemon.active_thread_percentage}")
    if len(pinned) > len(devices) or not all(0 <= mib <= MOST_PINNED_MIB for mib in pinned):
        raise _refused(daemon, f"has {len(devices)} devices, and their limits cannot be {list(pinned)} MiB")
    return daemon


def _refused(daemon: MpsDaemon, why: str) -> ClaimRefused:
    return ClaimRefused(f"the MPS daemon {daemon.name} {why}", "change the configuration of the share")


def write_spec(daemon: MpsDaemon) -> bytes:
    """The daemon as the content of its file."""
    return json.dumps(asdict(daemon), indent=1).encode() + b"\n"


def read_spec(data: bytes) -> MpsDaemon:
    """The daemon from the content of its file; raises ValueError or ClaimRefused if it is not one."""
    document: Any = decode_json(data)
    try:
        devices, pinned = document.pop("devices"), document.pop("pinned_memory_mib")
        daemon = MpsDaemon(devices=tuple(devices), pinned_memory_mib=tuple(pinned), **document)
        return checked_daemon(daemon)
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"not a daemon: {error}") from error
