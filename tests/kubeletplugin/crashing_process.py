"""Prepares or unprepares one claim on a fake node's disk, and ends before its n-th change of that disk.

As a program it forks such a process for each line that it reads, so that only the program itself has to be
started and to import what they need; it answers each line with how its process ended.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from driver.devices.names import DRIVER_NAME, unshared_name
from driver.hardware.inventory import Discovery
from driver.nvml.deadline import Guard
from fakegpu.machine.fake_machine import FakeMachine
from fakegpu.sysfs.kernel import FakeKernel
from kubeletplugin.assembly import Folders, assemble
from kubeletplugin.claims.journal.entry import Identity, boottime_ns
from kubeletplugin.claims.ports import Cluster, Listeners
from kubeletplugin.devices.hardware import pretended_users
from kubeletplugin.kubelet.wire.claim_call import Call, ClaimRef
from kubeletplugin.kubelet.wire.health_board import HealthBoard
from kubeletplugin.process_inputs import Intervals
from kubeletplugin.reports.published import PublishedDevices
from tests.kubeletplugin.fake_node import BOOT, POOL, PciParts, fake_hardware, pci_parts
from tests.kubeletplugin.fake_sharing import FakeMps, FakeTimeSlices

ENDED = 70
SHARE_ID = "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"
LIMITS = {"memoryLimits": {"string": "cgroup"}}
"""What the slices say of every device, where the node has the hook for memory."""
_LONGEST_SECONDS = 60


def work(folder: Path, operation: str, uid: str, end_before: int, named: str, device: str) -> None:
    """Build the plugin on the disk of a node, then do the work and count the changes of the disk."""
    machine = FakeMachine.open(named)
    result: dict[str, Any] = {"request": "gpu-0", "driver": DRIVER_NAME, "pool": POOL, "device": device}
    if unshared_name(device) != device:
        result |= {"shareID": SHARE_ID, "consumedCapacity": {"shares": "1", "memory": "0"}}
    claim = {
        "metadata": {"namespace": "team", "name": "train", "uid": uid},
        "status": {"allocation": {"devices": {"results": [result]}}},
    }
    hook = folder / "gpu-memory-hook"
    discovery = Discovery(machine.nvml(), folder / "sys", Guard(5.0))
    mps = FakeMps(folder / "mps.json")
    mps.reload()
    published = PublishedDevices()
    if hook.exists():
        published.take("ADDED", {"spec": {"devices": [{"name": device, "attributes": LIMITS}]}})
    preparer = assemble(
        Identity(DRIVER_NAME, POOL, BOOT),
        fake_hardware(
            discovery,
            folder,
            FakeTimeSlices(machine, folder / "driver"),
            mps,
            machine.fabric.manager(),
            pci=_pci(folder / "sys", machine),
            cgroups=machine.pretend_cgroups(folder / "cgroups"),
            memory_hook=hook if hook.exists() else None,
        ),
        Cluster(
            lambda *_: claim,
            published,
            frozenset,
            frozenset,
            lambda *_: None,
            lambda *_: None,
        ),
        Folders(folder, folder / "cdi"),
        Listeners(lambda _: None, lambda _: None, HealthBoard()),
        Intervals(),
    ).preparer
    _end_before(end_before, (str(folder / BOOT), str(folder / "cdi")))
    ref, call = ClaimRef("team", "train", uid), Call(boottime_ns(), lambda: True, lambda: 45.0)
    if operation == "prepare":
        preparer.prepare(ref, call)
    else:
        preparer.unprepare(ref, call)


def _pci(sysfs: Path, machine: FakeMachine) -> PciParts | None:
    """What binds functions, where the node's sysfs is its own."""
    if sysfs.is_symlink():
        return None
    return pci_parts(FakeKernel(sysfs, machine), sysfs, pretended_users(machine))


def _end_before(count: int, folders: tuple[str, ...]) -> None:
    left = count

    def audit(event: str, args: tuple[Any, ...]) -> None:
        nonlocal left
        writes = event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR)
        if not (writes or event in ("os.rename", "os.remove")):
            return
        if isinstance(args[0], int) or not os.fspath(args[0]).startswith(folders):
            return
        left -= 1
        if left == 0:
            os._exit(ENDED)

    sys.addaudithook(audit)


def serve() -> None:
    """Fork a process for each line, and say how it ended: its exit code, or minus the signal's number.

    This process stays without threads, so that what it forks is whole.
    """
    for line in sys.stdin:
        forked = os.fork()
        if forked == 0:
            signal.alarm(_LONGEST_SECONDS)  # nobody waits for one that hangs
            folder, operation, uid, end_before, named, device = json.loads(line)
            work(Path(folder), operation, uid, end_before, named, device)
            os._exit(0)
        _, status = os.waitpid(forked, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)  # noqa: T201 - the answer


if __name__ == "__main__":
    serve()
