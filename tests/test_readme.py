"""README.md and its neighbours tell the truth: commands, links, figures, and what a pod sees."""

import re
from pathlib import Path

import pytest
import yaml
from click import Context

from tests.clusters import Allocator, EmbeddedApiServer, commands, defaulted_claim_spec
from tests.deviceclasses.published_nodes import plan
from tests.deviceclasses.sample_claims import NODE_OBJECT
from tests.deviceclasses.shipped_classes import ALL

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
QUICKSTART = ROOT / "deploy" / "quickstart"
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

    assert {"demo", "image", "test"} <= targets
    assert [one for one in targets if not re.search(rf"^{one}:", makefile, re.MULTILINE)] == []
    assert set(re.findall(r"gpuctl ([a-z]+)[ `]", README)) - {"alone"} <= known


def test_the_example_that_is_shown_is_a_file_and_the_api_server_takes_all_that_it_applies() -> None:
    applied = re.findall(r"kubectl apply -f (deploy/quickstart/\S+)", README)
    places = {
        "Pod": "/api/v1/namespaces/default/pods",
        "ResourceClaimTemplate": "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates",
    }

    assert sorted(applied) == [f"deploy/quickstart/{file.name}" for file in sorted(QUICKSTART.iterdir())]
    assert block("yaml") == (QUICKSTART / "share.yaml").read_text()
    with EmbeddedApiServer() as server:
        for file in applied:
            for one in yaml.safe_load_all((ROOT / file).read_text()):
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
    assert result["device"].endswith("-mps-4-mem")
    shown = README.partition("GPU 0: ")[2].partition("```")[0]
    assert shown.startswith(gpu.product_name)
    assert f"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0={gpu.shareable_bytes // 4 // _MIB}M\n" in shown


def test_it_says_how_little_it_has_run_on_hardware() -> None:
    compatibility = (ROOT / "docs" / "compatibility.md").read_text()

    assert "\nNot tried: MIG partitions" in compatibility.partition("### Seen on a real GPU")[2]
    assert "tried on real hardware for minutes" in README.partition("\n## ")[0]


def test_it_is_short() -> None:
    assert README.count("\n") <= 110
    assert len([link for link in _LINK.findall(README) if not link.startswith("docs/pictures")]) <= 10


def test_the_table_of_what_a_node_publishes_is_what_it_publishes() -> None:
    text = (ROOT / "docs" / "decisions.md").read_text()
    rows = re.findall(r"^\| (?:\[([a-z-]+\.yaml)\]|none).*\| (\d+) \| (\d+) \| \d+ \|$", text, re.MULTILINE)

    assert len(rows) == 6
    for file, devices, slices in rows:
        config = (ROOT / "deploy" / "examples" / "node-config" / file).read_text() if file else None
        planned = plan("hgx-h100", config)
        found = sum(len(one["spec"].get("devices") or ()) for one in planned.slices)
        assert (file, str(found), str(len(planned.slices))) == (file, devices, slices)
