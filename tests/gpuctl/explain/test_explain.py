"""``gpuctl explain`` beyond waiting pods: claims, pods that run or cannot start, and what may not be read."""

from __future__ import annotations

import copy
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
from tests.gpuctl.explain.objects import CLASS, NODE, claim, held, pod, snapshot

FIRST = "gpu-0000-17-00-0"


def test_an_allocated_claim_says_what_it_has_and_who_uses_it() -> None:
    told = explain_claim(held("theirs", "gpu-0000-17-00-0"), snapshot())

    assert told.verdict == "allocated"
    assert told.summary == "it has node-a/gpu.nvidia.com/gpu-0000-17-00-0 and is used by theirs-pod"


def test_a_claim_that_would_fit_waits_only_for_a_pod() -> None:
    told = explain_claim(claim(), snapshot())

    assert (told.verdict, told.findings[0].kind) == ("fits", "unused")
    assert "node-a" in told.summary


def test_a_claim_that_nobody_can_serve_names_who_holds_the_devices_and_what_would_help() -> None:
    names = ("gpu-0000-17-00-0", "gpu-0000-65-00-0", "gpu-0000-ca-00-0")
    told = explain_claim(claim(count=2), snapshot(claims=(held("theirs", *names),)))

    assert told.verdict == "waits"
    kinds = {one.kind: one for one in told.findings}
    assert kinds["in-use"].remedy == "wait until claim default/theirs ends"
    assert "node-a has 1 free" in kinds["too-few"].message


def test_a_pod_without_claims_waits_for_something_else() -> None:
    assert explain_pod(pod(), snapshot()).verdict == "fits"


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


def test_scheduling_gates_are_named() -> None:
    told = explain_pod(pod(schedulingGates=[{"name": "example.com/wait"}]), snapshot())

    assert (told.verdict, told.findings[0].kind) == ("waits", "gate")


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


@pytest.mark.parametrize(
    ("request_", "hard", "used", "over"),
    [
        ({"exactly": {"deviceClassName": "gpu", "count": 2}}, {"gpu": "4"}, {"gpu": "3"}, True),
        ({"exactly": {"deviceClassName": "gpu", "count": 1}}, {"gpu": "4"}, {"gpu": "3"}, False),
        ({"exactly": {"deviceClassName": "gpu", "allocationMode": "All"}}, {"gpu": "31"}, {}, True),
        ({"exactly": {"deviceClassName": "gpu", "count": 9}}, {"other": "1"}, {"other": "1"}, False),
        (
            {
                "firstAvailable": [
                    {"deviceClassName": "gpu", "count": 4},
                    {"deviceClassName": "gpu", "count": 1},
                ]
            },
            {"gpu": "3"},
            {},
            True,
        ),
    ],
)
def test_a_quota_that_leaves_no_room_is_named_though_no_event_tells_it(
    request_: dict[str, Any], hard: dict[str, str], used: dict[str, str], over: bool
) -> None:
    suffix = ".deviceclass.resource.k8s.io/devices"
    status = {
        "hard": {f"{name}{suffix}": limit for name, limit in hard.items()},
        "used": {f"{name}{suffix}": amount for name, amount in used.items()},
    }
    requests = [{"name": "gpus", **request_}]
    template = {"metadata": {"name": "gpus"}, "spec": {"spec": {"devices": {"requests": requests}}}}
    entry = {"name": "own", "resourceClaimTemplateName": "gpus"}
    quota = {"metadata": {"name": "tenant"}, "status": status}
    state = snapshot(resourcequotas=(quota,), resourceclaimtemplates=(template,))

    told = explain_pod(pod(resourceClaims=[entry]), state)

    assert told.findings[0].kind == ("quota" if over else "claim-not-made")
    assert ("exceeded quota: tenant" in told.findings[0].message) is over


def test_a_claim_with_the_name_of_a_made_one_is_foreign_unless_the_pod_controls_it() -> None:
    containers = [{"name": "main", "resources": {"claims": [{"name": "own"}]}}]
    entries = [{"name": "own", "resourceClaimTemplateName": "gpus"}]
    waiting = pod(resourceClaims=entries, containers=containers)
    waiting["status"]["resourceClaimStatuses"] = [{"name": "own", "resourceClaimName": "mine"}]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "train", "uid": "pod", "controller": True}
    mine = claim()
    mine["metadata"]["ownerReferences"] = [owner]

    def kinds(made: dict[str, Any]) -> list[str]:
        return [one.kind for one in explain_pod(waiting, snapshot(claims=(made,))).findings]

    assert kinds(mine) == []
    assert kinds(claim()) == ["claim-foreign"]


def test_a_quota_of_an_extended_resource_counts_claims_and_one_with_scopes_does_not() -> None:
    named = {**CLASS, "spec": {**CLASS["spec"], "extendedResourceName": "nvidia.com/gpu"}}
    request_ = {"name": "gpus", "exactly": {"deviceClassName": "gpu", "count": 2}}
    template = {"metadata": {"name": "gpus"}, "spec": {"spec": {"devices": {"requests": [request_]}}}}
    waiting = pod(resourceClaims=[{"name": "own", "resourceClaimTemplateName": "gpus"}])

    def told(resource: str, **spec: Any) -> str:
        quota = {"metadata": {"name": "tenant"}, "spec": spec, "status": {"hard": {resource: "1"}}}
        state = snapshot(resourcequotas=(quota,), classes=(named,), resourceclaimtemplates=(template,))
        return explain_pod(waiting, state).findings[0].kind

    assert told("requests.nvidia.com/gpu") == "quota"
    assert told("requests.deviceclass.resource.kubernetes.io/gpu") == "quota"
    assert told("requests.nvidia.com/gpu", scopes=["BestEffort"]) == "claim-not-made"


def test_a_claim_that_could_not_be_made_is_told_in_the_words_of_the_event() -> None:
    template = {"metadata": {"name": "gpus"}, "spec": {"spec": {"devices": {}}}}
    about = {"involvedObject": {"uid": "pod"}, "message": "admission webhook said no"}
    event = {"reason": "FailedResourceClaimCreation", **about}
    waiting = pod(resourceClaims=[{"name": "own", "resourceClaimTemplateName": "gpus"}])

    told = explain_pod(waiting, snapshot(resourceclaimtemplates=(template,), events=(event,)))

    assert told.findings[0].kind == "claim-not-made"
    assert "admission webhook said no" in told.findings[0].message
    assert told.findings[0].remedy == "correct the template"


def test_a_taint_rule_reaches_only_the_devices_that_it_selects() -> None:
    def rule(**selector: str) -> dict[str, Any]:
        return {"spec": {"deviceSelector": selector, "taint": {"key": "service", "effect": "NoSchedule"}}}

    def tainted(*rules: dict[str, Any]) -> int:
        told = explain_claim(claim(), snapshot(devicetaintrules=rules))
        outcomes = told.requests[0].nodes[0].outcomes
        return sum(len(one.devices) for one in outcomes if one.gate == "taint")

    assert tainted(rule(driver="gpu.nvidia.com")) == 4
    assert tainted(rule(device="gpu-0000-17-00-0")) == 1
    assert tainted(rule(driver="other"), rule(pool="node-b/gpu.nvidia.com")) == 0
    assert tainted({"spec": {"taint": {"key": "service", "effect": "NoSchedule"}}}) == 0


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


def test_devices_that_are_about_to_change_are_named_where_none_is_selected_yet() -> None:
    slices = copy.deepcopy(snapshot().slices)
    changing = {"key": "gpu.nvidia.com/changing", "effect": "NoSchedule"}
    (device, *_) = slices[0]["spec"]["devices"]
    device["taints"] = [changing]
    asked = claim()
    asked["spec"]["devices"]["requests"][0]["exactly"]["selectors"] = [{"cel": {"expression": "false"}}]
    holders = (held("a", device["name"]), held("b", device["name"]))

    one, both, none = (
        explain_claim(asked, snapshot(slices=slices, claims=some)).findings
        for some in (holders[:1], holders, ())
    )

    head = f"node-a is about to offer other devices: {device['name']} disappears when "
    assert [found.kind for found in one] == ["no-match", "changing"]
    assert one[1].message == f"{head}claim default/a ends"
    assert both[1].message == f"{head}claims default/a, default/b end"
    assert [found.kind for found in none] == ["no-match"]


def test_partitions_that_are_withheld_say_why_where_nobody_publishes_one() -> None:
    def with_reason(one: dict[str, Any]) -> dict[str, Any]:
        devices = [
            {**device, "attributes": {**device["attributes"], "migWithheld": {"string": "it needs a reset"}}}
            for device in one["spec"]["devices"][:2]
        ]
        return {**one, "spec": {**one["spec"], "devices": devices}}

    expression = 'device.attributes["gpu.nvidia.com"].type == "mig"'
    partitions = {**CLASS, "spec": {"selectors": [{"cel": {"expression": expression}}]}}
    slices = tuple(with_reason(one) for one in snapshot().slices)

    told = explain_claim(claim(), snapshot(slices=slices, classes=(partitions,)))
    served = explain_claim(claim(count=3), snapshot(slices=slices))

    assert [one.kind for one in told.findings] == ["no-match", "withheld"]
    assert told.findings[1].message == (
        "node-a: partitions of gpu-0000-17-00-0, gpu-0000-65-00-0 are withheld: it needs a reset"
    )
    assert "withheld" not in [one.kind for one in served.findings]


def test_what_the_driver_has_said_about_a_node_is_told_where_nothing_is_published() -> None:
    message = "GPU 0000:07:00.0 is not offered: it has no partition"
    about = {"involvedObject": {"kind": "Node", "name": "node-a"}, "message": message}

    told = explain_claim(claim(), snapshot(slices=(), events=(about, about)))

    assert [one.message for one in told.findings if one.kind == "said"] == [f"node-a: {message}"]


def test_a_node_at_whose_device_the_scheduler_gives_up_is_named_though_another_has_room() -> None:
    (other,) = copy.deepcopy(snapshot().slices)
    hostile = json.loads(json.dumps(other).replace("node-a", "node-b"))
    hostile["spec"]["devices"][0]["attributes"]["driverVersion"] = {"int": 1}
    nodes = (NODE, {"metadata": {"name": "node-b"}, "spec": {}})

    told = explain_claim(
        claim(),
        snapshot(
            nodes=nodes,
            slices=(other, hostile),
            classes=(
                asking("device.attributes['gpu.nvidia.com'].driverVersion.isGreaterThan(semver('5.0.0'))"),
            ),
        ),
    )

    (finding,) = told.findings
    assert (told.verdict, finding.kind) == ("waits", "gives-up")
    assert "the scheduler gives up at one of node-b: device gpu.nvidia.com/node-b/gpu" in finding.message
    assert finding.remedy is not None
    assert finding.remedy.startswith("`kubectl cordon node-b`")


def test_a_selector_that_asks_attributes_for_a_capacity_is_told_where_it_is() -> None:
    expression = "device.attributes['gpu.nvidia.com'].memory >= 40000"
    wrong = {"metadata": CLASS["metadata"], "spec": {"selectors": [{"cel": {"expression": expression}}]}}

    told = explain_claim(claim(), snapshot(classes=(wrong,)))

    (finding,) = told.findings
    reason = f'the selector "{expression}" has no answer: no such key: memory'
    assert finding.message == f"node-a: device gpu.nvidia.com/node-a/gpu.nvidia.com/{FIRST}: {reason}"
    assert finding.remedy == (
        "memory is a capacity: device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('10Gi')) >= 0 "
        "compares it with 10Gi"
    )
    (outcome,) = told.requests[0].nodes[0].outcomes
    assert (outcome.gate, outcome.reason, len(outcome.devices)) == ("selector-failed", reason, 4)


def asking(expression: str) -> dict[str, Any]:
    """A class whose one selector this is."""
    return {"metadata": CLASS["metadata"], "spec": {"selectors": [{"cel": {"expression": expression}}]}}


@pytest.mark.parametrize(
    ("expression", "instead"),
    [
        ("device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('30Gi')) >= 0", "memory is 24Gi"),
        ("device.attributes['gpu.nvidia.com'].productName == 'A30'", "productName is NVIDIA A30"),
        ("device.attributes['gpu.nvidia.com'].migCapable == false", "migCapable is true"),
        (
            "device.attributes['resource.kubernetes.io'].numaNode > 8 ",
            "numaNode is 0 or 1",
        ),
        (
            "device.attributes['gpu.nvidia.com'].index == 9",
            "index is 0, 1, 2 and 1 more",
        ),
    ],
)
def test_what_devices_have_in_place_of_what_is_asked_is_told(expression: str, instead: str) -> None:
    told = explain_claim(claim(), snapshot(classes=(asking(expression),)))

    (outcome,) = told.requests[0].nodes[0].outcomes
    assert outcome.reason == f"not true for these: {expression.strip()}; {instead}"
    assert told.findings[0].remedy == "compare the selectors with what the devices have"


def test_where_nobody_publishes_no_selector_is_to_blame() -> None:
    told = explain_claim(claim(), snapshot(slices=()))

    assert told.findings[0].remedy == "check that the driver runs and publishes devices"


@pytest.mark.parametrize("phase", ["Running", "Pending"])
def test_a_claim_that_no_container_uses_is_told_whatever_becomes_of_the_pod(phase: str) -> None:
    entries = [{"name": name, "resourceClaimName": "theirs"} for name in ("used", "for-nobody")]
    containers = [{"name": "main", "resources": {"claims": [{"name": "used"}]}}]
    spec = {"resourceClaims": entries, "containers": containers, "nodeName": "node-a"}

    told = explain_pod(pod(phase, **spec), snapshot())

    (finding,) = told.findings
    assert (finding.kind, finding.message) == (
        "unused-claim",
        "no container of the pod uses its claim for-nobody, so none sees its devices",
    )
