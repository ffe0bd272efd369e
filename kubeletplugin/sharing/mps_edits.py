"""The CDI edits that make a container a client of an MPS control daemon, within its share's limits: pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kubeletplugin.claims.cdi.memory_hook import MemoryHook, mps_hook
from kubeletplugin.claims.cdi.spec import CdiMount, Edits
from kubeletplugin.claims.journal.entry import HeldDevice, ShareRecord
from kubeletplugin.devices.host.driver_files import MPS_PROGRAMS

PIPES_IN_CONTAINER = "/tmp/nvidia-mps"  # noqa: S108 - where CUDA looks by itself, too
_ALL_THREADS = 100
SHM_IN_CONTAINER = "/dev/shm"  # noqa: S108 - the kernel's place for it


@dataclass(frozen=True, slots=True)
class MpsFolders:
    """The folders on the host that daemons and their clients share; ``daemons`` is the supervisor's."""

    daemons: Path

    def clients(self, group: str) -> Path:
        """The pipe directory of clients. It has only the one socket of the daemon that clients need."""
        return self.daemons / group / "clients"

    def shm(self, group: str) -> Path:
        """The /dev/shm of the group's daemon."""
        return self.daemons / group / "shm"


def mps_edits(
    held: HeldDevice,
    devices: Sequence[HeldDevice],
    folders: MpsFolders,
    request: str = "",
    hook: MemoryHook | None = None,
) -> Edits:
    """The variables, mounts and hook of ``held``, one of the claim's ``devices``; none without MPS.

    For ``request`` see ``mps_hook``.
    """
    share = held.share
    if share is None or share.strategy != "MPS":
        return Edits()
    # A client exchanges data with the daemon through both folders, so it needs the same /dev/shm.
    mounts = (
        CdiMount(str(folders.clients(share.group)), PIPES_IN_CONTAINER, is_writable=False),
        CdiMount(str(folders.shm(share.group)), SHM_IN_CONTAINER),
    )
    variables = [f"CUDA_MPS_PIPE_DIRECTORY={PIPES_IN_CONTAINER}"]
    if share.is_part:
        # All devices of one request reach the same container, so its shares of one device count together.
        together = [
            one.share
            for one in devices
            if one.share is not None and (one.request, one.device) == (held.request, held.device)
        ]
        percentage, pinned_mib = limits_together(together)
        # Device 0: a client of a share sees the one device that its daemon serves.
        pinned = [pinned_mib]
    else:
        percentage = share.active_thread_percentage
        served = {
            one.uuid: one.share.pinned_memory_mib
            for one in devices
            if one.share is not None and one.share.group == share.group
        }
        # The daemon numbers its devices in the order of their UUIDs.
        pinned = [served[uuid] for uuid in sorted(served)]
    # The daemon's own limits are those of the largest share, and on a partition do not hold the memory. The
    # environment of a client can lower them for this client, never raise them.
    if share.is_part or percentage < _ALL_THREADS:
        variables.append(f"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE={percentage}")
    if any(pinned):
        text = ",".join(f"{ordinal}={mib}M" for ordinal, mib in enumerate(pinned) if mib)
        variables.append(f"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT={text}")
    # With nvidia-cuda-mps-control a client could end the daemon for all other clients.
    hooks = () if hook is None else (mps_hook(request, mounts[0].host_path, hook),)
    return Edits(
        variables=tuple(variables), mounts=mounts, without_programs=frozenset(MPS_PROGRAMS), hooks=hooks
    )


def limits_together(shares: Sequence[ShareRecord]) -> tuple[int, int]:
    """The limits of a client with all these shares: percent of threads, MiB of memory (0: no limit)."""
    percentage = min(_ALL_THREADS, sum(share.active_thread_percentage for share in shares))
    pinned = [share.pinned_memory_mib for share in shares]
    return percentage, 0 if 0 in pinned else sum(pinned)
