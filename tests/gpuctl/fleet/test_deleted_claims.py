"""Who still has devices from a claim that somebody deleted is named, by pod and namespace."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from envtest.embedded.server import EmbeddedApiServer
from gpuctl.__main__ import commands
from gpuctl.fleet.pods import orphans
from gpuctl.plan.planned import plan_node
from tests.gpuctl.fleet.published import claim

Object = dict[str, Any]


def pod(name: str, *, made: str = "", named: str = "", phase: str = "Running") -> Object:
    """A pod on a node, with a claim that was made for it or one that it names."""
    entries: list[Object] = [{"name": "own", "resourceClaimTemplateName": "gpu"}] if made else []
    entries += [{"name": "named", "resourceClaimName": named}] if named else []
    statuses = [{"name": "own", "resourceClaimName": made}] if made else []
    containers = [{"name": "main", "image": "x"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "team", "uid": f"uid-{name}"},
        "spec": {"nodeName": "node-a", "containers": containers, "resourceClaims": entries},
        "status": {"phase": phase, "resourceClaimStatuses": statuses},
    }


@pytest.mark.parametrize("how", [{"made": "train-gpu"}, {"named": "shared"}])
def test_a_pod_whose_claim_is_gone_is_named(how: dict[str, str]) -> None:
    (name,) = how.values()

    found = orphans([pod("train", **how)], [claim("other", "gpu-0000-17-00-0", pods=("train",))])

    assert found == (f"pod team/train on node-a has devices from claim {name}, which is deleted",)


def test_a_claim_that_was_made_anew_under_its_name_is_another_one() -> None:
    again = claim("train-gpu", "gpu-0000-17-00-0", pods=("victim",))
    assert len(orphans([pod("train", made="train-gpu")], [again])) == 1


def test_a_pod_that_has_its_claim_or_has_ended_or_waits_is_not() -> None:
    has = claim("train-gpu", "gpu-0000-17-00-0", pods=("train",))
    waits = pod("waits", named="none")
    del waits["spec"]["nodeName"]
    ended = pod("ended", named="none", phase="Succeeded")

    assert orphans([pod("train", made="train-gpu"), waits, ended, pod("plain")], [has]) == ()


@pytest.fixture
def server() -> Iterator[EmbeddedApiServer]:
    with EmbeddedApiServer() as running:
        yield running


def test_status_names_the_pod_where_a_node_told_of_a_deleted_claim(
    server: EmbeddedApiServer, tmp_path: Path
) -> None:
    kubeconfig = server.write_kubeconfig(tmp_path / "kubeconfig")
    (published,) = plan_node("a30-quad", "node-a", None).slices
    published["spec"]["devices"][0]["taints"] = [
        {"key": "gpu.nvidia.com/blocked", "value": "deleted-claim", "effect": "NoSchedule"}
    ]
    server.create("/apis/resource.k8s.io/v1/resourceslices", published)
    server.create("/api/v1/namespaces", {"metadata": {"name": "team"}})
    stored = server.create("/api/v1/namespaces/team/pods", pod("stole", named="lost"))
    server.replace("/api/v1/namespaces/team/pods/stole/status", {**stored, "status": {"phase": "Running"}})

    told = CliRunner().invoke(commands, ["status", "--kubeconfig", str(kubeconfig)])

    assert "pod team/stole on node-a has devices from claim lost, which is deleted" in told.output
    assert told.exit_code == 3
