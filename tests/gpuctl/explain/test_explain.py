"""``gpuctl explain`` beyond waiting pods: claims, pods that run or cannot start, and what may not be read."""

import pytest

from gpuctl.explain.answer import explain_pod
from kubernetes_rules.preemption.cluster import closed
from tests.clusters import Object, explain_claim
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


MOON = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["moon"]}]}
ON_MOON = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [MOON]}}
ON_NODE_B = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-b"]}]}
ELSEWHERE = claim(allocation={"nodeSelector": {"nodeSelectorTerms": [ON_NODE_B]}})
ONLY_PREFERS = {"key": "c", "effect": "PreferNoSchedule"}
TAINT = {"key": "a", "value": "b", "effect": "NoExecute"}


@pytest.mark.parametrize(
    ("changed", "spec", "claims", "reason"),
    [
        ({"unschedulable": True}, {}, (), "it is cordoned"),
        ({"taints": [TAINT]}, {}, (), "does not tolerate its taint a=b:NoExecute"),
        (
            {"taints": [TAINT, ONLY_PREFERS]},
            {"tolerations": [{"key": "a", "operator": "Exists"}]},
            (),
            "None",
        ),
        ({}, {"affinity": {"nodeAffinity": ON_MOON}}, (), "does not match the pod's required node affinity"),
        ({}, {}, (ELSEWHERE,), "the claim mine has its devices on another node"),
    ],
)
def test_a_closed_node_says_why(
    changed: Object, spec: Object, claims: tuple[Object, ...], reason: str
) -> None:
    assert reason in str(closed(pod(**spec), {**NODE, "spec": changed}, claims))
