"""What ``gpuctl describe`` says about a node, GPUs and claims stays as it was approved."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from envtest.embedded.server import EmbeddedApiServer
from tests.gpuctl.approved import approve
from tests.gpuctl.describe.test_describe import Cluster
from tests.gpuctl.plan.printed import printed

TODAY = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?<!2026-01-02T03:04:0\d)Z")
"""A moment that the API server writes, and none of the tests' own."""

SITUATIONS = {
    "describe/node": "describe node node-a",
    "describe/gpu-sick": "describe gpu node-a/1",
    "describe/gpu-cut": "describe gpu node-a/0000:1b:00.0",
    "describe/gpu-ambiguous": "describe gpu 0000:1b:00.0",
    "describe/gpu-unknown": "describe gpu node-a/8",
    "describe/claim": "describe claim train -n team",
    "describe/claim-json": "describe claim ci -n team -o json",
    "describe/claim-unknown": "describe claim none -n team",
    "describe/node-unknown": "describe node node-x",
    "describe/pod": "describe pod train",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with EmbeddedApiServer() as server:
        yield Cluster(server, tmp_path_factory.mktemp("cluster"))


@pytest.mark.parametrize(("situation", "command"), SITUATIONS.items())
def test_the_answer_is_the_approved_one(cluster: Cluster, situation: str, command: str) -> None:
    text = printed(*command.split(), "--kubeconfig", cluster.kubeconfig, name=command)

    approve(situation, TODAY.sub("TIME", text))
