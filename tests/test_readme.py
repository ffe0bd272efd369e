"""README.md and its neighbours tell the truth: commands, links, figures, and what a pod sees."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from click import Context

from envtest.embedded.api.server import EmbeddedApiServer
from gpuctl.__main__ import commands
from kubernetes_rules.allocator.allocate import Allocator
from kubernetes_rules.defaults import defaulted_claim_spec
from tests.deviceclasses.published_nodes import plan
from tests.deviceclasses.sample_claims import NODE_OBJECT
from tests.deviceclasses.shipped_classes import ALL

Object = dict[str, Any]

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
PAGES = ("README.md", "SECURITY.md", "docs/ROADMAP.md")
_LINK = re.compile(r"\]\(([^)#]+)[^)]*\)")
_MIB = 1024**2


def block(language: str) -> str:
    """The first fenced block of that language."""
    return README.partition(f"```{language}\n")[2].partition("```")[0]


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_to_a_file_of_the_repository(page: str) -> None:
    links = _LINK.findall((ROOT / page).read_text())

    assert links
    assert [link for link in links if not (ROOT / page).parent.joinpath(link).exists()] == []


def test_every_command_is_one_that_there_is() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"`make ([a-z-]+)", README))
    known = set(commands.list_commands(Context(commands)))

    assert {"demo", "image", "bench", "test"} <= targets
    assert [one for one in targets if not re.search(rf"^{one}:", makefile, re.MULTILINE)] == []
    assert set(re.findall(r"gpuctl ([a-z]+)[ `]", README)) - {"alone"} <= known


def test_the_claim_and_the_pod_that_are_shown_are_taken_by_the_api_server() -> None:
    places = {
        "Pod": "/api/v1/namespaces/default/pods",
        "ResourceClaimTemplate": "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates",
    }
    with EmbeddedApiServer() as server:
        for one in yaml.safe_load_all(block("yaml")):
            server.create(places[one["kind"]], one)


def test_what_the_pod_is_shown_to_see_is_its_share_of_that_gpu() -> None:
    template, _ = yaml.safe_load_all(block("yaml"))
    all_tiers = (ROOT / "deploy" / "examples" / "node-config" / "all-tiers.yaml").read_text()
    planned = plan("hgx-h100", all_tiers)
    claim = {
        "metadata": {"name": "share", "namespace": "default", "uid": "share"},
        "spec": defaulted_claim_spec(template["spec"]["spec"]),
    }

    allocations = Allocator(planned.slices, ALL.values(), ()).allocate(NODE_OBJECT, [claim])

    assert allocations is not None
    (result,) = allocations[0]["devices"]["results"]
    gpu = planned.inventory.gpus[0]
    assert gpu.product_name is not None
    assert gpu.shareable_bytes is not None
    assert result["device"].endswith("-mps-4")
    shown = README.partition("```\nGPU 0: ")[2].partition("```")[0]
    assert shown.startswith(gpu.product_name)
    assert f"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0={gpu.shareable_bytes // 4 // _MIB}M " in shown
    assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25 " in shown


def test_nothing_is_said_to_be_seen_on_hardware_as_long_as_nothing_was() -> None:
    compatibility = (ROOT / "docs" / "compatibility.md").read_text()
    rows = [line.split("|")[1:-1] for line in README.splitlines() if line.startswith("| **")]

    assert "**No real GPU has been seen by these tests.**" in compatibility
    assert len(rows) > 10
    assert {row[1].strip() for row in rows} == {"no"}
    assert [row[0].partition("**,")[0] for row in rows if row[2].strip() != "no"] == [" **Whole GPUs"]
    assert {cell.strip() for row in rows for cell in row[3:]} == {"seen", "in part", "no"}


def test_the_figures_of_speed_are_the_limits_that_the_benchmark_holds() -> None:
    limits = {
        row[0]: row[-1]
        for line in (ROOT / "docs" / "performance.md").read_text().splitlines()
        if (row := [cell.strip() for cell in line.split("|")[1:-1]])
    }
    speed = README.partition("## Speed")[2].partition("\n## ")[0]

    assert f"at most {limits['prepare, one at a time']} times" in speed
    assert f"at most {limits['64 claims at once on 16 GPUs']} times" in speed
    assert f"within **{limits['slices back after a kubelet restart']}**" in speed


def test_the_table_of_what_a_node_publishes_is_what_it_publishes() -> None:
    text = (ROOT / "docs" / "scale.md").read_text()
    rows = re.findall(r"^\| (?:\[([a-z-]+\.yaml)\]|none).*\| (\d+) \| (\d+) \| \d+ \|$", text, re.MULTILINE)

    assert len(rows) == 6
    for file, devices, slices in rows:
        config = (ROOT / "deploy" / "examples" / "node-config" / file).read_text() if file else None
        planned = plan("hgx-h100", config)
        found = sum(len(one["spec"].get("devices") or ()) for one in planned.slices)
        assert (file, str(found), str(len(planned.slices))) == (file, devices, slices)
