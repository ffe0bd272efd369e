"""What ``gpuctl explain`` prints, a text for each situation."""

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.clusters import EmbeddedApiServer, Object, commands
from tests.gpuctl.approved import approve
from tests.gpuctl.explain.served import Served
from tests.gpuctl.explain.site import WHOLE, Site, claim_spec

Built = tuple[Site, list[Object]]


def fits() -> Built:
    site = Site("node-a")
    return site, [site.waits("train", claim_spec(WHOLE), priority=10)]


def sick_gpu() -> Built:
    site = Site("node-a")
    pod = site.runs("train", "node-a", claim_spec(WHOLE))
    taint = {"key": "gpu.nvidia.com/xid", "value": "79", "effect": "NoSchedule"}
    for device in (device for one in site.slices for device in one["spec"].get("devices") or ()):
        device["taints"] = [taint]
    pod["status"]["phase"] = "Running"
    return site, []


def three_policies() -> Built:
    site = Site("node-a", "node-b")
    site.runs("batch", "node-a", claim_spec(WHOLE), owner="Job/nightly", movable=False, priority=5)
    site.protect("batch")
    site.runs("note-1", "node-b", claim_spec(shares=1), priority=100)
    site.runs("note-2", "node-b", claim_spec(shares=1), priority=100)
    return site, [site.waits("train", claim_spec(WHOLE), priority=10)]


def other_scheduler() -> Built:
    site = Site("node-a")
    site.runs("batch", "node-a", claim_spec(WHOLE))
    return site, [site.waits("train", claim_spec(WHOLE), priority=10, schedulerName="other")]


SITUATIONS: list[tuple[Callable[[], Built], str]] = [
    (sick_gpu, "claim train-gpu"),
    (three_policies, "pod train"),
    (three_policies, "pod train -o wide"),
    (three_policies, "pods"),
    (three_policies, "pods -o wide"),
    (other_scheduler, "pod train"),
]


def named(case: tuple[Callable[[], Built], str]) -> str:
    """The situation and what is asked, as the name of a file."""
    build, asked = case
    return f"{build.__name__}-{'-'.join(word.strip('-') for word in asked.split())}".replace("_", "-")


@pytest.mark.parametrize("case", SITUATIONS, ids=named)
def test_a_situation_is_explained_like_this(case: tuple[Callable[[], Built], str], tmp_path: Path) -> None:
    build, asked = case
    with EmbeddedApiServer() as server:
        served = Served(server, tmp_path)
        site, pods = build()
        served.load(site, *pods)
        told = served.run(*asked.split(), "-n", "team")

    approve(f"explain/{named(case)}", f"{told.output}exit code {told.exit_code}\n")


MANIFEST = """
kind: Deployment
metadata: {name: later}
spec:
  template:
    spec:
      priority: 10
      containers: [{name: main, image: x, resources: {claims: [{name: gpu}]}}]
      resourceClaims: [{name: gpu, resourceClaimTemplateName: gpu}]
---
kind: ResourceClaimTemplate
metadata: {name: gpu}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}]}}}
"""


@pytest.mark.parametrize("build", [three_policies, fits], ids=["waits", "fits"])
def test_a_manifest_is_explained_before_its_pod_exists(build: Callable[[], Built], tmp_path: Path) -> None:
    file = tmp_path / "later.yaml"
    file.write_text(MANIFEST)
    with EmbeddedApiServer() as server:
        served = Served(server, tmp_path)
        site, pods = build()
        served.load(site, *pods)
        told = served.run("--for", str(file), "-n", "team")

    approve(
        f"explain/for-a-manifest-{build.__name__}".replace("_", "-"),
        f"{told.output}exit code {told.exit_code}\n",
    )


@pytest.mark.parametrize("words", ["", "pod train --for x.yaml", "--for x.yaml -A"])
def test_either_objects_or_a_manifest_are_named(words: str) -> None:
    told = CliRunner().invoke(commands, ["explain", *words.split()])

    assert told.exit_code == 2
