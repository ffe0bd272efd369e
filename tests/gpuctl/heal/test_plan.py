"""Without ``--yes`` nothing happens: what is wrong, what is in the way and what helps is said."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from driver.devices import taints
from driver.nvml.pci_address import PciAddress
from envtest.embedded.server import EmbeddedApiServer
from gpuctl.__main__ import commands
from gpuctl.heal.run import NO_RESET_EXIT_CODE, SICK_EXIT_CODE
from kubeletplugin.kubelet.wire.heal import HealProgress, UsingProcess
from tests.gpuctl.documents import read_document
from tests.gpuctl.heal.scene import ADDRESS, DEVICE, GPU, HealScene, looked, plays
from tests.kubeletplugin.fake_kubelet import short_folder


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HealScene]:
    with EmbeddedApiServer() as server, short_folder() as plugins:
        found = HealScene(server, tmp_path, plugins)
        monkeypatch.setenv("PATH", str(found.kubectl.folder), prepend=":")
        yield found


def test_a_well_gpu_is_said_to_be_well_and_nobody_is_asked(scene: HealScene) -> None:
    ran = scene.healed()
    assert ran.exit_code == 0
    assert f"GPU {GPU} of node-a (NVIDIA H100 80GB HBM3) is healthy" in ran.stdout
    assert scene.healed("--yes").exit_code == 0
    assert scene.wishes == []


def test_what_is_wrong_and_in_the_way_and_what_would_be_done_is_said(scene: HealScene) -> None:
    scene.taint(taints.TAINT_XID, taints.TAINT_RESET, value="95")
    pod = scene.pod("web-0", "ReplicaSet/web")
    scene.claim("mine", f"{DEVICE}-mig-1g-10gb-3", pod)
    scene.claim("vm", f"{DEVICE}-vfio", scene.pod("bare"))
    scene.claim("other", "gpu-0000-43-00-0", scene.pod("elsewhere"))
    user = UsingProcess(4711, "python", pod["metadata"]["uid"])
    with scene.served(plays(looked(user, UsingProcess(17, "dcgm")))):
        ran = scene.healed()
        code, told = scene.plan()

    assert (ran.exit_code, code) == (SICK_EXIT_CODE, SICK_EXIT_CODE)
    for line in (
        "gpu.nvidia.com/xid=95:NoSchedule: XID 95 (a memory error was not contained",
        "gpu.nvidia.com/needs-reset=95:NoSchedule",
        f"claim default/mine has {DEVICE}-mig-1g-10gb-3: pod default/web-0 (of ReplicaSet/web)",
        "pod default/bare (without a controller, so nothing recreates it)",
        "process 4711 (python of pod default/web-0)",
        "process 17 (dcgm)",
        "2. evict 2 pods",
    ):
        assert line in ran.stdout
    assert "elsewhere" not in ran.stdout
    read_document(json.dumps(told), "Heal")
    assert (told["remedy"], told["resetTogether"]) == ("reset", [GPU])
    assert [one["name"] for one in told["claims"]] == ["mine", "vm"]
    assert not any(wish.reset for wish in scene.wishes)


def test_a_machine_that_has_to_be_restarted_is_never_reset(scene: HealScene) -> None:
    scene.taint(taints.TAINT_XID, taints.TAINT_REBOOT, value="79")
    for arguments in ((), ("--yes",)):
        ran = scene.healed(*arguments)
        assert ran.exit_code == NO_RESET_EXIT_CODE
        assert "the machine needs a restart, which you have to do" in ran.stdout
        assert "kubectl drain node-a" in ran.stdout
    assert scene.wishes == []


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        (taints.TAINT_FABRIC, "unhealthy", "check the fabric manager"),
        (taints.TAINT_MEMORY, "unrepairable", "have the board replaced"),
        (taints.TAINT_MEMORY, "rows-failed", "have the board replaced"),
    ],
)
def test_what_no_reset_helps_is_said_to_be_so(scene: HealScene, key: str, value: str, said: str) -> None:
    scene.taint(key, value=value)
    ran = scene.healed("--yes")
    assert ran.exit_code == NO_RESET_EXIT_CODE
    assert said in ran.stdout
    assert scene.wishes == []


def test_gpus_that_are_reset_together_are_looked_at_together(scene: HealScene) -> None:
    scene.sick()
    scene.claim("beside", "gpu-0000-43-00-0", scene.pod("beside"))
    other = PciAddress.parse("0000:43:00.0")
    with scene.served(plays(HealProgress("looked", (ADDRESS, other)))):
        ran = scene.healed()
    assert "it is reset together with 0000:43:00.0" in ran.stdout
    assert "pod default/beside" in ran.stdout


def test_partitions_of_an_admin_that_no_reset_leaves_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with EmbeddedApiServer() as server, short_folder() as plugins:
        scene = HealScene(server, tmp_path, plugins)
        monkeypatch.setenv("PATH", str(scene.kubectl.folder), prepend=":")
        scene.cut(f"nvidia-smi -i {GPU} -mig 1\nnvidia-smi mig -i {GPU} -cgi 9:4 -C")
        scene.configure("- {mig: static}\n")
        scene.publish()
        scene.sick()
        with scene.served(plays(looked())):
            ran = scene.healed()
    assert (
        "destroyed by the reset, and not made again by the driver: gpu-0000-1b-00-0-static-3g-40gb-4"
        in ran.stdout
    )


def test_a_node_whose_plugin_cannot_be_asked_is_shown_without_its_processes(scene: HealScene) -> None:
    scene.sick()
    ran = scene.healed()
    assert ran.exit_code == SICK_EXIT_CODE
    assert "the processes on the node are not known: kubectl exec in kube-system/plugin" in ran.stdout

    tried = CliRunner().invoke(
        commands, ["heal", "node-a", GPU, "--yes", "--kubeconfig", str(scene.kubeconfig)]
    )
    assert "cannot be asked" in str(tried.exception)


def test_a_node_without_the_plugin_is_said_to_have_none(scene: HealScene) -> None:
    scene.sick()
    scene.server.delete("/api/v1/namespaces/kube-system/pods/plugin?gracePeriodSeconds=0")
    assert "no pod with gpu-dra-kubeletplugin runs on node-a" in scene.healed().stdout


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("node-a", "GPU-nobody"), "publishes no GPU GPU-nobody"),
        (("node-b", GPU), "there is no node node-b"),
    ],
)
def test_a_node_or_gpu_that_there_is_not_is_an_error(
    scene: HealScene, words: tuple[str, str], why: str
) -> None:
    ran = CliRunner().invoke(commands, ["heal", *words, "--kubeconfig", str(scene.kubeconfig)])
    assert why in str(ran.exception)


@pytest.mark.parametrize("words", [("node-a",), ("--here", "node-a", GPU), ()])
def test_a_wrong_number_of_names_is_a_wrong_command_line(words: tuple[str, ...]) -> None:
    assert CliRunner().invoke(commands, ["heal", *words]).exit_code == 2
