"""``gpuctl plan`` shows what a node would publish, as the controller would."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from driver.errors import ConfigError
from envtest.embedded.server import EmbeddedApiServer
from fakegpu.machine.spec import known_machines
from gpuctl.__main__ import commands
from gpuctl.plan.planned import plan_node


def run(*arguments: str) -> Any:
    return CliRunner().invoke(commands, ["plan", *arguments], catch_exceptions=False)


@pytest.mark.parametrize("machine", known_machines())
def test_the_planned_slices_of_every_machine_are_taken_by_an_api_server(machine: str) -> None:
    with EmbeddedApiServer() as server:
        for item in plan_node(machine, "node-a", None).slices:
            stored = server.create("/apis/resource.k8s.io/v1/resourceslices", item)
            for device in stored["spec"].get("devices", ()):
                if "taints" in device:  # the server says since when
                    device["taints"] = [
                        {name: value for name, value in taint.items() if name != "timeAdded"}
                        for taint in device["taints"]
                    ]
            assert stored["spec"].get("devices") == item["spec"].get("devices")


def test_json_and_yaml_hold_the_same_list_and_people_get_a_table() -> None:
    as_json = json.loads(run("--machine", "a30-quad", "-o", "json").output)
    as_yaml = yaml.safe_load(run("--machine", "a30-quad", "-o", "yaml").output)
    table = run("--machine", "a30-quad", "--node-name", "worker-7").output

    assert as_json == as_yaml
    (item,) = as_json["items"]
    assert (as_json["kind"], item["kind"]) == ("List", "ResourceSlice")
    assert item["spec"]["pool"] == {
        "name": "node/gpu.nvidia.com",
        "generation": 1,
        "resourceSliceCount": 1,
    }
    assert [device["name"] for device in item["spec"]["devices"]] == [
        "gpu-0000-17-00-0",
        "gpu-0000-65-00-0",
        "gpu-0000-ca-00-0",
        "gpu-0000-e3-00-0",
    ]
    assert "NVIDIA A30" in table
    assert "1 slice, 4 devices; driver gpu.nvidia.com, pool worker-7/gpu.nvidia.com" in table


def test_a_hidden_gpu_is_named_with_the_reason(tmp_path: Path) -> None:
    config = tmp_path / "node.yaml"
    config.write_text("version: v1\nrules:\n- when: gpu.index == 1\n  offer: hidden\n")

    output = run("--machine", "a30-quad", "--config", str(config)).output

    assert "1 slice, 3 devices" in output
    assert "not offered: 0000:65:00.0: the node configuration hides it" in output


def test_an_unknown_machine_is_named_with_those_that_are_there() -> None:
    with pytest.raises(ConfigError, match=r"there is no machine 'dgx-z'.*dgx-a100"):
        run("--machine", "dgx-z")


def test_gpus_that_are_cut_stand_in_one_row_each_and_counters_are_told_apart(tmp_path: Path) -> None:
    config = tmp_path / "node.yaml"
    config.write_text(
        "version: v1\nrules:\n"
        "- {when: gpu.index < 2, mig: {dynamic: {profiles: [1g, 3g]}}}\n"
        "- {when: gpu.index == 2, mig: {layout: [3g, 3g]}}\n"
    )

    output = run("--machine", "hgx-h100", "--config", str(config)).output

    assert "node: 8 x NVIDIA H100 80GB HBM3" in output
    assert output.count("0000:1b:00.0") == output.count("0000:52:00.0") == 1
    assert output.count("7 x 1g.10gb,") == 2
    assert "2 slices, 27 devices, counters of 2 GPUs; driver gpu.nvidia.com" in output


POOLS = """\
version: v1
pools:
  - name: cut
    nodeSelector: {matchLabels: {pool: cut}}
    rules: [{mig: {layout: all-1g}}]
rules: [{offer: hidden}]
"""


def test_a_configuration_with_pools_is_that_of_the_nodes_labels(tmp_path: Path) -> None:
    config = tmp_path / "pools.yaml"
    config.write_text(POOLS)
    asked = ("--machine", "t4", "--config", str(config))

    with pytest.raises(ConfigError, match=r"has pools of nodes.*--node-labels"):
        run(*asked)
    wrong = run(*asked, "--node-labels", "pool")
    assert (wrong.exit_code, "pool is not KEY=VALUE" in wrong.output) == (2, True)
    assert "MIG" in run(*asked, "--node-labels", "zone=a,pool=cut").output
    assert "the node configuration hides it" in run(*asked, "--node-labels", "zone=a").output


def test_what_faults_lead_to_is_said(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(
        '{version: v1, health: {evict: [lost, needs-reset], xids: {"94": needs-reset, 13: ignore}}}'
    )
    text = " ".join(run("--machine", "t4", "--config", str(file)).output.split())
    assert "pods are evicted from a GPU that is tainted as lost, needs-reset" in text
    assert "with a judgment of the node configuration: 13 ignore, 94 needs-reset" in text
    assert "evicted" not in run("--machine", "t4").output
