"""``gpuctl repartition`` shows what a change of static partitions means before anything happens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from driver.errors import ConfigError
from driver.kube.errors import Forbidden
from driver.nvml.pci_address import PciAddress
from envtest.embedded.server import EmbeddedApiServer
from gpuctl.repartition.node_gpus import NodeGpu
from gpuctl.repartition.wanted import MigConfig, commands_text, wanted_of
from tests.gpuctl.repartition.scene import Scene

FIRST = "0000:1b:00.0"
WRITES = {"create", "update", "patch", "delete", "deletecollection"}


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with EmbeddedApiServer() as server:
        scene = Scene(server, tmp_path)
        scene.publish()
        yield scene


def test_the_plan_names_pods_steps_and_commands_and_changes_nothing(scene: Scene) -> None:
    web, lone = scene.pod("web-1", "ReplicaSet/web"), scene.pod("lone")
    scene.claim("mine", "gpu-0000-1b-00-0", web, lone)
    scene.claim("idle", "gpu-0000-1b-00-0")
    scene.claim("watch", "gpu-0000-1b-00-0", scene.pod("monitor"), adminAccess=True)
    scene.claim("far", "gpu-0000-43-00-0", scene.pod("far"))
    scene.claim("elsewhere", "gpu-0000-1b-00-0", scene.pod("else"), pool="node-b/gpu.nvidia.com")

    result = scene.run("--layout", "1g,1g,2g,3g", "--gpu", FIRST)

    assert result.exit_code == 0
    for line in (
        f"{FIRST}: whole -> 2g.20gb, 2 x 1g.10gb, 3g.40gb",
        "claim default/mine has gpu-0000-1b-00-0: pod default/web-1 of ReplicaSet/web, pod default/lone,",
        "pod default/lone, which has no controller that recreates it",
        "claim default/idle has gpu-0000-1b-00-0: not in use now",
        "claim default/watch has gpu-0000-1b-00-0: pod default/monitor",
        "1. cordon node-a",
        "2. evict 3 pods and wait until their claims are gone",
        f"nvidia-smi -i {FIRST} -mig 1",
        f"nvidia-smi mig -i {FIRST} -cgi 14:0,19:2,19:3,9:4 -C",
        "5. uncordon",
        "nothing was changed; --yes does it",
    ):
        assert line in result.output
    assert "far" not in result.output
    assert "else:" not in result.output
    assert {request.verb for request in scene.server.requests}.isdisjoint(WRITES)
    assert scene.node == {}


def test_scripts_get_the_plan_too(scene: Scene) -> None:
    scene.claim("mine", "gpu-0000-1b-00-0", scene.pod("web", "ReplicaSet/web"))

    told = scene.told("--layout", "all-balanced", "--gpu", FIRST)

    (gpu,) = told["gpus"]
    assert (gpu["gpu"], gpu["now"], len(gpu["partitions"])) == (FIRST, "whole", 4)
    assert told["inTheWay"][0]["pods"][0]["controller"] == "ReplicaSet/web"
    assert (told["node"], told["cordoned"]) == ("node-a", False)


@pytest.mark.parametrize("machine", ["hgx-h100", "a30-quad", "gb200-tray"])
@pytest.mark.parametrize(
    "steps",
    [
        ("all-balanced", "all-disabled"),
        ("all-balanced", "1g,1g,1g", "all-balanced"),
        ("all-enabled", "1g,2g"),
        ("1g+me,1g", "all-enabled", "all-disabled", "2g"),
    ],
    ids="-".join,
)
def test_the_commands_lead_a_machine_from_any_layout_to_any_other(
    machine: str, steps: tuple[str, ...], tmp_path: Path
) -> None:
    with EmbeddedApiServer() as server:
        scene = Scene(server, tmp_path, machine)
        pci = scene.gpus()[0].pci
        for layout in steps:
            scene.publish()
            arguments = ("--layout", layout, "--gpu", str(pci))
            told = scene.told(*arguments)

            assert scene.cut("\n".join(told["gpus"][0]["commands"])) > 0

            scene.publish()
            assert scene.told(*arguments)["gpus"] == []
            now = {gpu.pci: gpu for gpu in scene.gpus()}.get(pci)
            assert (now is None) == (layout == "all-enabled")
            assert (now is not None and now.mode == "whole") == (layout == "all-disabled")


def test_partitions_that_are_there_are_taken_away_first_and_only_ampere_is_reset(scene: Scene) -> None:
    scene.cut(f"nvidia-smi -i {FIRST} -mig 1\nnvidia-smi mig -i {FIRST} -cgi 9:0 -C")
    (cut, *_) = scene.gpus()

    (wanted,) = wanted_of([cut], "all-disabled", None)
    (ampere,) = wanted_of([NodeGpu(cut.pci, "whole", "NVIDIA A30", 0, True)], ("1g",), None)

    assert cut.partitions == ("3g.40gb",)
    assert wanted.commands() == (
        f"nvidia-smi mig -i {FIRST} -dci",
        f"nvidia-smi mig -i {FIRST} -dgi",
        f"nvidia-smi -i {FIRST} -mig 0",
    )
    assert ampere.commands() == (
        f"nvidia-smi -i {FIRST} -mig 1",
        f"nvidia-smi -i {FIRST} --gpu-reset",
        f"nvidia-smi mig -i {FIRST} -cgi 14:0 -C",
    )


def test_gpus_that_are_as_wanted_are_left_alone(scene: Scene) -> None:
    result = scene.run("--layout", "all-disabled", "--yes")

    assert result.exit_code == 0
    assert "nothing to do: the GPUs of node-a already have the wanted partitions" in result.output
    assert scene.node == {}


@pytest.mark.parametrize(("mig", "mode"), [("dynamic", "dynamic"), ("{layout: all-balanced}", "layout")])
def test_partitions_that_the_driver_makes_need_no_drain(scene: Scene, mig: str, mode: str) -> None:
    scene.configure(f"- mig: {mig}\n")
    scene.publish()

    shown, wanted = scene.run("--layout", "all-1g.10gb"), scene.run("--layout", "all-1g.10gb", "--yes")

    assert (shown.exit_code, wanted.exit_code) == (0, 3)
    assert shown.output.startswith(f"{FIRST}, ")
    assert shown.output.count(f"are left as they are, in {mode} mode: no drain is needed") == 1
    assert "mig: {layout: [1g, 1g, 2g, 3g]}" in shown.output
    assert scene.node == {}


def test_a_pod_of_a_daemon_set_has_to_be_stopped_by_its_owner(scene: Scene) -> None:
    scene.claim("watch", "gpu-0000-43-00-0", scene.pod("exporter", "DaemonSet/exporter"), adminAccess=True)

    shown = scene.run("--layout", "all-balanced")
    with pytest.raises(
        ConfigError, match=r"default/exporter belong to DaemonSets.*stop these DaemonSets first"
    ):
        scene.run("--layout", "all-balanced", "--yes")

    assert "of DaemonSet/exporter, which restarts it despite a cordon" in shown.output
    assert scene.node == {}


def mig_parted(folder: Path, *entries: str) -> str:
    path = folder / "mig-parted.yaml"
    path.write_text("version: v1\nmig-configs:\n  c:\n" + "".join(f"  - {{{entry}}}\n" for entry in entries))
    return f"{path}:c"


def test_a_configuration_of_mig_parted_names_the_gpus_and_what_each_gets(
    scene: Scene, tmp_path: Path
) -> None:
    config = mig_parted(
        tmp_path,
        "devices: all, device-filter: '0x20B010DE', mig-enabled: true, mig-devices: {1g.5gb: 7}",
        "devices: [1, 2], mig-enabled: true, mig-devices: {3g.40gb: 2}",
        "devices: [2], device-filter: ['0x233010DE'], mig-enabled: true, mig-devices: {1g.10gb: 2}",
        "devices: [3], mig-enabled: true, mig-devices: {}",
    )

    told, shown = scene.told("--mig-config", config), scene.run("--mig-config", config)

    partitions = {gpu["gpu"]: [one["profile"] for one in gpu["partitions"]] for gpu in told["gpus"]}
    assert partitions == {
        "0000:43:00.0": ["3g.40gb", "3g.40gb"],
        "0000:52:00.0": ["1g.10gb", "1g.10gb"],
        "0000:61:00.0": [],
    }
    assert f"nvidia-mig-parted apply -f {config.removesuffix(':c')} -c c" in shown.output


def test_what_cannot_be_told_of_a_mig_parted_configuration_is_an_error(tmp_path: Path) -> None:
    gpu = NodeGpu(PciAddress.parse(FIRST), "whole", "NVIDIA H100 80GB HBM3", 0, True)
    filtered = MigConfig.read(
        mig_parted(tmp_path, "devices: all, device-filter: '0x999910DE', mig-enabled: false")
    )
    part = MigConfig.read(
        mig_parted(tmp_path, "devices: all, mig-enabled: true, mig-devices: {1c.3g.40gb: 1}")
    )

    assert filtered.layout_for(gpu) is None
    with pytest.raises(ConfigError, match="matches NVIDIA NEW"):
        filtered.layout_for(NodeGpu(gpu.pci, "whole", "NVIDIA NEW", 0, True))
    with pytest.raises(ConfigError, match=r"1c.3g.40gb, which is only a part of a GPU instance"):
        part.layout_for(gpu)
    with pytest.raises(ConfigError, match="has no configuration d: it has c"):
        MigConfig.read(mig_parted(tmp_path, "devices: all, mig-enabled: false").replace(":c", ":d"))
    with pytest.raises(ConfigError, match="is not FILE:NAME"):
        MigConfig.read("just-a-name")
    assert "mig-parted" not in commands_text(wanted_of([gpu], ("1g",), None), ("1g",))


def test_a_model_that_is_not_known_needs_a_machine(scene: Scene) -> None:
    unknown = NodeGpu(PciAddress.parse(FIRST), "whole", "NVIDIA NEW", 0, True)

    with pytest.raises(ConfigError, match="the MIG profiles of NVIDIA NEW are not known"):
        wanted_of([unknown], ("1g",), None)
    with pytest.raises(ConfigError, match="the machine hgx-h100 has no NVIDIA NEW with MIG"):
        wanted_of([unknown], ("1g",), "hgx-h100")
    described = scene.told("--layout", "1g", "--gpu", FIRST, "--machine", "hgx-h100")
    assert described["gpus"][0]["partitions"][0]["profile"] == "1g.10gb"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--layout", "4g,4g"), r"does not fit on 0000:1b:00.0: it wants 2 x 4g.40gb"),
        (("--layout", "9g"), "has no profile 9g"),
        (("--layout", "1g", "--gpu", "zero"), "is not a PCI address"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_happens(
    scene: Scene, arguments: tuple[str, ...], error: str
) -> None:
    with pytest.raises(ConfigError, match=error):
        scene.run(*arguments, "--yes")

    assert scene.node == {}


def test_a_node_without_a_complete_pool_cannot_be_repartitioned(scene: Scene) -> None:
    scene.server.delete("/apis/resource.k8s.io/v1/resourceslices")

    with pytest.raises(ConfigError, match="node-a publishes no complete pool"):
        scene.run("--layout", "1g")
    scene.server.delete("/api/v1/nodes/node-a")
    with pytest.raises(ConfigError, match="there is no node node-a"):
        scene.run("--layout", "1g")


def test_a_layout_is_named_once(scene: Scene) -> None:
    assert scene.run().exit_code == 2
    assert scene.run("--layout", "1g", "--mig-config", "f:c").exit_code == 2


def test_a_failure_on_the_way_says_that_the_node_may_be_cordoned(scene: Scene) -> None:
    scene.claim("mine", "gpu-0000-1b-00-0", scene.pod("web"))
    scene.server.fail("create", "eviction", code=403)

    with pytest.raises(Forbidden):
        scene.run("--layout", "1g", "--yes")

    assert scene.node == {"unschedulable": True}
