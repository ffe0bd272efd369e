"""``gpuctl explain`` beyond waiting pods: claims, pods that run or cannot start, and what may not be read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from driver.errors import ConfigError
from envtest.embedded.server import EmbeddedApiServer
from gpuctl.__main__ import commands
from gpuctl.explain.answer import explain_claim, explain_pod
from kubernetes_rules.preemption.pod_fit import closed
from tests.costly_selector import COSTLY_SELECTOR
from tests.gpuctl.explain.objects import NODE, claim, pod, snapshot


def test_a_selector_that_costs_too_much_ends_the_answer_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuctl.explain.answer.SELECTOR_SECONDS", 0.0)

    told = explain_claim(claim(), snapshot())

    assert (told.verdict, told.summary) == ("waits", "the reason for its waiting takes too long to work out")
    assert [one.kind for one in told.findings] == ["costly"]
    assert told.findings[0].message == (
        "evaluating selectors takes more than 0 s of processor time, most of it the selector of "
        "DeviceClass gpu: 'device.driver == \"gpu.nvidia.com\"'"
    )


@pytest.mark.parametrize("alternatives", [False, True])
def test_a_request_whose_selector_costs_too_much_is_named(
    monkeypatch: pytest.MonkeyPatch, *, alternatives: bool
) -> None:
    monkeypatch.setattr("gpuctl.explain.answer.SELECTOR_SECONDS", 0.02)
    cheap, costly = claim("cheap"), claim("costly")
    (request,) = costly["spec"]["devices"]["requests"]
    request["exactly"]["selectors"] = [{"cel": {"expression": COSTLY_SELECTOR}}]
    if alternatives:
        request["firstAvailable"] = [{"name": "best", **request.pop("exactly")}]
    waiting = pod(resourceClaims=[{"name": one, "resourceClaimName": one} for one in ("cheap", "costly")])

    told = explain_pod(waiting, snapshot(claims=(cheap, costly)))

    name = "gpus/best" if alternatives else "gpus"
    assert f"most of it the selector of request {name} of claim default/costly: " in told.findings[0].message


@pytest.mark.parametrize(
    ("changed", "spec", "reason"),
    [
        ({"unschedulable": True}, {}, "it is cordoned"),
        (
            {"taints": [{"key": "a", "value": "b", "effect": "NoExecute"}]},
            {},
            "does not tolerate its taint a=b:NoExecute",
        ),
        ({}, {"nodeSelector": {"zone": "moon"}}, "it lacks the label zone=moon"),
        (
            {},
            {
                "affinity": {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [
                                {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["moon"]}]}
                            ]
                        }
                    }
                }
            },
            "does not match the pod's required node affinity",
        ),
    ],
)
def test_a_closed_node_says_why(changed: dict[str, Any], spec: dict[str, Any], reason: str) -> None:
    why = closed(pod(**spec), {**NODE, "spec": changed}, ())

    assert why is not None
    assert reason in why


def test_a_tolerated_taint_and_one_that_only_prefers_close_nothing() -> None:
    node = {
        **NODE,
        "spec": {
            "taints": [{"key": "a", "effect": "NoSchedule"}, {"key": "c", "effect": "PreferNoSchedule"}]
        },
    }

    assert closed(pod(tolerations=[{"key": "a", "operator": "Exists"}]), node, ()) is None


def test_a_claim_with_devices_elsewhere_closes_a_node() -> None:
    here = {"key": "metadata.name", "operator": "In", "values": ["node-b"]}
    allocation = {"nodeSelector": {"nodeSelectorTerms": [{"matchFields": [here]}]}}

    assert (
        closed(None, NODE, (claim(allocation=allocation),))
        == "the claim mine has its devices on another node"
    )


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[EmbeddedApiServer, str]]:
    with EmbeddedApiServer() as server:
        yield server, str(server.write_kubeconfig(tmp_path / "config"))


def test_what_may_not_be_read_is_said(cluster: tuple[EmbeddedApiServer, str]) -> None:
    server, kubeconfig = cluster
    server.create(
        "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims",
        {**claim(), "kind": "ResourceClaim", "apiVersion": "resource.k8s.io/v1"},
    )
    server.fail("list", "/api/v1/nodes", code=403)

    arguments = ["explain", "claim", "mine", "--kubeconfig", kubeconfig]
    result = CliRunner().invoke(commands, [*arguments, "-o", "json"])

    assert result.exit_code == 3
    told = json.loads(result.output)
    assert told["unread"] == ["nodes"]
    assert told["findings"][0]["kind"] == "class-missing"


def test_what_is_not_there_is_an_error_with_a_way_out(cluster: tuple[EmbeddedApiServer, str]) -> None:
    with pytest.raises(ConfigError, match="there is no pod default/nobody: name its namespace with -n"):
        CliRunner().invoke(
            commands, ["explain", "pod", "nobody", "--kubeconfig", cluster[1]], catch_exceptions=False
        )
