"""The topology of a node is drawn in the terms of nvidia-smi, from what the node publishes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from driver.errors import ConfigError
from envtest.embedded.server import EmbeddedApiServer
from fakegpu.machine.spec import Slot, TopologyLevel, known_machines, load_machine, topology_level
from gpuctl.__main__ import commands
from gpuctl.plan.node_gpus import published_gpus
from gpuctl.plan.planned import plan_node
from gpuctl.plan.topology import Matrix, matrix_of

EXPECTED = {
    "dgx-a100": """
        X NV12 NV12 NV12 NV12 NV12 NV12 NV12
        NV12 X NV12 NV12 NV12 NV12 NV12 NV12
        NV12 NV12 X NV12 NV12 NV12 NV12 NV12
        NV12 NV12 NV12 X NV12 NV12 NV12 NV12
        NV12 NV12 NV12 NV12 X NV12 NV12 NV12
        NV12 NV12 NV12 NV12 NV12 X NV12 NV12
        NV12 NV12 NV12 NV12 NV12 NV12 X NV12
        NV12 NV12 NV12 NV12 NV12 NV12 NV12 X
    """,
    "dgx1-v100": """
        X NV1 NV1 NV2 NV2 SYS SYS SYS
        NV1 X NV2 NV1 SYS NV2 SYS SYS
        NV1 NV2 X NV2 SYS SYS NV1 SYS
        NV2 NV1 NV2 X SYS SYS SYS NV1
        NV2 SYS SYS SYS X NV1 NV1 NV2
        SYS NV2 SYS SYS NV1 X NV2 NV1
        SYS SYS NV1 SYS NV1 NV2 X NV2
        SYS SYS SYS NV1 NV2 NV1 NV2 X
    """,
    "a30-quad": """
        X NV4 SYS SYS
        NV4 X SYS SYS
        SYS SYS X NV4
        SYS SYS NV4 X
    """,
    "gb200-tray": """
        X NV18 NV18 NV18
        NV18 X NV18 NV18
        NV18 NV18 X NV18
        NV18 NV18 NV18 X
    """,
    "l40s-octo": """
        X PIX PXB PXB SYS SYS SYS SYS
        PIX X PXB PXB SYS SYS SYS SYS
        PXB PXB X PIX SYS SYS SYS SYS
        PXB PXB PIX X SYS SYS SYS SYS
        SYS SYS SYS SYS X PIX PXB PXB
        SYS SYS SYS SYS PIX X PXB PXB
        SYS SYS SYS SYS PXB PXB X PIX
        SYS SYS SYS SYS PXB PXB PIX X
    """,
    "l4-quad": """
        X NODE SYS SYS
        NODE X SYS SYS
        SYS SYS X NODE
        SYS SYS NODE X
    """,
    "t4": "X",
}
"""What `nvidia-smi topo -m` prints for the GPUs of such machines."""

ALL_PAIRS = {
    **dict.fromkeys(("hgx-h100", "hgx-h200", "hgx-b200"), (8, "NV18")),
    "dgx-a100-80gb": (8, "NV12"),
    "dgx2": (16, "NV6"),
}

DISTANCES: dict[TopologyLevel, str] = {
    "internal": "X", "single": "PIX", "multiple": "PXB", "hostbridge": "PHB", "node": "NODE", "system": "SYS",
}  # fmt: skip


def matrix(machine: str) -> Matrix:
    return matrix_of(published_gpus(plan_node(machine, "node", None).slices, ()))


def shown(found: Matrix) -> list[str]:
    return [" ".join(map(str, row)) for row in found.cells]


def run(*arguments: str) -> Any:
    return CliRunner().invoke(commands, ["topology", *arguments], catch_exceptions=False)


@pytest.mark.parametrize("machine", sorted(EXPECTED))
def test_a_machine_is_drawn_as_nvidia_smi_draws_it(machine: str) -> None:
    assert shown(matrix(machine)) == [line.strip() for line in EXPECTED[machine].split("\n") if line.strip()]


@pytest.mark.parametrize("machine", sorted(ALL_PAIRS))
def test_behind_nvswitches_every_gpu_reaches_every_other_by_all_of_its_links(machine: str) -> None:
    gpus, links = ALL_PAIRS[machine]

    rows = shown(matrix(machine))

    assert [row.split().count(links) for row in rows] == [gpus - 1] * gpus


@pytest.mark.parametrize("machine", known_machines())
def test_distances_on_pcie_are_those_that_nvml_tells(machine: str) -> None:
    """But where the firmware tells no NUMA node: NVML answers then as if there were two."""
    found = matrix(machine)
    by_pci = {str(slot.pci): slot for slot in load_machine(machine).slots}
    slots = [by_pci[str(gpu.pci)] for gpu in found.gpus]

    def told(one: Slot, other: Slot) -> str:
        level = topology_level(one, other)
        return "-" if level == "system" and one.numa_node is None else DISTANCES[level]

    expected = [[told(one, other) for other in slots] for one in slots]
    assert [[cell.pcie for cell in row] for row in found.cells] == expected


def test_the_path_over_pcie_is_told_beside_nvlinks() -> None:
    cell = matrix("dgx-a100").cells[0][1]

    assert (str(cell), cell.pcie, cell.nvlinks) == ("NV12", "PIX", 12)


def test_links_of_which_the_number_is_not_published_are_still_links() -> None:
    devices = [
        {
            "name": name,
            "attributes": {
                "type": {"string": "gpu"},
                "index": {"int": index},
                "nvlinkPeers": {"string": peer},
                "nvlinkPeerLinks": {"string": links},
            },
        }
        for index, (name, peer, links) in enumerate((("a", "1", "4,4"), ("b", "0", "")))
    ]

    found = matrix_of(published_gpus([{"spec": {"devices": devices}}], ()))

    assert shown(found) == ["X NV", "NV X"]


def test_gpus_of_one_numa_node_below_two_host_bridges_are_told_apart_from_both() -> None:
    places = {"a": ("pci0000:00", 0), "b": ("pci0000:40", 0), "c": ("pci0000:40", 0), "d": ("pci0000:80", 1)}
    devices = [
        {
            "name": name,
            "attributes": {
                "type": {"string": "gpu"},
                "resource.kubernetes.io/pcieRoot": {"string": root},
                "numaNode": {"int": numa_node},
            },
        }
        for name, (root, numa_node) in places.items()
    ]

    found = matrix_of(published_gpus([{"spec": {"devices": devices}}], ()))

    assert shown(found) == [
        "X NODE NODE SYS",
        "NODE X PHB SYS",
        "NODE PHB X SYS",
        "SYS SYS SYS X",
    ]


def test_what_is_not_published_is_not_guessed() -> None:
    devices = [{"name": name, "attributes": {"type": {"string": "gpu"}}} for name in ("a", "b")]

    found = matrix_of(published_gpus([{"spec": {"devices": devices}}], ()))

    assert shown(found) == ["X -", "- X"]


def test_every_matrix_is_symmetric() -> None:
    for machine in known_machines():
        cells = matrix(machine).cells
        assert cells == tuple(zip(*cells, strict=True))


def test_a_node_of_a_cluster_is_read_through_a_kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> None:
    with EmbeddedApiServer() as server:
        for name in ("node-a", "node-b"):
            for item in plan_node("a30-quad", name, None).slices:
                server.create("/apis/resource.k8s.io/v1/resourceslices", item)
        kubeconfig = server.write_kubeconfig(tmp_path_factory.mktemp("kube") / "config")

        told = json.loads(run("node-b", "--kubeconfig", str(kubeconfig), "-o", "json").output)
        drawn = run("node-b", "--kubeconfig", str(kubeconfig)).output
        with pytest.raises(ConfigError, match="node-c publishes no GPU"):
            run("node-c", "--kubeconfig", str(kubeconfig))

    assert told["node"] == "node-b"
    assert [gpu["index"] for gpu in told["gpus"]] == [0, 1, 2, 3]
    assert told["gpus"][0]["paths"]["gpu-0000-65-00-0"] == "NV"
    assert told["gpus"][0]["nvlinks"] == {"gpu-0000-65-00-0": 4}
    assert "A (0-1)" in drawn
    assert "NVLinks, straight or through NVSwitches" in drawn


def test_a_gpu_that_is_cut_stands_once_and_without_nvlinks(tmp_path: Path) -> None:
    config = tmp_path / "node.yaml"
    config.write_text(
        "version: v1\nrules:\n- {when: gpu.index == 0, mig: {layout: all-balanced}}\n- mig: dynamic\n"
    )
    slices = plan_node("hgx-h100", "node-a", config).slices
    with EmbeddedApiServer() as server:
        for item in slices:
            server.create("/apis/resource.k8s.io/v1/resourceslices", item)
        kubeconfig = server.write_kubeconfig(tmp_path / "config")

        told = json.loads(run("node-a", "--kubeconfig", str(kubeconfig), "-o", "json").output)

    assert [gpu["index"] for gpu in told["gpus"]] == list(range(8))
    assert told["gpus"][0]["device"] == "gpu-0000-1b-00-0"
    assert told["gpus"][0]["nvlinkDomain"] is None
    assert told["gpus"][1]["paths"]["gpu-0000-52-00-0"] == "NV"


def test_a_node_and_a_machine_at_once_are_a_wrong_command_line() -> None:
    assert run("node-a", "--machine", "t4").exit_code == 2
    assert run().exit_code == 2
