"""A sick GPU is healed by the driver's own processes: its pod leaves it, and the next one gets it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from driver.devices.taints import TAINT_RESET
from driver.nvml.pci_address import PciAddress
from envtest.client import paths
from envtest.client.waiting import wait_gone
from envtest.embedded.cluster import EmbeddedCluster, KubeletTimes
from gpuctl.__main__ import commands
from gpuctl.cli.output import AMISS_EXIT_CODE
from gpuctl.demo.brisk import BRISK
from gpuctl.demo.driver_node import DriverNode
from tests import fork_server
from tests.eventually import eventually
from tests.flow.claims import gpu_pod, make_template, start, wait_published
from tests.gpuctl.doctor.programs import FakeKubectl

TIMES = KubeletTimes(scan=0.1, unprepare_retry=0.3, prepare_retry=(0.5, 1.0))


@dataclass(frozen=True, slots=True)
class Healing:
    """A node at work with one GPU, and the command."""

    driver: DriverNode

    @property
    def gpu(self) -> PciAddress:
        """The GPU."""
        return self.driver.machine.pci(0)

    @property
    def words(self) -> list[str]:
        """The command line for the GPU."""
        return ["heal", self.driver.node.name, str(self.gpu), "--kubeconfig", str(self.driver.cluster.admin)]

    def run(self, *arguments: str) -> Result:
        """Run the command for the GPU."""
        return CliRunner().invoke(commands, [*self.words, *arguments], catch_exceptions=False)

    def sick(self) -> None:
        """Have NVML ask for a reset of the GPU, and wait until the slices say so."""
        self.driver.machine.recovery_action(self.gpu, "reset")
        self.wait_for_taint(TAINT_RESET)

    def wait_for_taint(self, key: str) -> None:
        """Wait until all devices of the GPU have a taint."""
        self.wait(lambda: all(key in found for found in self.taints()))

    def wait_untainted(self) -> None:
        """Wait until no device has any."""
        self.wait(lambda: not any(self.taints()))

    def taints(self) -> list[set[str]]:
        """The taints of each device, as the API server has them."""
        slices = self.driver.cluster.api.list_objects(paths.resource_slice())
        devices = [device for one in slices for device in one["spec"].get("devices") or ()]
        assert devices
        return [{taint["key"] for taint in device.get("taints") or ()} for device in devices]

    def wait(self, seen: Callable[[], bool]) -> None:
        """Wait until something is so."""
        eventually("it is seen", seen, context=self.taints)


@pytest.fixture
def healing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Healing]:
    """The driver at work; kubectl runs gpuctl here in place of the plugin's pod."""
    with EmbeddedCluster(times=TIMES, start=fork_server.start) as cluster:
        driver = DriverNode.install(cluster, machine="gh200", launcher=BRISK)
        driver.start_plugin()
        driver.start_controller()
        wait_published(driver)
        kubectl = FakeKubectl(tmp_path / "bin", {"GPU_DRA_PLUGINS_DIR": str(driver.node.plugins_dir)})
        monkeypatch.setenv("PATH", str(kubectl.folder), prepend=":")
        container = {"name": "driver", "image": "x", "command": ["gpu-dra-kubeletplugin"]}
        pod: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "plugin"},
            "spec": {"nodeName": driver.node.name, "containers": [container]},
        }
        start(cluster, "default", pod)
        make_template(cluster, "default")
        yield Healing(driver)


def test_a_pod_leaves_a_sick_gpu_which_is_reset_and_given_to_the_next(healing: Healing) -> None:
    cluster = healing.driver.cluster
    start(cluster, "default", gpu_pod("train"))
    healing.sick()
    seen = healing.run("-o", "json")
    told = json.loads(seen.stdout)
    assert seen.exit_code == AMISS_EXIT_CODE
    assert [pod["name"] for claim in told["claims"] for pod in claim["pods"]] == ["train"]

    ran = healing.run("--yes", "--timeout", "90")

    assert ran.exit_code == 0, ran.output
    assert "its taints are gone" in ran.output
    wait_gone(cluster.api, paths.pod("train", "default"))
    healing.wait_untainted()
    start(cluster, "default", gpu_pod("next"))
    assert healing.run().exit_code == 0
