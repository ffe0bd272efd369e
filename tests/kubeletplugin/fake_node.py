"""A node of fake GPUs with the plugin's parts on it, built as the process builds them, with other ports.

There is neither gRPC nor an API server, and no thread of the process runs.

The folder outlives ``restart``, as the disk outlives the process. A crash is an exception that no
handler of the product catches, raised after a step that the test names.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kubeletplugin.assembly import Folders, assemble
from kubeletplugin.claims.journal.entry import Identity
from kubeletplugin.claims.ports import NO_TIMING, Cluster, Listeners
from kubeletplugin.devices.hardware import Hardware, pretended_users
from kubeletplugin.devices.host.kernel import Kernel
from kubeletplugin.devices.vfio.binder import GroupBinder
from kubeletplugin.devices.vfio.function_files import Deadlines, Users
from kubeletplugin.kubelet.wire.claim_call import Call
from kubeletplugin.process_inputs import Intervals
from kubeletplugin.sharing.memory.cgroups import Cgroups
from kubeletplugin.sharing.shares import MpsFolders
from tests.clusters import Object, boot_folder
from tests.gpus import (
    DRIVER_NAME,
    ClaimRefused,
    Discovery,
    DriverError,
    FakeKernel,
    FakeMachine,
    Guard,
    NodeState,
    Nvml,
    PciAddress,
    gpu_device_name,
    partition_device_name,
    pool_name,
)
from tests.kubeletplugin.fake_imex import FakeImex
from tests.kubeletplugin.fake_roots import empty_sysfs, laid_driver, lay_driver_root, lay_sysfs
from tests.kubeletplugin.fake_sharing import FakeGpuReset, FakeMps, FakeTimeSlices
from tests.kubeletplugin.shown_node import ShownNode
from tests.kubeletplugin.stream_client import StreamClient
from tests.plugin import (
    NO_HOOK,
    ClaimRef,
    ContainerName,
    Controllers,
    DeviceHealth,
    Entry,
    HealthBoard,
    Parts,
    Peers,
    PreparedDevice,
    PublishedDevices,
    Recovered,
    boottime_ns,
)

NODE = "node-a"
BOOT = "8f2a4f1e-1d5c-4b6e-9a43-0c2d5e6f7a8b"
SHORT = Deadlines(0.3, 0.3, 0.3, 0.3)
POOL = pool_name(NODE)
MPS_FOLDER = Path("/run/gpu.nvidia.com/mps")
STEPS_OF_MAKING = (
    "begun",
    "gpu instance",
    "compute instance",
    "made",
    "committed",
    "metadata written",
    "spec written",
)
STEPS_OF_DESTROYING = ("spec removed", "releasing", "destroyed", "released")
"""The same of a claim for a partition, the first on its GPU."""
STEPS_OF_SHARED_MAKING = (*STEPS_OF_MAKING[:4], "sharing noted", "daemon")
"""The steps before the spec of a claim for a share of a partition, the first on its GPU."""


class Crash(BaseException):
    """The process ends here."""


class NoKernel:
    """The kernel of a node on which nothing may be bound."""

    def write(self, path: Path, text: str, deadline_seconds: float) -> None:
        """Refuse."""
        raise AssertionError(path, text, deadline_seconds)

    def read(self, path: Path, deadline_seconds: float) -> str:
        """Refuse."""
        raise AssertionError(path, deadline_seconds)

    def load_module(self, name: str, deadline_seconds: float) -> None:
        """Refuse."""
        raise AssertionError(name, deadline_seconds)


PciParts = tuple[Kernel, GroupBinder, Users, Controllers]


def pci_parts(
    kernel: Kernel,
    sysfs: Path,
    users: Users = lambda _function: (),
    controllers: Controllers | None = None,
    deadlines: Deadlines = SHORT,
) -> PciParts:
    """What devices for virtual machines need of a node."""
    binder = GroupBinder(kernel, sysfs, lambda: (), users, deadlines)
    return kernel, binder, users, controllers or Controllers(lambda _number: None)


class FakePublished(PublishedDevices):
    """What the slices of a node say, as the test says it."""

    def __init__(self, node: FakeNode) -> None:
        super().__init__()
        self._node = node

    def uuid_of(self, device: str) -> str | None:
        """As the test says."""
        return self._node.published.get(device)

    def memory_of(self, device: str) -> int | None:
        """As the test says."""
        return self._node.published_memory.get(device)

    def clique(self) -> str | None:
        """As the test says."""
        return self._node.clique

    def attributes_of(self, device: str) -> Object:
        """As the test says."""
        return self._node.published_attributes.get(device, {})


class FakeNode(ShownNode):
    """The machine, the API's claims, what containers use, and the plugin that runs right now.

    ``machine`` is a shipped machine's name; with ``on_disk`` its state outlives the process as well, and
    another process can have the node by its folder.
    With ``binds`` its PCI functions can change drivers.
    """

    def __init__(
        self, folder: Path, machine: str = "a30-quad", *, on_disk: bool = False, binds: bool = False
    ) -> None:
        self.folder = folder
        self.machine = FakeMachine.open(f"{machine}@{folder / 'machine.json'}" if on_disk else machine)
        self.cgroups = self.machine.pretend_cgroups(folder / "cgroups")
        self.listed_containers: dict[str, frozenset[ContainerName]] | DriverError = {}
        self.listing_failures: list[DriverError] = []
        self.gpus: tuple[PciAddress, ...] = tuple(sorted(self.machine.state.gpus))
        self.cdi = folder / "cdi"
        is_new = not self.cdi.exists()
        self.driver_root, self.sysfs = folder / "driver", folder / "sys"
        if is_new:
            lay_driver_root(self.driver_root, self.machine)
            lay_sysfs(folder, self.machine)
            self.cdi.mkdir()
        self.controllers = Controllers(lambda _number: None)
        self._pci: PciParts | None = None
        if binds:
            empty_sysfs(self.sysfs)
            self.kernel = FakeKernel(self.sysfs, self.machine)
            users = pretended_users(self.machine)
            self._pci = pci_parts(self.kernel, self.sysfs, users, self.controllers)
        self.api: dict[tuple[str, str], Object] = {}
        self.api_failures: list[DriverError] = []
        self.before_get: Callable[[], None] = lambda: None
        self.published: dict[str, str] = {}
        self.in_use: set[str] = set()
        self.given_by_device_plugins: set[str] | DriverError = set()
        self.complaints: list[str] = []
        self.notes: list[str] = []
        self.published_memory: dict[str, int] = {}
        self.published_attributes: dict[str, Object] = {}
        self.mps = FakeMps(folder / "mps.json" if on_disk else None)
        self.time_slices = FakeTimeSlices(self.machine, self.driver_root)
        self.gpu_reset = FakeGpuReset(self.machine, self.driver_root)
        self.board = HealthBoard()
        self.hook = NO_HOOK
        self.memory_hook: Path | None = None
        self.imex = FakeImex()
        self.clique: str | None = None
        self.boot_id = BOOT
        self.driver_generation = ""
        self.on_prepared: Callable[[Entry], None] = lambda _: None
        self.crash_after: str | None = None
        self.steps: list[str] = []
        self.on_complaint: Callable[[str], None] = lambda _: None
        self.on_step: Callable[[str], None] = lambda _: None
        self.on_state: Callable[[NodeState], None] = lambda _: None
        self.patience_seconds = 0.0
        self.registered_ns = 0
        self.guard_seconds = 5.0
        self.timing = NO_TIMING
        self._peers: Peers | None = None
        self._guard: Guard | None = None
        self.recovered = self.restart()

    def restart(self) -> Recovered:
        """End the plugin, if one runs, and start it anew on the same disk."""
        self.stop()
        self.mps.reload()
        self._guard = Guard(self.guard_seconds)
        self.discovery = self.discovering(self._guard)
        parts = self.parts = self.instance()
        self._peers = parts.peers
        self.journal, self.store, self.preparer = parts.journal, parts.store, parts.preparer
        self.reconciler, self.sharing_reconciler, self.fabric = (
            parts.reconciler,
            parts.sharing_reconciler,
            parts.fabric,
        )
        self.kinds, self.hooks = parts.kinds, parts.hooks
        self.watch, self.health, self.virtual = parts.watch, parts.health, parts.virtual
        self.memory, self.healer = parts.memory, parts.healer
        return parts.recovered

    def discovering(self, guard: Guard) -> Discovery:
        """How an instance looks at the GPUs."""
        return Discovery(self.nvml(), self.sysfs, guard)

    def nvml(self) -> Nvml:
        """NVML as the plugin has it."""
        return self.machine.nvml()

    def control_groups(self) -> Cgroups:
        """The control groups of containers as the plugin has them."""
        return self.cgroups

    def instance(self) -> Parts:
        """The parts of an instance on this node, as another one in a rolling update; it lives until its
        ``peers`` are closed.
        """
        return assemble(
            self.identity(DRIVER_NAME, POOL),
            Hardware(
                self.discovery,
                self.folder / "sys",
                laid_driver(self.folder / "driver"),
                *(self.time_slices, self.mps, MpsFolders(MPS_FOLDER), self.machine.fabric.manager()),
                *(self._pci or pci_parts(NoKernel(), self.folder / "sys")),
                self.imex,
                *(self.hook, self.memory_hook, self.control_groups(), self.gpu_reset),
            ),
            self.cluster(),
            Folders(self.folder, self.cdi),
            Listeners(self._prepared, self._heard, self.board, self._step, self.timing),
            Intervals(patience_seconds=self.patience_seconds, state_again_seconds=0.05),
        )

    def identity(self, driver: str, pool: str) -> Identity:
        """A DRA driver of the plugin."""
        return Identity(driver, pool, self.boot_id, lambda: self.driver_generation)

    def cluster(self) -> Cluster:
        """The API server and the kubelet as the plugin has them."""
        return Cluster(
            self._get_claim,
            FakePublished(self),
            lambda: frozenset(self.in_use),
            self._given_by_device_plugins,
            self._complain,
            self._note,
            self._list_containers,
        )

    def leave(self) -> None:
        """Let other instances know that this one is gone; the GPUs can still be asked."""
        if self._peers is not None:
            self._peers.close()
            self._peers = None

    def stop(self) -> None:
        """End the plugin."""
        self.leave()
        if self._guard is not None:
            self._guard.close()
            self._guard = None

    def reboot(self) -> None:
        """Restart the machine: another boot id, no partitions, and an empty CDI folder, which is on tmpfs."""
        self.machine.reboot()
        self.boot_id = str(uuid.uuid4())
        self.mps.running.clear()
        shutil.rmtree(self.cdi)
        self.cdi.mkdir()
        self.in_use.clear()
        self.restart()

    @property
    def boot_files(self) -> Path:
        """The folder of what a reboot ends."""
        return boot_folder(self.folder, self.boot_id)

    def claim(self, name: str, *gpus: int, uid: str = "", admin: bool = False, **extra: Any) -> ClaimRef:
        """Put an allocated claim with these GPUs (by position on the bus) into the API."""
        devices = [gpu_device_name(self.gpus[gpu]) for gpu in gpus]
        return self.claim_devices(name, *devices, uid=uid, admin=admin, **extra)

    def partition(self, gpu: int, profile: str, start: int) -> str:
        """The device name of a partition of a GPU (by position on the bus)."""
        return partition_device_name(self.gpus[gpu], profile, start)

    def part(self, start: int = 6, gpu: int = 0) -> str:
        """The device name of a 1g.10gb that begins at a memory slice."""
        return self.partition(gpu, "1g.10gb", start)

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

    def prepared(self, name: str, *gpus: int, **extra: Any) -> ClaimRef:
        """A claim for these GPUs that is prepared."""
        return self._prepare_new(self.claim(name, *gpus, **extra))

    def prepared_devices(self, name: str, *devices: str, **extra: Any) -> ClaimRef:
        """The same for devices."""
        return self._prepare_new(self.claim_devices(name, *devices, **extra))

    def prepared_shares(self, name: str, *devices: str, **extra: Any) -> ClaimRef:
        """The same for shares."""
        return self._prepare_new(self.claim_shares(name, *devices, **extra))

    def _prepare_new(self, ref: ClaimRef) -> ClaimRef:
        self.prepare(ref)
        return ref

    def call(self, started_ns: int | None = None, *, active: bool = True) -> Call:
        """A call of the kubelet that came in now, or then."""
        return Call(started_ns or boottime_ns(), lambda: active, lambda: 45.0, self.registered_ns)

    def register(self) -> None:
        """What a kubelet does that has just begun to run."""
        self.registered_ns = boottime_ns()

    def prepare(self, ref: ClaimRef, call: Call | None = None) -> tuple[PreparedDevice, ...]:
        """What the kubelet does."""
        return self.preparer.prepare(ref, call or self.call())

    def unprepare(self, ref: ClaimRef, call: Call | None = None) -> DriverError | None:
        """What the kubelet does when the claim's last pod has ended; what stays behind for now.

        Wherever it crashes: a runtime can start no container with devices that are being taken back.
        """
        try:
            return self.preparer.unprepare(ref, call or self.call())
        except Crash as crash:
            assert not self.spec_path(ref).exists(), f"the CDI spec goes first, and is there after {crash}"
            raise

    def use(self, *devices: PreparedDevice) -> None:
        """Have the kubelet list these devices, and no others, as those of a container."""
        self.in_use = {name.partition("=")[2] for one in devices for name in one.cdi_device_ids}

    def told_health(self) -> dict[str, DeviceHealth]:
        """What the kubelet hears after one look, by device."""
        self.health.run_once()
        return {one.device: one for one in next(iter(self.board.follow(StreamClient(), 10.0)))}

    def _given_by_device_plugins(self) -> frozenset[str]:
        if isinstance(self.given_by_device_plugins, DriverError):
            raise self.given_by_device_plugins
        return frozenset(self.given_by_device_plugins)

    def _list_containers(self) -> dict[str, frozenset[ContainerName]]:
        if self.listing_failures:
            raise self.listing_failures.pop(0)
        if isinstance(self.listed_containers, DriverError):
            raise self.listed_containers
        return self.listed_containers

    def _get_claim(self, namespace: str, name: str) -> Object:
        self.before_get()
        if self.api_failures:
            raise self.api_failures.pop(0)
        try:
            return self.api[namespace, name]
        except KeyError:
            raise ClaimRefused(f"claim {namespace}/{name} does not exist", "create it") from None

    def _complain(self, claim: ClaimRef, error: DriverError) -> None:
        self.complaints.append(f"{claim}: {error}")
        self.on_complaint(self.complaints[-1])

    def _note(self, claim: ClaimRef, text: str) -> None:
        self.notes.append(f"{claim}: {text}")

    def _prepared(self, entry: Entry) -> None:
        self.on_prepared(entry)

    def _heard(self, state: NodeState) -> None:
        self.on_state(state)

    def _step(self, name: str) -> None:
        self.steps.append(name)
        self.on_step(name)
        if name == self.crash_after:
            self.crash_after = None
            raise Crash(name)
