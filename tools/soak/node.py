"""The node: its driver, its hardware and its disk, and everything that is done to them."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from driver.devices.names import gpu_device_name
from driver.nvml.health.calls import EccErrors, RemappedRows
from driver.nvml.pci_address import PciAddress
from driver.process.sockets import service_socket_name
from envtest.client import paths
from envtest.client.api import Object
from envtest.client.errors import ApiRefused, ClusterError
from envtest.client.shipped import PACKAGE_ROOT
from envtest.client.waiting import wait_for_list, wait_until
from envtest.cluster import Process
from envtest.real.cluster import RealCluster
from envtest.real.control_plane import API_SERVER
from fakegpu.machine.fake_machine import FakeMachine
from fakegpu.machine.faults import ANY
from gpuctl.demo.driver_node import MPS, DriverNode
from tools.soak.plan import POD_GPUS

RULES = """version: v1
rules:
  - when: gpu.pciBusID in {forms[0]}
    mig: {{dynamic: {{profiles: [1g, 2g, 3g]}}}}
    shared:
      - {{strategy: TimeSlicing, shares: 4}}
      - {{strategy: MPS, shares: 4}}
    passthrough: true
  - {{when: "gpu.pciBusID in {forms[1]}", mig: {{layout: [3g, 2g, 1g, 1g]}}}}
  - {{when: "gpu.pciBusID in {forms[2]}", shared: {{strategy: TimeSlicing, shares: 8}}}}
  - {{when: "gpu.pciBusID in {forms[3]}", shared: {{strategy: MPS, memory: {{step: 4Gi}}}}}}
  - {{when: "gpu.pciBusID in {forms[4]}", offer: whole}}
  - offer: hidden
"""
FORMS = ((0, 2), (2, 3), (3, 4), (4, 5), (5, POD_GPUS))
"""Which GPUs on the bus are offered in which form; NVML's indexes change while a virtual machine has one."""

TYPES = {"gpu", "mig", "shared", "vfio"}
CLASSES = ("mig", "tiers", "vfio", "opt-in/gpu")
DISK = "size=64m"
SECOND_POD_UID = "3c1f8e52-61f5-4b7d-9d07-2f0a5f3f9c11"
ROWS_WELL = RemappedRows(0, 0, pending=False, failed=False)
DRAINED_SECONDS = 120.0
_SIGNALS = {"term": signal.SIGTERM, "kill": signal.SIGKILL}


@contextmanager
def small_disk() -> Iterator[Path]:
    """A file system of its own for the plugin's folder, so that it alone gets full."""
    with TemporaryDirectory(prefix="soak-") as folder:
        subprocess.run(["mount", "-t", "tmpfs", "-o", DISK, "soak", folder], check=True)
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", "--lazy", folder], check=True)


class Node:
    """The first node of a cluster, with eight fake H100. ``disk`` is where the plugin's folder is."""

    def __init__(self, cluster: RealCluster, disk: Path) -> None:
        """Install the driver, start all its processes, and wait until it has published everything."""
        self.cluster, self._disk, self._pod_uid = cluster, disk, ""
        self.driver = DriverNode.install(cluster)
        for name in CLASSES:
            cluster.api.apply(PACKAGE_ROOT / f"deviceclasses/{name}.yaml")
        (disk / "plugin").mkdir(mode=0o750)
        self.driver.data_dir.symlink_to(disk / "plugin")
        self._rules = self.driver.folder / "node-config.yaml"
        self._rules.write_text(
            RULES.format(forms=[[str(pci) for pci in self.gpus[slice(*form)]] for form in FORMS])
        )
        self.driver.start_mps()
        self._start_plugin()
        self._start_controller()
        wait_for_list(cluster.api, paths.resource_slice(), _is_settled)

    @property
    def machine(self) -> FakeMachine:
        """The hardware."""
        return self.driver.machine

    @property
    def gpus(self) -> list[PciAddress]:
        """The GPUs in the order of the bus."""
        return sorted(self.machine.state.gpus)

    @property
    def socket(self) -> Path:
        """Where the plugin serves now."""
        return self.driver.data_dir / service_socket_name(self._pod_uid)

    def processes(self) -> dict[str, Process]:
        """The plugin and the controller."""
        return {
            "kubeletplugin": self._plugin(),
            "controller": self.driver.process("controller"),
        }

    @contextmanager
    def silent_api_server(self) -> Iterator[None]:
        """An API server that answers nothing."""
        server = self.cluster.processes.named(API_SERVER)
        server.send(signal.SIGSTOP)
        try:
            yield
        finally:
            server.send(signal.SIGCONT)

    def wait_unused(self) -> None:
        """Wait until no claim has a device, and every device is offered again."""
        wait_until([], self.cluster.processes, lambda: None if self._taken() else True)
        wait_for_list(self.cluster.api, paths.resource_slice(), _is_settled)

    def renew_processes(self) -> None:
        """Have another plugin and controller, which remember nothing of what was before."""
        for name in ("plugin", "controller"):
            self._restart(name, signal.SIGTERM, 0)

    def held(self) -> dict[str, list[str]]:
        """The PCI addresses of the GPUs of each claim that the journal has devices for, by UID."""
        found = {}
        for file in self.driver.journal_dir.glob("*.json"):
            try:
                entry = json.loads(file.read_text())["entry"]
            except FileNotFoundError:
                continue  # forgotten meanwhile
            if entry["state"] != "released":
                found[entry["uid"]] = [device["pci"] for device in entry["devices"]]
        return found

    def disturb(self, what: str, seconds: float) -> None:
        """Restart something with an outage of so many seconds, or have the disk full for them."""
        name, _, how = what.partition("-")
        if how in _SIGNALS:
            self._restart(name, _SIGNALS[how], seconds)
            return
        done: Mapping[str, Callable[[], None]] = {
            "hand-over": self._hand_over,
            "rolling-update": self._rolling_update,
            "api-server": lambda: self._restart_api_server(seconds),
            "mps-daemon": self._kill_mps_daemon,
            "full-disk": lambda: self._fill_disk(seconds),
        }
        done[what]()

    def spoil(self, what: str, pci: PciAddress) -> None:
        """Give a GPU a fault."""
        machine = self.machine
        if what.startswith("xid-"):
            machine.recovery_action(pci, "reset" if what == "xid-48" else "none")
            machine.xid(pci, int(what.removeprefix("xid-")))
            return
        done: Mapping[str, Callable[[], None]] = {
            "lost": lambda: machine.lose(pci),
            "ecc": lambda: machine.ecc(pci, EccErrors(3, 1)),
            "rows-pending": lambda: machine.rows(pci, RemappedRows(0, 1, pending=True, failed=False)),
            "call-fails": lambda: machine.fail("memory_bytes", pci),
            "call-hangs": lambda: machine.hang("memory_bytes", pci),
            "call-slow": lambda: machine.slow(0.3, ANY, pci),
            "mig-fails": lambda: machine.fail("create_gpu_instance", pci),
            "mps-refuses": lambda: machine.spoil_mps("refuse", ANY, "no memory", pci),
        }
        done[what]()

    def heal(self, what: str, pci: PciAddress) -> None:
        """End a fault. A GPU that asks for a reset is reset once no claim has it, as an admin does.

        One that is off the bus comes back with a reset, which ends everything that was made on it.
        """
        machine = self.machine
        machine.heal(gpu=pci)
        machine.heal_mps()
        if machine.state.gpus[pci].lost:
            machine.reset(pci)
        machine.rows(pci, ROWS_WELL)
        machine.ecc(pci, EccErrors(0, 0))
        if what == "xid-48":
            until = time.monotonic() + DRAINED_SECONDS
            while self._is_taken(pci):
                if time.monotonic() > until:
                    raise TimeoutError(f"claims still have {pci} {DRAINED_SECONDS:g} s after {what}")
                time.sleep(1)
            machine.reset(pci)

    def _is_taken(self, pci: PciAddress) -> bool:
        """Whether a claim has the GPU; while nobody can say, it may be so."""
        try:
            return str(pci) in self._taken()
        except ApiRefused:
            return True

    def _taken(self) -> set[str]:
        """The PCI addresses of the GPUs that a claim has, be it only by its allocation."""
        found = {pci for gpus in self.held().values() for pci in gpus}
        names = {gpu_device_name(pci): str(pci) for pci in self.gpus}
        allocated = [
            result["device"]
            for claim in self.cluster.api.list_objects("/apis/resource.k8s.io/v1/resourceclaims")
            for result in ((claim.get("status") or {}).get("allocation") or {})
            .get("devices", {})
            .get("results", ())
        ]
        return found | {pci for name, pci in names.items() if any(one.startswith(name) for one in allocated)}

    def _plugin(self) -> Process:
        return self.cluster.processes.named(f"kubeletplugin-{self.driver.node.name}{self._suffix}")

    @property
    def _suffix(self) -> str:
        return "-second" if self._pod_uid else ""

    def _start_plugin(self) -> None:
        flags = ("--pod-uid", self._pod_uid) if self._pod_uid else ()
        self.driver.start_plugin(*flags, suffix=self._suffix)
        self.driver.wait_serving(self.socket)

    def _start_controller(self) -> None:
        self.driver.start_controller("--config", str(self._rules))

    def _restart(self, name: str, number: signal.Signals, seconds: float) -> None:
        """End a process, and start it again after so many seconds."""
        known: Mapping[str, tuple[Callable[[], Process], Callable[[], object]]] = {
            "plugin": (self._plugin, self._start_plugin),
            "controller": (lambda: self.driver.process("controller"), self._start_controller),
            "supervisor": (lambda: self.driver.process(MPS), self.driver.start_mps),
            "kubelet": (lambda: self.cluster.kubelet(0), self._start_kubelet),
            "containerd": (lambda: self.cluster.containerd(0), lambda: self.cluster.start_containerd(0)),
        }
        process, start = known[name]
        _end(process(), number)
        time.sleep(seconds)
        start()

    def _hand_over(self) -> None:
        before = self._plugin()
        self._pod_uid = "" if self._pod_uid else SECOND_POD_UID
        self._start_plugin()
        _end(before, signal.SIGTERM)

    def _rolling_update(self) -> None:
        # The MPS supervisor stays: its DaemonSet is updated on delete.
        self._hand_over()
        self._restart("controller", signal.SIGTERM, 0)

    def _start_kubelet(self) -> None:
        self.cluster.start_kubelet(0)
        self.driver.wait_serving(self.socket)

    def _restart_api_server(self, seconds: float) -> None:
        self.cluster.stop_api_server()
        time.sleep(seconds)
        self.cluster.start_api_server()

    def _kill_mps_daemon(self) -> None:
        """Kill one of the MPS daemons, if there is any. It starts again with the next prepare or look."""
        supervisor = self.driver.process(MPS).host_pid
        for file in sorted(self.driver.mps_dir.glob("*/pipe/*.pid"))[:1]:
            # Its process id is that of the cluster's namespace.
            command = ["nsenter", f"--pid=/proc/{supervisor}/ns/pid", "kill", "-9", file.read_text().strip()]
            subprocess.run(command, check=False)  # it may have ended meanwhile

    def _fill_disk(self, seconds: float) -> None:
        filler = self._disk / "filler"
        with filler.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                time.sleep(seconds)
        filler.unlink()


def _is_settled(slices: list[Object]) -> bool:
    """Whether every kind of device is published, and none has a taint."""
    devices = [device for one in slices for device in one["spec"].get("devices") or ()]
    types = {device["attributes"]["type"]["string"] for device in devices}
    return types == TYPES and not any(device.get("taints") for device in devices)


def _end(process: Process, number: signal.Signals) -> None:
    """End a process with a signal. Raises ClusterError unless it ends as it should."""
    process.send(number)
    ended = process.wait()
    if ended not in (0, -number):
        raise ClusterError(
            f"{process.name} ended with status {ended} after {number.name}:\n{process.log[-2000:]}"
        )
