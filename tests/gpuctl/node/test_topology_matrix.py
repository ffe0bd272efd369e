"""The topology of a node is drawn in the terms of nvidia-smi, from what the node publishes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from driver.errors import ConfigError
from envtest.embedded.api.server import EmbeddedApiServer
from gpuctl.__main__ import commands
from gpuctl.node.picture import published_gpus
from gpuctl.node.planned import plan_node
from gpuctl.node.topology_matrix import Matrix, matrix_of


def matrix(machine: str) -> Matrix:
    return matrix_of(published_gpus(plan_node(machine, "node", None).slices, ()))


def run(*arguments: str) -> Any:
    return CliRunner().invoke(commands, ["topology", *arguments], catch_exceptions=False)


def test_the_hybrid_cube_mesh_has_links_to_four_of_seven() -> None:
    paths = matrix("dgx1-v100").paths

    assert paths[0] == ("X", "NV", "NV", "NV", "NV", "SYS", "SYS", "SYS")
    assert paths[7] == ("SYS", "SYS", "SYS", "NV", "NV", "NV", "NV", "X")


def test_gpus_without_links_are_told_apart_by_host_bridge_and_numa_node() -> None:
    paths = matrix("l40s-octo").paths

    assert [" ".join(row) for row in paths] == [
        "X PHB PHB PHB SYS SYS SYS SYS",
        "PHB X PHB PHB SYS SYS SYS SYS",
        "PHB PHB X PHB SYS SYS SYS SYS",
        "PHB PHB PHB X SYS SYS SYS SYS",
        "SYS SYS SYS SYS X PHB PHB PHB",
        "SYS SYS SYS SYS PHB X PHB PHB",
        "SYS SYS SYS SYS PHB PHB X PHB",
        "SYS SYS SYS SYS PHB PHB PHB X",
    ]


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

    assert [" ".join(row) for row in found.paths] == [
        "X NODE NODE SYS",
        "NODE X PHB SYS",
        "NODE PHB X SYS",
        "SYS SYS SYS X",
    ]


def test_what_is_not_published_is_not_guessed() -> None:
    devices = [{"name": name, "attributes": {"type": {"string": "gpu"}}} for name in ("a", "b")]

    found = matrix_of(published_gpus([{"spec": {"devices": devices}}], ()))

    assert found.paths == (("X", "-"), ("-", "X"))


def test_every_matrix_is_symmetric() -> None:
    for machine in ("dgx-a100", "a30-quad", "gb200-tray", "dgx2"):
        paths = matrix(machine).paths
        assert paths == tuple(zip(*paths, strict=True))


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
