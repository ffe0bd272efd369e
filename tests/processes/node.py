"""One node for the driver's processes: an API server, a fake machine, and a kubelet that calls the plugin."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from driver.kube.paths import claim_path
from proto import dra_v1_pb2 as v1
from proto import registration_v1_pb2 as registration
from tests.clusters import EmbeddedApiServer, Object, boot_folder, registration_socket, service_socket_name
from tests.eventually import WAIT_SECONDS, eventually
from tests.gpus import DRIVER_NAME, FakeMachine, build_driver_root, build_sysfs, gpu_device_name, pool_name
from tests.kubeletplugin.fake_kubelet import DRA_V1, FakeKubelet, short_folder
from tests.plugin import cdi_spec_file_name
from tests.processes.process import TOKEN, DriverProcess

NODE = "node-a"
GROUP = "resource.k8s.io"
MACHINE = "hgx-h100"
CLAIMS = f"/apis/{GROUP}/v1/namespaces/team/resourceclaims"


@dataclass(frozen=True, slots=True)
class Claimed:
    """What the kubelet was answered for one claim: the CDI devices, or why there are none."""

    cdi_devices: tuple[str, ...]
    error: str


class Node:
    """The folders of the node, its machine of eight GPUs, and the API server that it belongs to."""

    def __init__(self, folder: Path, server: EmbeddedApiServer) -> None:
        self.folder = folder
        self.server = server
        self.nvml = f"fake:{MACHINE}@{folder / 'machine.json'}"
        self.machine = FakeMachine.open(self.nvml)
        self.gpus = tuple(gpu_device_name(pci) for pci in self.machine.state.listed())
        self.driver_root = build_driver_root(folder / "driver", self.machine)
        self.sysfs = build_sysfs(folder, self.machine)
        self.cdi, self.plugins, self.registry = folder / "cdi", folder / "plugins", folder / "registry"
        for made in (self.cdi, self.plugins, self.registry):
            made.mkdir()
        self.data = self.plugins / DRIVER_NAME
        self.journal = boot_folder(self.data) / "journal"
        self.service_socket = self.data / service_socket_name()
        self.registration_socket = registration_socket(self.registry, DRIVER_NAME)
        self.kubeconfig = self._kubeconfig()
        server.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
        server.create("/api/v1/namespaces", {"metadata": {"name": "team"}})

    def plugin_flags(self, **changed: str) -> list[str]:
        """The plugin's flags on this node; ``changed`` replaces values, names with underscores."""
        flags = {
            "node_name": NODE,
            "kubeconfig": str(self.kubeconfig),
            "nvml": self.nvml,
            "driver_root": str(self.driver_root),
            "plugins_dir": str(self.plugins),
            "registry_dir": str(self.registry),
            "cdi_dir": str(self.cdi),
            "mps_dir": str(self.folder / "mps"),
            "sysfs_root": str(self.sysfs),
            "log_level": "debug",
        }
        return _as_arguments(flags | changed)

    def controller_flags(self, **changed: str) -> list[str]:
        """The controller's flags on this node; ``changed`` replaces values, names with underscores."""
        flags = {
            "node_name": NODE,
            "kubeconfig": str(self.kubeconfig),
            "nvml": self.nvml,
            "sysfs_root": str(self.sysfs),
            "plugin_data_dir": str(self.data),
            "log_level": "debug",
        }
        return _as_arguments(flags | changed)

    @contextmanager
    def plugin(self, **changed: str) -> Iterator[DriverProcess]:
        """A plugin that the kubelet has registered; killed at the end when it still runs."""
        with DriverProcess("kubeletplugin", *self.plugin_flags(**changed)) as process:
            self.register(process, changed.get("pod_uid", ""))
            yield process

    def register(self, plugin: DriverProcess, pod_uid: str = "") -> None:
        """Do what the kubelet does with a registration socket that it found."""
        found = registration_socket(self.registry, DRIVER_NAME, pod_uid)
        plugin.wait_for("serving", socket=str(found))
        with FakeKubelet(found) as kubelet:
            kubelet.call(
                "/pluginregistration.Registration/NotifyRegistrationStatus",
                registration.RegistrationStatus(plugin_registered=True),
                registration.RegistrationStatusResponse,
            )

    def controller(self, **changed: str) -> DriverProcess:
        """A controller of this node."""
        return DriverProcess("controller", *self.controller_flags(**changed))

    def claim(
        self,
        name: str,
        *devices: str,
        pool: str = pool_name(NODE),
        config: Any = None,
        unchecked: bool = False,
    ) -> v1.Claim:
        """A claim in the API that was allocated these devices, or nothing when there are none.

        ``unchecked`` writes the allocation past the API server's validation: what the plugin refuses must
        not depend on somebody else having refused it before.
        """
        exactly = {"deviceClassName": "gpu.example.com"}
        requests = [{"name": f"gpu-{number}", "exactly": exactly} for number in range(len(devices))]
        item = {"metadata": {"name": name}, "spec": {"devices": {"requests": requests}}}
        stored = self.server.create(CLAIMS, item)
        results = [
            {"request": f"gpu-{number}", "driver": DRIVER_NAME, "pool": pool, "device": device}
            for number, device in enumerate(devices)
        ]
        allocation: Object = {"devices": {"results": results}}
        if config is not None:
            opaque = {"driver": DRIVER_NAME, "parameters": config}
            allocation["devices"]["config"] = [{"source": "FromClaim", "requests": [], "opaque": opaque}]
        if devices:
            allocated = {**stored, "status": {"allocation": allocation}}
            if unchecked:
                self.server.store.put((GROUP, "resourceclaims"), ("team", name), allocated)
            else:
                self.server.replace(f"{claim_path('team', name)}/status", allocated)
        return v1.Claim(namespace="team", name=name, uid=stored["metadata"]["uid"])

    def prepare(
        self, *claims: v1.Claim, within_seconds: float = WAIT_SECONDS, pod_uid: str = ""
    ) -> list[Claimed]:
        """What the kubelet is answered when it asks for these claims in one call with that deadline.

        ``pod_uid`` is that of the instance that is asked, where it has one.
        """
        with FakeKubelet(self.data / service_socket_name(pod_uid)) as kubelet:
            answer = kubelet.call(
                f"{DRA_V1}/NodePrepareResources",
                v1.NodePrepareResourcesRequest(claims=claims),
                v1.NodePrepareResourcesResponse,
                within_seconds,
            )
        entries = [answer.claims[claim.uid] for claim in claims]
        return [
            Claimed(tuple(name for device in entry.devices for name in device.cdi_device_ids), entry.error)
            for entry in entries
        ]

    def unprepare(
        self, *claims: v1.Claim, within_seconds: float = WAIT_SECONDS, pod_uid: str = ""
    ) -> list[str]:
        """The errors that the kubelet is answered, empty where there is none."""
        with FakeKubelet(self.data / service_socket_name(pod_uid)) as kubelet:
            answer = kubelet.call(
                f"{DRA_V1}/NodeUnprepareResources",
                v1.NodeUnprepareResourcesRequest(claims=claims),
                v1.NodeUnprepareResourcesResponse,
                within_seconds,
            )
        return [answer.claims[claim.uid].error for claim in claims]

    def spec(self, claim: v1.Claim) -> Path:
        """Where the claim's CDI spec lies."""
        return self.cdi / cdi_spec_file_name(claim.uid)

    def wait_warning(self, claim: v1.Claim, *words: str) -> None:
        """Wait for a Warning about the claim that has all these words."""

        def has_it(events: list[Object]) -> bool:
            return any(
                event["type"] == "Warning"
                and event["involvedObject"]["uid"] == claim.uid
                and all(word in event["message"] for word in words)
                for event in events
            )

        eventually(f"a warning with {words}", lambda: self.server.objects("events"), has_it)

    def wait_event(self, reason: str, times: int = 1) -> None:
        """Wait until there are so many events with this reason, or more."""

        def reasons() -> list[str]:
            return [event["reason"] for event in self.server.objects("events")]

        eventually(f"{times} times {reason}", reasons, lambda told: told.count(reason) >= times)

    def devices(self) -> list[Object]:
        """The devices of all published slices."""
        return [one for item in self.slices() for one in item["spec"].get("devices", [])]

    def slices(self) -> list[Object]:
        """The published slices."""
        return self.server.objects("resourceslices", GROUP)

    def publishes(self, count: int, by: DriverProcess | None = None) -> None:
        """Wait until so many devices are published; what ``by`` wrote tells why they are not."""
        context = None if by is None else lambda: by.text
        eventually(f"{count} devices", self.devices, lambda devices: len(devices) == count, context=context)

    def _kubeconfig(self) -> Path:
        self.server.gate.admin_bearer = TOKEN
        return self.server.write_kubeconfig(self.folder / "kubeconfig")


@contextmanager
def new_node() -> Iterator[Node]:
    """A node of its own in a folder that has room for sockets."""
    with short_folder() as folder, EmbeddedApiServer() as server:
        yield Node(folder, server)


def _as_arguments(flags: dict[str, str]) -> list[str]:
    return [f"--{name.replace('_', '-')}={value}" for name, value in flags.items()]
