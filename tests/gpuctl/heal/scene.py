"""A node without a kubelet, whose plugin plays steps, for tests of ``gpuctl heal``."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from click.testing import CliRunner, Result

from kubeletplugin.kubelet.node_state import handlers
from kubeletplugin.kubelet.wire.heal import Heal
from tests.clusters import EmbeddedApiServer, Object, commands, plan_node
from tests.gpuctl.doctor.clusters import driver_pod, run_pod
from tests.gpuctl.doctor.programs import FakeKubectl
from tests.gpuctl.status.situations import held
from tests.gpus import TAINT_BLOCKED, TAINT_RESET, FakeMachine, PciAddress, Placement
from tests.plugin import HealProgress, HealRequest, NodeStateBoard, SocketServer, UsingProcess

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
PODS = "/api/v1/namespaces/default/pods"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
GPU = "0000:1b:00.0"
DEVICE = "gpu-0000-1b-00-0"
CONTAINERS = {"containers": [{"name": "main", "image": "x"}]}
ADDRESS = PciAddress.parse(GPU)


class HealScene:
    """``node-a`` with eight H100, in an API server without a kubelet, and a plugin that plays steps.

    ``kubectl`` is a program that runs gpuctl here in place of a pod.
    """

    def __init__(self, server: EmbeddedApiServer, folder: Path, plugins: Path) -> None:
        self.server = server
        self.kubeconfig = server.write_kubeconfig(folder / "config")
        self._machine = f"hgx-h100@{folder / 'state.json'}"
        self._folder = folder
        server.create("/api/v1/nodes", {"metadata": {"name": "node-a"}})
        self.publish()
        self.kubectl = FakeKubectl(folder / "bin", {"GPU_DRA_PLUGINS_DIR": str(plugins)})
        self.board = NodeStateBoard()
        self.wishes: list[HealRequest] = []
        self.plugins = plugins
        run_pod(server, driver_pod("kubeletplugin"))

    def publish(self, config: Path | None = None) -> None:
        """Publish what the machine offers now, in place of what was there."""
        self.server.delete(SLICES)
        for item in plan_node(self._machine, "node-a", config).slices:
            self.server.create(SLICES, item)

    def cut_by_an_admin(self) -> None:
        """Have a static partition of 3g.40gb on the second half of the GPU."""
        nvml = FakeMachine.open(self._machine).nvml()
        nvml.init()
        gpu = nvml.device_by_pci(ADDRESS)
        gpu.set_mig_mode(enabled=True)
        profile, compute = 9, 2
        made = gpu.create_gpu_instance(profile, Placement(4, 4))
        gpu.create_compute_instance(made.id, compute)
        config = self._folder / "node.yaml"
        config.write_text("version: v1\nrules:\n- {mig: static}\n")
        self.publish(config)

    def pod(self, name: str, owner: str = "") -> Object:
        """A pod on the node; ``owner`` is ``kind/name`` of its controller, which is made too."""
        metadata: Object = {"name": name}
        if owner:
            metadata["ownerReferences"] = [self._owner(*owner.split("/"))]
        body = {"metadata": metadata, "spec": {"nodeName": "node-a", **CONTAINERS}}
        return self.server.create(PODS, body)

    def _owner(self, kind: str, name: str) -> Object:
        """The reference to a controller; without the controller itself its pods would be collected."""
        labels = {"app": name}
        template = {"metadata": {"labels": labels}, "spec": CONTAINERS}
        spec = {"selector": {"matchLabels": labels}, "template": template}
        body = {"metadata": {"name": name}, "spec": spec}
        made = self.server.create(f"/apis/apps/v1/namespaces/default/{kind.lower()}s", body)
        reference = {"apiVersion": "apps/v1", "kind": kind, "name": name, "controller": True}
        return {**reference, "uid": made["metadata"]["uid"]}

    def claim(self, name: str, device: str, *pods: Object) -> None:
        """An allocated claim that pods use."""
        stored = self.server.create(CLAIMS, held(name, device))
        users = [
            {"resource": "pods", "name": p["metadata"]["name"], "uid": p["metadata"]["uid"]} for p in pods
        ]
        status = {**held(name, device)["status"], "reservedFor": users}
        self.server.replace(f"{CLAIMS}/{name}/status", {**stored, "status": status})

    def end_pods(self) -> None:
        """Do what a kubelet and the claim controller do with pods that are being deleted."""
        for pod in self.server.objects("pods"):
            if "deletionTimestamp" in pod["metadata"]:
                self.server.delete(f"{PODS}/{pod['metadata']['name']}?gracePeriodSeconds=0")
        gone = {pod["metadata"]["uid"] for pod in self.server.objects("pods")}
        for claim in self.server.objects("resourceclaims", "resource.k8s.io"):
            if gone.isdisjoint(user["uid"] for user in claim["status"].get("reservedFor") or ()):
                stored = {**claim, "status": {}}
                self.server.replace(f"{CLAIMS}/{claim['metadata']['name']}/status", stored)

    @contextmanager
    def served(self, heal: Heal) -> Iterator[None]:
        """Answer at the plugin's socket."""

        def noting(wish: HealRequest) -> Iterator[HealProgress]:
            self.wishes.append(wish)
            return heal(wish)

        self.board.set_heal(noting)
        with ThreadPoolExecutor(4) as pool:
            server = SocketServer(self.plugins / "gpu.nvidia.com" / "dra.sock", handlers(self.board), pool)
            server.start()
            try:
                yield
            finally:
                server.stop(0)

    def taint(self, *keys: str, value: str = "", effect: str = "NoSchedule") -> None:
        """Have these taints and no others on the GPU's devices."""
        more = {"effect": effect, "timeAdded": "2026-01-01T00:00:00Z"}
        told = [{"key": key, "value": "healing" if key == TAINT_BLOCKED else value, **more} for key in keys]
        for one in self.server.objects("resourceslices", "resource.k8s.io"):
            for device in one["spec"].get("devices") or ():
                if device["name"].startswith(DEVICE):
                    device["taints"] = told
            self.server.replace(f"{SLICES}/{one['metadata']['name']}", one)

    def sick(self) -> None:
        """Have the GPU ask for a reset."""
        self.taint(TAINT_RESET)

    def healed(self, *arguments: str) -> Result:
        """Run the command for the GPU."""
        words = ["heal", "node-a", GPU, "--kubeconfig", str(self.kubeconfig), *arguments]
        return CliRunner().invoke(commands, words, catch_exceptions=False)


def plays(*steps: HealProgress, before_last: Callable[[], object] = lambda: None) -> Heal:
    """A plugin that tells these steps, whatever is asked, and does something before the last."""

    def heal(_wish: HealRequest) -> Iterator[HealProgress]:
        yield from steps[:-1]
        before_last()
        yield steps[-1]

    return heal


def looked(*processes: UsingProcess) -> HealProgress:
    """The answer to who only asks."""
    return HealProgress("looked", (ADDRESS,), processes=processes)
