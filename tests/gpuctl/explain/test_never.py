"""What no node can ever give is told as such; claims that end are named only where that would help."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpuctl.explain.answer import explain_claim, explain_pod
from gpuctl.explain.findings import Explanation
from gpuctl.plan.planned import plan_node
from tests.gpuctl.explain.objects import CLASS, NODE, claim, held, pod, snapshot

GPUS = ("gpu-0000-17-00-0", "gpu-0000-65-00-0", "gpu-0000-ca-00-0", "gpu-0000-e3-00-0")
NODE_B = {"metadata": {"name": "node-b", "labels": {}}, "spec": {}}


def kinds(told: Explanation) -> list[str]:
    return [one.kind for one in told.findings]


def taint_rule(*devices: str) -> tuple[dict[str, Any], ...]:
    taint = {"key": "service", "effect": "NoSchedule"}
    return tuple({"spec": {"deviceSelector": {"device": one}, "taint": taint}} for one in devices)


def test_more_than_any_node_has_never_comes_whatever_claims_end() -> None:
    told = explain_claim(claim(count=5), snapshot(claims=(held("theirs", *GPUS[:2]),)))

    assert told.summary == "no node has the devices that it asks for, and no node can ever serve it as it is"
    (finding,) = told.findings
    assert finding.kind == "never"
    assert finding.message == (
        "no node can ever serve request gpus, which wants 5 devices of class gpu: the most on one "
        "node is 4, on node-a"
    )
    assert finding.remedy == "ask for less, or add a node that has as much; waiting does not help"
    assert [node.never for node in told.requests[0].nodes] == [True]


def test_as_many_as_a_node_has_come_when_the_claims_there_end() -> None:
    told = explain_claim(claim(count=4), snapshot(claims=(held("theirs", *GPUS[:2]),)))

    assert told.summary == "no node has the devices that it asks for"
    assert kinds(told) == ["in-use", "too-few"]
    assert told.findings[0].remedy == "wait until claim default/theirs ends"


def test_only_the_nodes_that_could_ever_serve_say_what_would_help() -> None:
    slices = plan_node("a30-quad", "node-a", None).slices + plan_node("hgx-h100", "node-b", None).slices
    (on_b,) = [
        {**one, "status": {"allocation": {"devices": {"results": results}}}}
        for one in [claim("other")]
        for results in [[{"request": "gpus", "driver": "gpu.nvidia.com", "pool": "node-b/gpu.nvidia.com"}]]
    ]
    on_b["status"]["allocation"]["devices"]["results"][0]["device"] = "gpu-0000-1b-00-0"
    state = snapshot(nodes=(NODE, NODE_B), slices=slices, claims=(held("theirs", GPUS[0]), on_b))

    told = explain_claim(claim(count=8), state)

    assert kinds(told) == ["in-use", "too-few"]
    assert all(one.message.startswith("node-b") for one in told.findings)
    assert [node.never for node in told.requests[0].nodes] == [True, False]


def test_a_taint_that_goes_is_what_helps_where_nothing_else_would() -> None:
    told = explain_claim(claim(count=4), snapshot(devicetaintrules=taint_rule(GPUS[0])))

    assert told.summary == "no node has the devices that it asks for"
    assert kinds(told) == ["taint", "too-few"]
    assert told.findings[0].remedy == "usable again once the taint is gone"


def test_taints_do_not_make_a_node_larger() -> None:
    told = explain_claim(claim(count=5), snapshot(devicetaintrules=taint_rule(GPUS[0])))

    assert kinds(told) == ["never"]
    assert "is 4, on node-a" in told.findings[0].message


def test_devices_that_a_pod_has_already_do_not_come_free_for_it() -> None:
    entries = [{"name": name, "resourceClaimName": name} for name in ("first", "second")]
    state = snapshot(claims=(held("first", *GPUS[:2]), claim("second", count=3)))

    told = explain_pod(pod(resourceClaims=entries), state)

    assert "never" in kinds(told)


def test_a_constraint_that_no_free_device_can_meet_is_never_met() -> None:
    wanted = claim(count=3)
    wanted["spec"]["devices"]["constraints"] = [{"matchAttribute": "gpu.nvidia.com/nvlinkDomain"}]

    told = explain_claim(wanted, snapshot(claims=(held("theirs", GPUS[0]),)))

    (finding,) = told.findings
    assert finding.kind == "constraint"
    assert finding.message == (
        "no node can ever have enough devices that meet the constraint on gpu.nvidia.com/nvlinkDomain"
    )


@pytest.mark.parametrize("kind", ["matchAttribute", "distinctAttribute"])
def test_a_constraint_on_what_no_device_has_is_named_and_nobody_is_told_to_add_nodes(kind: str) -> None:
    wanted = claim(count=2)
    wanted["spec"]["devices"]["constraints"] = [{kind: "gpu.nvidia.com/parentUUID"}]

    (finding,) = explain_claim(wanted, snapshot()).findings

    assert finding.kind == "constraint"
    assert finding.message == (
        "node-a has 4 devices for request gpus, but too few of them have gpu.nvidia.com/parentUUID, which a "
        "constraint of claim default/mine compares"
    )
    assert finding.remedy is not None
    assert "add a node" not in finding.remedy


def test_a_request_for_all_says_how_many_that_are_and_how_many_it_can_have() -> None:
    wanted = claim()
    wanted["spec"]["devices"]["requests"][0]["exactly"] = {"deviceClassName": "gpu", "allocationMode": "All"}

    told = explain_claim(wanted, snapshot(claims=(held("theirs", *GPUS[:3]),)))

    assert kinds(told) == ["all", "in-use", "too-few"]
    assert told.findings[0].message == (
        "request gpus wants all 4 matching devices of node-a, and can have 1 of them now"
    )
    assert told.findings[1].remedy == "wait until claim default/theirs ends"


def test_all_forms_of_a_gpu_are_never_had_together(tmp_path: Path) -> None:
    config = tmp_path / "node.yaml"
    config.write_text("version: v1\nrules:\n- {mig: dynamic}\n")
    wanted = claim()
    wanted["spec"]["devices"]["requests"][0]["exactly"] = {"deviceClassName": "gpu", "allocationMode": "All"}

    slices = plan_node("hgx-h100", "node-a", config).slices
    for one in slices:  # with more of them, the limit of a claim is in the way
        one["spec"]["devices"] = (one["spec"].get("devices") or [])[:10]
    (finding,) = explain_claim(wanted, snapshot(slices=slices)).findings

    assert finding.kind == "all"
    assert finding.remedy is not None
    assert "select one form" in finding.remedy


def test_two_requests_that_no_node_can_serve_together_are_told_so() -> None:
    wanted = claim(count=3)
    first = wanted["spec"]["devices"]["requests"][0]
    wanted["spec"]["devices"]["requests"].append({**first, "name": "more"})

    told = explain_claim(wanted, snapshot())

    (finding,) = told.findings
    assert (finding.kind, finding.message) == (
        "together",
        "no node can ever have devices for all requests of default/mine together",
    )


def test_of_alternatives_each_says_why_it_never_comes() -> None:
    asked = {"deviceClassName": "gpu", "allocationMode": "ExactCount"}
    wanted = claim()
    wanted["spec"]["devices"]["requests"] = [
        {"name": "gpus", "firstAvailable": [{"name": str(n), "count": n, **asked} for n in (8, 6)]}
    ]

    told = explain_claim(wanted, snapshot())

    assert [one.message.split(":")[0] for one in told.findings] == [
        f"no node can ever serve request gpus/{n}, which wants {n} devices of class gpu" for n in (8, 6)
    ]


def test_an_alternative_that_nobody_publishes_hides_no_other_that_is_too_large() -> None:
    selectors = [{"cel": {"expression": 'device.driver == "other.example.com"'}}]
    other = {"metadata": {"name": "other"}, "spec": {"selectors": selectors}}
    asked = {"allocationMode": "ExactCount"}
    wanted = claim()
    subs = [
        {"name": "better", "deviceClassName": "other", "count": 1, **asked},
        {"name": "plain", "deviceClassName": "gpu", "count": 4, **asked},
    ]
    wanted["spec"]["devices"]["requests"] = [{"name": "gpus", "firstAvailable": subs}]

    waits = explain_claim(wanted, snapshot(classes=(CLASS, other), claims=(held("theirs", *GPUS[:2]),)))
    subs[1]["count"] = 5
    never = explain_claim(wanted, snapshot(classes=(CLASS, other)))
    subs[1]["deviceClassName"] = "other"
    nothing = explain_claim(wanted, snapshot(classes=(CLASS, other)))

    assert kinds(waits) == ["in-use", "too-few"]
    assert kinds(never) == ["never", "never"]
    assert "gpus/plain, which wants 5 devices of class gpu" in never.findings[1].message
    assert kinds(nothing) == ["no-match", "no-match"]


def test_a_driver_that_publishes_nothing_may_be_on_its_way() -> None:
    told = explain_claim(claim(), snapshot(slices=()))

    assert (told.summary, kinds(told)) == ("no node has the devices that it asks for", ["no-match"])


def test_a_pool_that_is_not_complete_leaves_it_open() -> None:
    (one, *rest) = snapshot().slices
    short = {**one, "spec": {**one["spec"], "pool": {**one["spec"]["pool"], "resourceSliceCount": 9}}}

    told = explain_claim(claim(count=5), snapshot(slices=(short, *rest)))

    assert told.summary == "no node has the devices that it asks for"
    assert kinds(told) == ["pool"]


def test_a_claim_that_asks_for_more_than_a_claim_can_have_is_told_once() -> None:
    told = explain_claim(claim(count=33), snapshot(nodes=(NODE, NODE_B)))

    assert kinds(told) == ["too-many"]
    assert "can ever serve it" in told.summary


@pytest.mark.parametrize(
    ("asked", "reason", "finding"),
    [
        ("64Gi", "64Gi of memory is needed, it has 40Gi", "never"),
        ("20Gi", "20Gi of memory is needed, 10Gi of 40Gi is left", "capacity"),
    ],
)
def test_an_amount_is_told_beside_what_is_left(asked: str, reason: str, finding: str) -> None:
    memory = {"value": "40Gi", "requestPolicy": {"default": "10Gi", "validRange": {"min": "10Gi"}}}
    device = {"name": "share", "allowMultipleAllocations": True, "capacity": {"memory": memory}}
    spec = {
        "driver": "gpu.nvidia.com",
        "nodeName": "node-a",
        "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
        "devices": [device],
    }
    theirs = held("theirs", "share")
    theirs["status"]["allocation"]["devices"]["results"][0] |= {
        "pool": "p",
        "shareID": "1",
        "consumedCapacity": {"memory": "30Gi"},
    }
    wanted = claim()
    wanted["spec"]["devices"]["requests"][0]["exactly"]["capacity"] = {"requests": {"memory": asked}}
    before = (theirs,) if finding == "capacity" else ()

    told = explain_claim(
        wanted, snapshot(slices=({"metadata": {"name": "s"}, "spec": spec},), classes=(CLASS,), claims=before)
    )

    (outcome,) = told.requests[0].nodes[0].outcomes
    assert outcome.reason.startswith(reason)
    assert kinds(told) == [finding]
    if finding == "capacity":
        assert "10Gi of 40Gi is left" in told.findings[0].message
        assert told.findings[0].remedy == "wait until claim default/theirs ends"


@pytest.mark.parametrize(
    ("offered", "asked", "remedy"),
    [
        ("shares: 4", {"memory": "10Gi"}, 'number: ask for shares: "1" to "4", or let the node offer memory'),
        ("memory: {step: 5Gi}", {"shares": "2"}, "memory: ask for memory, or let the node offer shares"),
        ("shares: 4, memory: {step: 5Gi}", {"memory": "90Gi"}, "ask for less"),
    ],
)
def test_shares_by_another_measure_are_told_so(
    tmp_path: Path, offered: str, asked: dict[str, str], remedy: str
) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(f"{{version: v1, rules: [{{shared: {{strategy: MPS, {offered}}}}}]}}")
    wanted = claim()
    wanted["spec"]["devices"]["requests"][0]["exactly"]["capacity"] = {"requests": asked}

    told = explain_claim(wanted, snapshot(slices=plan_node("a30-quad", "node-a", rules).slices))

    assert [remedy in str(one.remedy) for one in told.findings] == [True]
