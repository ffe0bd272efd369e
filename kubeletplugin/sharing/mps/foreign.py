"""Finds the MPS control daemons of others on the node, which would serve the same GPUs as ours.

Two daemons cannot both have a GPU in compute mode EXCLUSIVE_PROCESS: the clients of one of them would fail. A
process that only looks like a daemon must not keep ours from starting, so those without rights over the node
are passed over (kubeletplugin.sharing.mps.processes).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from driver.errors import ClaimBlocked
from kubeletplugin.sharing.mps.control import CONTROL
from kubeletplugin.sharing.mps.processes import PIPE_DIRECTORY, VISIBLE_DEVICES, daemons, mps_processes

if TYPE_CHECKING:
    from pathlib import Path

    from kubeletplugin.kubelet.wire.mps_daemon import MpsDaemon
    from kubeletplugin.sharing.mps.processes import MpsProcess

_UUID = re.compile(r"^GPU UUID:\s*(\S+)", re.MULTILINE)
_MINOR = re.compile(r"^Device Minor:\s*(\d+)", re.MULTILINE)


def refuse_foreign_daemon(daemon: MpsDaemon, pipes: Path, proc: Path) -> None:
    """Make sure that no other daemon on the node serves, or may serve, a device of this one.

    Raises ClaimBlocked, naming the other one and how to end it.
    """
    others = [process for process in mps_processes(proc) if process.is_privileged]
    for other in daemons(others):
        is_this = other.is_our_daemon and other.pipes == str(pipes)
        how = None if is_this else _serves(other, daemon.devices)
        # Whoever names the GPU by its UUID means it. A daemon in a container sees fewer GPUs than there are.
        if how is not None and (how.startswith("serves GPU-") or _reaches(other, daemon.devices, proc)):
            raise ClaimBlocked(
                f"another MPS control daemon {how}: process {other.pid}, pipe directory {other.pipes}",
                f"end it (echo quit | {PIPE_DIRECTORY}={other.pipes} {CONTROL}), or keep the GPU from it",
            )


def _serves(other: MpsProcess, devices: tuple[str, ...]) -> str | None:
    """How another daemon serves one of the devices, or None when it serves others alone."""
    if other.environment is None:
        return "may serve the same GPU, its environment cannot be read"
    if other.devices is None:
        return "serves all GPUs that it sees"
    for word in other.devices:
        named = next((device for device in devices if device.startswith(word)), None)
        if named is not None and word.startswith(("GPU-", "MIG-")):  # CUDA takes the beginning of a UUID
            return f"serves {named}"
        if word.isdigit():
            return f"may serve the same GPU, its {VISIBLE_DEVICES} is {','.join(other.devices)}"
    return None


def _reaches(other: MpsProcess, devices: tuple[str, ...], proc: Path) -> bool:
    """Whether a device node of one of the devices is where the other process looks; yes when unknown."""
    minors = _minors(proc)
    if not all(device in minors for device in devices):
        return True
    nodes = (proc / str(other.pid) / "root" / "dev" / f"nvidia{minors[device]}" for device in devices)
    try:
        return any(node.exists() for node in nodes)
    except OSError:
        return True


def _minors(proc: Path) -> dict[str, int]:
    """The minor numbers of the GPUs by UUID, as the NVIDIA driver tells; empty where it does not."""
    minors = {}
    for file in (proc / "driver" / "nvidia" / "gpus").glob("*/information"):
        text = file.read_text(errors="replace")
        uuid, minor = _UUID.search(text), _MINOR.search(text)
        if uuid and minor:
            minors[uuid[1]] = int(minor[1])
    return minors
