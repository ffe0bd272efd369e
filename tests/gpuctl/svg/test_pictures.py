"""What pictures show: who reaches whom, who holds what, and which forms a GPU has."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from envtest.embedded.server import EmbeddedApiServer
from fakegpu.machine.spec import known_machines
from gpuctl.__main__ import commands
from gpuctl.fleet.cluster import views_of
from gpuctl.status.forms_svg import forms_svg
from gpuctl.status.occupancy_svg import MOST_CARDS, occupancy_svg
from tests.gpuctl.fleet.published import FIRST, SECOND, XID, Object, claim, devices, published
from tests.gpuctl.svg.pictures import SPACE, boxes, read_picture, words_of

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


def test_holders_lie_in_the_bar_where_their_memory_slices_are(tmp_path: Path) -> None:
    slices = published(tmp_path)
    for one in devices(slices, SECOND):
        one["taints"] = [XID]
    views = views_of(slices, [claim("tuning", f"{FIRST}-mig-3g-40gb-4"), claim("train", SECOND)])

    root = read_picture(occupancy_svg(views))

    bar = boxes(root, "free")[1]  # the first one is in the legend
    partition, whole = boxes(root, "partition")[1], boxes(root, "whole")[1]
    assert (partition["x"], partition["width"]) == (bar["x"] + bar["width"] / 2, bar["width"] / 2)
    assert (whole["x"], whole["width"]) == (bar["x"], bar["width"])
    assert "xid=79:NoSchedule" in words_of(root)
    assert "GPU 1 100 % taken: team/train: whole, tainted" in (root.findtext(f"{SPACE}desc") or "")


def test_of_many_nodes_each_gpu_is_a_square_and_sick_ones_come_first(tmp_path: Path) -> None:
    slices: list[Object] = []
    for number in range(MOST_CARDS + 1):
        slices += published(tmp_path, f"node-{number:02}")
    for one in devices(slices[-2:], SECOND):
        one["taints"] = [XID]

    root = read_picture(occupancy_svg(views_of(slices, ())))

    names = [one for one in words_of(root) if one.startswith("node-")]
    assert names[:2] == [f"node-{MOST_CARDS:02}", "node-00"]
    assert len([one for one in boxes(root, "free") if one["width"] == 16]) == 8 * (MOST_CARDS + 1)


def test_the_forms_of_a_gpu_lie_over_its_memory_slices(tmp_path: Path) -> None:
    (view,) = views_of(published(tmp_path), [claim("tuning", f"{FIRST}-mig-3g-40gb-4")])

    root = read_picture(forms_svg([("GPU 0", view.gpus[0])]))

    words = words_of(root)
    assert [one for one in words if one.isdecimal()] == [str(number) for number in range(8)]
    assert {"whole", "2 x mig 3g.40gb", "7 x mig 1g.10gb", "team/tuning"} <= set(words)
    (held,) = boxes(root, "partition")
    assert held["x"] > boxes(root, "free")[0]["x"] + boxes(root, "free")[0]["width"] / 2 - 1


def test_a_plan_draws_gpus_alike_once() -> None:
    config = str(ROOT / "deploy/examples/node-config/all-tiers.yaml")

    words = words_of(read_picture(run("plan", "--machine", "hgx-h100", "--config", config)))

    assert [one for one in words if one.startswith("GPU ")]
    assert len([one for one in words if one == "whole"]) < 8


def test_the_status_of_a_cluster_is_a_picture_and_does_not_go_on(tmp_path: Path) -> None:
    with EmbeddedApiServer() as server:
        for item in published(tmp_path):
            server.create("/apis/resource.k8s.io/v1/resourceslices", item)
        kubeconfig = str(server.write_kubeconfig(tmp_path / "config"))
        words = words_of(read_picture(run("status", "--kubeconfig", kubeconfig)))
        refused = CliRunner().invoke(commands, ["status", "--watch", "-o", "svg", "--kubeconfig", kubeconfig])

    assert "1 node, 8 GPUs: all free, none sick" in [one.replace(", 0 % taken", "") for one in words]
    assert refused.exit_code == 2


def test_what_another_form_excludes_is_drawn_so(tmp_path: Path) -> None:
    (view,) = views_of(published(tmp_path), [claim("tuning", f"{FIRST}-mig-3g-40gb-4")])

    root = read_picture(forms_svg([("GPU 0", view.gpus[0])]))

    *excluded, sample = boxes(root, "excluded")
    half = 206 + (960 - 16 - 206) / 2
    assert sample["width"] == 14
    assert [one for one in excluded if one["x"] + one["width"] <= half] == []
    # Free are the other 3g, the 4g beside it, two 2g and four 1g, and below the holder lies what he has.
    assert (len(boxes(root, "free")), len(excluded)) == (9, 5)
    assert "excluded by what is held" in words_of(root)


def test_what_nobody_holds_excludes_nothing(tmp_path: Path) -> None:
    (view,) = views_of(published(tmp_path), [])

    root = read_picture(forms_svg([("GPU 0", view.gpus[0]), ("GPU 2", view.gpus[2])]))

    assert boxes(root, "excluded") == []
    assert words_of(root).count("share") == 4


def test_of_many_taints_two_lines_are_told(tmp_path: Path) -> None:
    slices = published(tmp_path)
    for one in devices(slices, SECOND):
        one["taints"] = [{**XID, "key": f"gpu.nvidia.com/{key}"} for key in ("xid", "memory", "fabric")]

    words = words_of(read_picture(occupancy_svg(views_of(slices, ()))))

    assert "fabric=79:NoSchedule" in words
    assert "and 2 more taints" in words
