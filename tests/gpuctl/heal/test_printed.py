"""What ``gpuctl heal`` says of a GPU, what it does with ``--yes``, and what scripts are told."""

import pytest

from tests.clusters import error_text
from tests.gpuctl.approved import approve
from tests.gpuctl.documents import read_document
from tests.gpuctl.heal.scene import ADDRESS, DEVICE, GPU, HealScene, looked, plays
from tests.gpus import DriverError, PciAddress, taints
from tests.plugin import HealProgress, UsingProcess

OTHER = PciAddress.parse("0000:43:00.0")


def in_use(scene: HealScene) -> UsingProcess:
    """Have pods on the GPU, and a process of one of them."""
    pod = scene.pod("web-0", "ReplicaSet/web")
    scene.claim("mine", f"{DEVICE}-mig-1g-10gb-3", pod)
    scene.claim("vm", f"{DEVICE}-vfio", scene.pod("bare"))
    scene.claim("idle", DEVICE)
    scene.claim("other", "gpu-0000-43-00-0", scene.pod("elsewhere"))
    return UsingProcess(4711, "python", pod["metadata"]["uid"])


def said(scene: HealScene, *words: str) -> str:
    """What the command prints, and how it ends."""
    ran = scene.healed(*words)
    line = " ".join(("$ gpuctl heal node-a", GPU, *words))
    return f"{line}\n{ran.stdout}{ran.stderr}exit code {ran.exit_code}\n"


def test_a_well_gpu_is_said_to_be_well_and_nobody_is_asked(scene: HealScene) -> None:
    approve("heal/well", said(scene) + said(scene, "--yes"))
    assert scene.wishes == []


def test_what_is_in_the_way_of_a_reset_and_what_would_be_done(scene: HealScene) -> None:
    scene.taint(taints.TAINT_XID, taints.TAINT_RESET, value="95")
    user = in_use(scene)
    with scene.served(plays(looked(user, UsingProcess(17, "dcgm")))):
        approve("heal/in-the-way", said(scene))
        document = scene.healed("-o", "json").stdout
    told = read_document(document, "Heal")
    assert (told["remedy"], told["resetTogether"]) == ("reset", [GPU])
    assert [one["name"] for one in told["claims"]] == ["idle", "mine", "vm"]
    assert told["processes"][0] == {"processId": 4711, "name": "python", "pod": "default/web-0"}
    assert not any(wish.reset for wish in scene.wishes)


def test_gpus_that_are_reset_together_are_looked_at_together(scene: HealScene) -> None:
    scene.sick()
    in_use(scene)
    with scene.served(plays(HealProgress("looked", (ADDRESS, OTHER)))):
        approve("heal/reset-together", said(scene))


@pytest.mark.parametrize(
    ("situation", "key", "value"),
    [
        ("restart", taints.TAINT_REBOOT, "79"),
        ("lost", taints.TAINT_LOST, ""),
        ("fabric", taints.TAINT_FABRIC, "unhealthy"),
        ("board", taints.TAINT_MEMORY, "unrepairable"),
    ],
)
def test_what_no_reset_helps_is_never_reset(scene: HealScene, situation: str, key: str, value: str) -> None:
    scene.taint(*((taints.TAINT_XID,) if situation == "restart" else ()), key, value=value)
    approve(f"heal/{situation}", said(scene) + said(scene, "--yes"))
    assert scene.wishes == []


def test_partitions_of_an_admin_that_no_reset_leaves_are_named(scene: HealScene) -> None:
    scene.cut_by_an_admin()
    scene.sick()
    with scene.served(plays(looked())):
        approve("heal/static-partitions", said(scene))


def test_a_node_whose_plugin_cannot_be_asked_is_shown_without_its_processes(scene: HealScene) -> None:
    scene.sick()
    scene.server.delete("/api/v1/namespaces/gpu-dra/pods/gpu-dra-kubeletplugin-x?gracePeriodSeconds=0")
    approve("heal/no-plugin", said(scene))
    with pytest.raises(DriverError) as caught:
        scene.healed("--yes")
    assert error_text(caught.value) == (
        "the plugin of node-a cannot be asked: no pod with gpu-dra-kubeletplugin runs on node-a;"
        " nothing was done"
    )
