"""What pictures show: who reaches whom, who holds what, and which forms a GPU has."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from fakegpu.machine.spec import known_machines
from gpuctl.__main__ import commands
from tests.gpuctl.svg.pictures import SPACE, read_picture, words_of

ROOT = Path(__file__).resolve().parents[3]


def run(*words: str) -> str:
    found = CliRunner().invoke(commands, [*words, "-o", "svg"], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.stdout


@pytest.mark.parametrize("machine", [one for one in known_machines() if not one.startswith("vgpu-")])
def test_the_topology_of_every_machine_is_a_picture(machine: str) -> None:
    text = run("topology", "--machine", machine)

    root = read_picture(text)

    assert words_of(root)[0].startswith(f"{machine}: ")
    assert run("topology", "--machine", machine) == text


def test_links_of_a_cube_mesh_are_arcs_and_those_behind_switches_a_bar() -> None:
    mesh, switched = (read_picture(run("topology", "--machine", one)) for one in ("dgx1-v100", "hgx-h100"))

    arcs = [one for one in mesh.iter(f"{SPACE}path") if one.get("class") == "nvlink"]
    hints = {one.findtext(f"{SPACE}title"): one.get("stroke-width") for one in arcs}
    assert len(arcs) == 16
    assert (hints["GPU0 to GPU1: NV1"], hints["GPU0 to GPU3: NV2"]) == ("1.5", "3")
    assert "NV18 between each two of 8 GPUs" in words_of(switched)
    assert "GPU0 to GPU1 NV1; " in (mesh.findtext(f"{SPACE}desc") or "")


def test_gpus_below_one_switch_root_and_numa_node_have_a_bracket_in_common() -> None:
    words = words_of(read_picture(run("topology", "--machine", "l40s-octo")))

    assert [one for one in words if one.startswith("switch ")] == [
        *("switch 15:00.0", "switch 2f:00.0"),
        *("switch af:00.0", "switch c8:00.0"),
    ]
    assert [one for one in words if one.startswith("NUMA ")] == ["NUMA 0", "NUMA 1"]
