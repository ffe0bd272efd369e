"""A node of fake GPUs with the plugin's parts wired as the process wires them, without gRPC and API server.

The folder outlives ``restart``, as the disk outlives the process. A crash is an exception that no
handler of the product catches, raised after a step that the test names.
"""

from __future__ import annotations

import queue
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from driver.errors import ClaimRefused, DriverError
from driver.inventory import Discovery
from driver.model import PciAddress
from driver.names import DRIVER_NAME, cdi_spec_file_name, gpu_device_name, partition_device_name, pool_name
from driver.nvml.deadline import Guard
from driver.nvml.driver_root import build_driver_root, build_sysfs
from driver.nvml.fake_machine import FakeMachine
from kubeletplugin.cdi import HostPaths
from kubeletplugin.cdi_store import CdiStore
from kubeletplugin.claim_call import Call, ClaimRef, PreparedDevice
from kubeletplugin.claim_partitions import ClaimPartitions
from kubeletplugin.claim_shares import ClaimShares
from kubeletplugin.driver_files import DriverRoot
from kubeletplugin.gpu_spec import GpuSpecs
from kubeletplugin.journal import Journal
from kubeletplugin.locks import KeyedLocks, Peers
from kubeletplugin.mps_client import MpsState
from kubeletplugin.mps_edits import MpsFolders
from kubeletplugin.partitions import Partitions
from kubeletplugin.preparer import Identity, Ports, Preparer, boottime_ns
from kubeletplugin.reconciler import Reconciler
from kubeletplugin.recovery import Recovered, recover
from kubeletplugin.sharing import Sharing
from kubeletplugin.sharing_keeper import SharingKeeper
from kubeletplugin.sharing_records import SharingRecords
from tests.kubeletplugin.fake_sharing import FakeMps, FakeTimeSlices

NODE = "node-a"
POOL = pool_name(NODE)
MPS_FOLDER, SHM_FOLDER = Path("/run/gpu.nvidia.com/mps"), Path("/dev/shm")
STEPS_OF_PREPARE = ("begun", "spec written", "committed")
STEPS_OF_UNPREPARE = ("spec removed", "released")
STEPS_OF_MAKING = ("mode", "gpu instance", "compute instance", "made", "spec written", "committed")
STEPS_OF_DESTROYING = ("spec removed", "releasing", "destroyed", "released")
"""The same of a claim for a partition, the first on its GPU."""
STEPS_OF_SHARED_MAKING = ("begun", *STEPS_OF_MAKING[:4], "sharing noted", "daemon")
"""The steps before the spec of a claim for a share of a partition, the first on its GPU."""


class Crash(BaseException):
    """The process ends here."""


class FakeNode:
    """The machine, the API's claims, what containers use, and the plugin that runs right now.

    ``machine`` is a shipped machine's name; with ``on_disk`` its state outlives the process as well.
    """

    def __init__(self, folder: Path, machine: str = "a30-quad", *, on_disk: bool = False) -> None:
        self.folder = folder
        self.machine = FakeMachine.open(f"{machine}@{folder / 'machine.json'}" if on_disk else machine)
        self.gpus: tuple[PciAddress, ...] = tuple(sorted(self.machine.state.gpus))
        self.cdi = folder / "cdi"
        self.driver_root = build_driver_root(folder / "driver", self.machine)
        self.sysfs = build_sysfs(folder, self.machine)
        self.cdi.mkdir()
        self.api: dict[tuple[str, str], dict[str, Any]] = {}
        self.api_failures: list[DriverError] = []
        self.before_get: Callable[[], None] = lambda: None
        self.published: dict[str, str] = {}
        self.in_use: set[str] = set()
        self.complaints: list[str] = []
        self.notes: list[str] = []
        self.left_behind: list[str] = []
        self.published_memory: dict[str, int] = {}
        self.mps = FakeMps(folder / "mps.json" if on_disk else None)
        self.time_slices = FakeTimeSlices(self.machine, self.driver_root)
        self.daemon_states: queue.SimpleQueue[tuple[MpsState, ...] | None] = queue.SimpleQueue()
        self.boot_id = "boot-1"
        self.crash_after: str | None = None
        self.steps: list[str] = []
        self.on_step: Callable[[str], None] = lambda _: None
        self.patience_seconds = 0.0
        self.guard_seconds = 5.0
        self._peers: Peers | None = None
        self._guard: Guard | None = None
        self.recovered = self.restart()

    def restart(self) -> Recovered:
        """End the plugin, if one runs, and start it anew on the same disk."""
        self.stop()
        self.mps.reload()
        self._guard = Guard(self.guard_seconds)
        self._peers = Peers(self.folder / "peers")
        identity = Identity(DRIVER_NAME, POOL, self.boot_id)
        self.discovery = Discovery(self.machine.nvml(), self.sysfs, self._guard)
        self.journal = Journal(self.folder / "journal", self._peers.may_have_written)
        self.store = CdiStore(self.cdi)
        specs = GpuSpecs(
            self.discovery,
            self.sysfs,
            DriverRoot(self.driver_root),
            HostPaths(self.driver_root, self.driver_root),
            MpsFolders(MPS_FOLDER, SHM_FOLDER),
        )
        locks = KeyedLocks(self.folder / "locks")
        self.sharing = Sharing(
            self.discovery,
            self.time_slices,
            self.mps,
            SharingRecords(self.folder / "sharing", self.boot_id),
            self.boot_id,
            self._step,
        )
        shares = ClaimShares(
            self.sharing, self.discovery, self.journal, self.boot_id, self.published_memory.get
        )
        self.keeper = SharingKeeper(
            self.sharing, shares, self.journal, locks, self.mps, self.daemon_states.put
        )
        self.preparer = Preparer(
            identity,
            self.journal,
            locks,
            specs,
            ClaimPartitions(Partitions(self.discovery), self.journal, self.boot_id, self._step),
            shares,
            self.store,
            Ports(
                self._get_claim,
                self.published.get,
                self._complain,
                self._note,
                self._step,
                self.left_behind.append,
            ),
            self.patience_seconds,
        )
        self.reconciler = Reconciler(
            identity, self.journal, self.preparer, self._get_claim, lambda: frozenset(self.in_use)
        )
        return recover(self.journal, self.store, identity)

    def stop(self) -> None:
        """End the plugin."""
        if self._peers is not None:
            self._peers.close()
            self._peers = None
        if self._guard is not None:
            self._guard.close()
            self._guard = None

    def reboot(self) -> None:
        """Restart the machine: another boot id, no partitions, and an empty CDI folder, which is on tmpfs."""
        self.machine.reboot()
        self.boot_id = f"boot-{uuid.uuid4()}"
        self.mps.running.clear()
        shutil.rmtree(self.cdi)
        self.cdi.mkdir()
        self.in_use.clear()
        self.restart()

    def claim(self, name: str, *gpus: int, uid: str = "", admin: bool = False, **extra: Any) -> ClaimRef:
        """Put an allocated claim with these GPUs (by position on the bus) into the API."""
        devices = [gpu_device_name(self.gpus[gpu]) for gpu in gpus]
        return self.claim_devices(name, *devices, uid=uid, admin=admin, **extra)

    def partition(self, gpu: int, profile: str, start: int) -> str:
        """The device name of a partition of a GPU (by position on the bus)."""
        return partition_device_name(self.gpus[gpu], profile, start)

    def claim_devices(
        self, name: str, *devices: str, uid: str = "", admin: bool = False, **extra: Any
    ) -> ClaimRef:
        """Put a claim that was allocated these devices into the API."""
        ref = ClaimRef("team", name, uid or str(uuid.uuid4()))
        results = [
            {
                "request": f"gpu-{position}",
                "driver": DRIVER_NAME,
                "pool": POOL,
                "device": device,
                **({"adminAccess": True} if admin else {}),
            }
            for position, device in enumerate(devices)
        ]
        self.api[ref.namespace, ref.name] = {
            "metadata": {"namespace": ref.namespace, "name": ref.name, "uid": ref.uid},
            "status": {"allocation": {"devices": {"results": results, **extra}}},
        }
        return ref

    def claim_shares(
        self, name: str, *devices: str, uid: str = "", consumed: Any = None, **extra: Any
    ) -> ClaimRef:
        """Put a claim that was allocated a share of each device into the API, of as much as ``consumed``.

        Devices that stand together with a ``+`` were given to one request.
        """
        together = [device.split("+") for device in devices]
        ref = self.claim_devices(name, *(one for group in together for one in group), uid=uid, **extra)
        results = self.api[ref.namespace, ref.name]["status"]["allocation"]["devices"]["results"]
        requests = [f"gpu-{request}" for request, group in enumerate(together) for _ in group]
        for result, request in zip(results, requests, strict=True):
            result |= {
                "request": request,
                "shareID": str(uuid.uuid4()),
                "consumedCapacity": consumed or {"shares": "1", "memory": "0"},
            }
        return ref

    def call(self, started_ns: int | None = None, *, active: bool = True) -> Call:
        """A call of the kubelet that came in now, or then."""
        return Call(started_ns or boottime_ns(), lambda: active, lambda: 45.0)

    def prepare(self, ref: ClaimRef, call: Call | None = None) -> tuple[PreparedDevice, ...]:
        """What the kubelet does."""
        return self.preparer.prepare(ref, call or self.call())

    def unprepare(self, ref: ClaimRef) -> None:
        """What the kubelet does when the claim's last pod has ended."""
        self.preparer.unprepare(ref, self.call())

    def spec_path(self, ref: ClaimRef) -> Path:
        """Where the claim's CDI spec lies."""
        return self.cdi / cdi_spec_file_name(ref.uid)

    def _get_claim(self, namespace: str, name: str) -> dict[str, Any]:
        self.before_get()
        if self.api_failures:
            raise self.api_failures.pop(0)
        try:
            return self.api[namespace, name]
        except KeyError:
            raise ClaimRefused(f"claim {namespace}/{name} does not exist", "create it") from None

    def _complain(self, claim: ClaimRef, error: DriverError) -> None:
        self.complaints.append(f"{claim}: {error}")

    def _note(self, claim: ClaimRef, text: str) -> None:
        self.notes.append(f"{claim}: {text}")

    def _step(self, name: str) -> None:
        self.steps.append(name)
        self.on_step(name)
        if name == self.crash_after:
            self.crash_after = None
            raise Crash(name)
