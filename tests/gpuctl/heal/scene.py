"""A node in an API server without a kubelet, and a plugin that plays steps, for tests of ``gpuctl heal``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from driver.devices.taints import TAINT_BLOCKED, TAINT_RESET
from driver.nvml.pci_address import PciAddress
from envtest.embedded.server import EmbeddedApiServer
from gpuctl.__main__ import commands
from kubeletplugin.kubelet.node_state import NodeStateBoard, handlers
from kubeletplugin.kubelet.wire.heal import Heal, HealProgress, HealRequest, UsingProcess
from kubeletplugin.kubelet.wire.server import SocketServer
from tests.gpuctl.doctor.programs import FakeKubectl
from tests.gpuctl.repartition.scene import SLICES, Scene

GPU = "0000:1b:00.0"
DEVICE = "gpu-0000-1b-00-0"
ADDRESS = PciAddress.parse(GPU)


class HealScene(Scene):
    """A node whose plugin plays steps. ``kubectl`` is a program that runs gpuctl here in place of a pod."""

    def __init__(
        self, server: EmbeddedApiServer, folder: Path, plugins: Path, machine: str = "hgx-h100"
    ) -> None:
        super().__init__(server, folder, machine)
        self.publish()
        self.kubectl = FakeKubectl(folder / "bin", {"GPU_DRA_PLUGINS_DIR": str(plugins)})
        self.board = NodeStateBoard()
        self.wishes: list[HealRequest] = []
        self.plugins = plugins
        self.plugin_runs()

    def plugin_runs(self) -> None:
        """Have a pod of the plugin on the node."""
        container = {"name": "driver", "image": "x", "command": ["gpu-dra-kubeletplugin"]}
        pod = {"metadata": {"name": "plugin"}, "spec": {"nodeName": "node-a", "containers": [container]}}
        stored = self.server.create("/api/v1/namespaces/kube-system/pods", pod)
        path = "/api/v1/namespaces/kube-system/pods/plugin/status"
        self.server.replace(path, {**stored, "status": {"phase": "Running"}})

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
        for one in self.server.objects("resourceslices", "resource.k8s.io"):
            for device in one["spec"].get("devices") or ():
                if device["name"].startswith(DEVICE):
                    device["taints"] = [
                        {
                            "key": key,
                            "value": "healing" if key == TAINT_BLOCKED else value,
                            "effect": effect,
                            "timeAdded": "2026-01-01T00:00:00Z",
                        }
                        for key in keys
                    ]
            self.server.replace(f"{SLICES}/{one['metadata']['name']}", one)

    def sick(self) -> None:
        """Have the GPU ask for a reset."""
        self.taint(TAINT_RESET)

    def healed(self, *arguments: str) -> Result:
        """Run the command for the GPU."""
        words = ["heal", "node-a", GPU, "--kubeconfig", str(self.kubeconfig), *arguments]
        return CliRunner().invoke(commands, words, catch_exceptions=False)

    def plan(self) -> tuple[int, dict[str, Any]]:
        """The exit code, and what scripts are told."""
        ran = self.healed("-o", "json")
        return ran.exit_code, json.loads(ran.stdout)


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
