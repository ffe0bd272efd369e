"""Prepares or unprepares one claim on a fake node's disk, and ends before its n-th change of that disk."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from driver.inventory import Discovery
from driver.names import DRIVER_NAME, unshared_name
from driver.nvml.deadline import Guard
from driver.nvml.fake_machine import FakeMachine
from kubeletplugin.cdi import HostPaths
from kubeletplugin.cdi_store import CdiStore
from kubeletplugin.claim_call import Call, ClaimRef
from kubeletplugin.claim_partitions import ClaimPartitions
from kubeletplugin.claim_shares import ClaimShares
from kubeletplugin.driver_files import DriverRoot
from kubeletplugin.gpu_spec import GpuSpecs
from kubeletplugin.journal import Journal
from kubeletplugin.locks import KeyedLocks, Peers
from kubeletplugin.mps_edits import MpsFolders
from kubeletplugin.partitions import Partitions
from kubeletplugin.preparer import Identity, Ports, Preparer, boottime_ns
from kubeletplugin.sharing import Sharing
from kubeletplugin.sharing_records import SharingRecords
from tests.kubeletplugin.fake_node import MPS_FOLDER, POOL, SHM_FOLDER
from tests.kubeletplugin.fake_sharing import FakeMps, FakeTimeSlices

ENDED = 70
SHARE_ID = "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"


def main(folder: Path, operation: str, uid: str, end_before: int, named: str, device: str) -> None:
    """Wire the plugin as tests/kubeletplugin/fake_node.py does, then count the changes of the disk."""
    machine = FakeMachine.open(named)
    result: dict[str, Any] = {"request": "gpu-0", "driver": DRIVER_NAME, "pool": POOL, "device": device}
    if unshared_name(device) != device:
        result |= {"shareID": SHARE_ID, "consumedCapacity": {"shares": "1", "memory": "0"}}
    claim = {
        "metadata": {"namespace": "team", "name": "train", "uid": uid},
        "status": {"allocation": {"devices": {"results": [result]}}},
    }
    driver = folder / "driver"
    discovery = Discovery(machine.nvml(), folder / "sys", Guard(5.0))
    journal = Journal(folder / "journal", Peers(folder / "peers").may_have_written)
    mps = FakeMps(folder / "mps.json")
    mps.reload()
    sharing = Sharing(
        discovery,
        FakeTimeSlices(machine, driver),
        mps,
        SharingRecords(folder / "sharing", "boot-1"),
        "boot-1",
        lambda _: None,
    )
    preparer = Preparer(
        Identity(DRIVER_NAME, POOL, "boot-1"),
        journal,
        KeyedLocks(folder / "locks"),
        GpuSpecs(
            discovery,
            folder / "sys",
            DriverRoot(driver),
            HostPaths(driver, driver),
            MpsFolders(MPS_FOLDER, SHM_FOLDER),
        ),
        ClaimPartitions(Partitions(discovery), journal, "boot-1", lambda _: None),
        ClaimShares(sharing, discovery, journal, "boot-1", lambda _: None),
        CdiStore(folder / "cdi"),
        Ports(
            lambda *_: claim,
            lambda _: None,
            lambda *_: None,
            lambda *_: None,
            lambda _: None,
            lambda _: None,
        ),
    )
    _end_before(end_before, tuple(str(folder / name) for name in ("journal", "cdi", "sharing")))
    ref, call = ClaimRef("team", "train", uid), Call(boottime_ns(), lambda: True, lambda: 45.0)
    if operation == "prepare":
        preparer.prepare(ref, call)
    else:
        preparer.unprepare(ref, call)
    os._exit(0)


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


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5], sys.argv[6])
