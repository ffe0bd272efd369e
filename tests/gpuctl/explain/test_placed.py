"""A pod that has a node runs, cannot be prepared there, or has ended; old events change nothing about it."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from gpuctl.explain.answer import explain_claim, explain_pod
from gpuctl.explain.findings import BAD, Explanation
from tests.gpuctl.explain.objects import held, pod, snapshot

EARLY, LATE = "2026-01-01T10:00:00Z", "2026-01-01T10:05:00Z"


def event(at: str, message: str = "device gpu-1 is still held") -> dict[str, Any]:
    about = {"involvedObject": {"uid": "pod"}, "message": message, "lastTimestamp": at}
    return {"reason": "FailedPrepareDynamicResources", **about}


def explained(status: dict[str, Any], *events: dict[str, Any], node: str | None = "node-a") -> Explanation:
    placed = pod(**({"nodeName": node} if node else {}))
    placed["status"] = {"phase": "Pending", **status}
    return explain_pod(placed, snapshot(events=events))


def ready(status: str, since: str) -> dict[str, Any]:
    kind = "PodReadyToStartContainers"
    return {"conditions": [{"type": kind, "status": status, "lastTransitionTime": since}]}


def test_a_running_pod_needs_no_explanation() -> None:
    told = explained({"phase": "Running"})

    assert (told.verdict, told.summary) == ("runs", "it runs on node-a")


def test_a_pod_that_its_node_cannot_prepare_quotes_the_kubelet() -> None:
    told = explained({}, event(EARLY, "first"), event(LATE, "last"))

    assert (told.verdict, told.findings[0].message) == ("fails", "last")


@pytest.mark.parametrize(
    "status",
    [
        ready("True", LATE),
        {"phase": "Running", **ready("True", LATE)},
        {"initContainerStatuses": [{"name": "init", "state": {"running": {"startedAt": LATE}}}]},
        {
            "containerStatuses": [
                {
                    "name": "main",
                    "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                    "lastState": {"terminated": {"startedAt": LATE, "exitCode": 1}},
                }
            ]
        },
    ],
    ids=["its sandbox is there", "it runs", "an init container runs", "a container ended"],
)
def test_a_failed_prepare_before_the_pod_was_ready_is_no_reason(status: dict[str, Any]) -> None:
    assert not any(one.kind == "prepare" for one in explained(status, event(EARLY)).findings)


@pytest.mark.parametrize(
    "status",
    [
        ready("False", LATE),
        ready("True", EARLY),
        {
            "phase": "Running",
            "containerStatuses": [{"name": "main", "state": {"running": {"startedAt": EARLY}}}],
        },
    ],
    ids=["its sandbox is gone", "it was ready before", "its container started before"],
)
def test_a_failed_prepare_after_the_pod_was_ready_is_one(status: dict[str, Any]) -> None:
    told = explained(status, event(LATE))

    assert told.verdict == "fails"
    assert told.summary == "it is placed on node-a, which cannot prepare its claims"


@pytest.mark.parametrize(
    ("change", "said", "todo"),
    [
        (
            {"taints": [{"key": "gpu.nvidia.com/xid", "value": "79", "effect": "NoSchedule"}]},
            (
                "claim default/mine has gpu-0000-17-00-0 on GPU 0 (0000:17:00.0) of node-a: "
                "XID 79 (the GPU fell off the bus) (gpu.nvidia.com/xid=79:NoSchedule)"
            ),
            "drain the node and restart the machine",
        ),
        (
            {"name": "gpu-other"},
            "claim default/mine has gpu-0000-17-00-0 of node-a, which is not published any more",
            "`gpuctl doctor node-a` looks for the reason",
        ),
        (
            {"taints": [{"key": "gpu.nvidia.com/memory", "value": "rows-pending", "effect": "None"}]},
            "",
            "",
        ),
    ],
)
def test_a_sick_device_of_a_running_pod_and_of_its_claim_is_named(
    change: dict[str, Any], said: str, todo: str
) -> None:
    slices = copy.deepcopy(snapshot().slices)
    slices[0]["spec"]["devices"][0].update(change)
    seen = snapshot(slices=slices, claims=(held("mine", "gpu-0000-17-00-0"),))
    uses = [{"name": "gpu", "resourceClaimName": "mine"}]
    containers = [{"name": "main", "resources": {"claims": [{"name": "gpu"}]}}]
    running = pod("Running", nodeName="node-a", resourceClaims=uses, containers=containers)

    for told in (explain_pod(running, seen), explain_claim(seen.claims[0], seen)):
        assert [(one.message, (one.remedy or "").partition(";")[0]) for one in told.findings] == [
            *([(said, todo)] if said else [])
        ]
        assert told.verdict in ("runs", "allocated")


@pytest.mark.parametrize(("phase", "verdict"), [("Pending", "fails"), ("Running", "runs")])
def test_a_container_that_cannot_be_started_is_named(phase: str, verdict: str) -> None:
    waiting = {"reason": "CreateContainerError", "message": "CDI device\nnot found"}
    told = explained({"phase": phase, "containerStatuses": [{"name": "main", "state": {"waiting": waiting}}]})

    assert told.verdict == verdict
    assert [one.message for one in told.findings] == [
        "container main: CreateContainerError CDI device not found"
    ]


def test_an_event_in_the_format_of_series_is_as_old_as_its_last_time() -> None:
    status = ready("True", "2026-01-01T10:03:00Z")
    late = {**event(""), "series": {"lastObservedTime": "2026-01-01T10:05:00.123456Z"}}

    assert explained(status, late).verdict == "fails"
    assert explained(status, {**late, "series": {"lastObservedTime": EARLY}}).verdict == "runs"


def test_a_failed_pod_has_failed_and_says_what_its_status_says() -> None:
    ended = {"name": "main", "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}
    told = explained(
        {
            "phase": "Failed",
            "reason": "Evicted",
            "message": "the node was low on memory",
            "containerStatuses": [ended, {"name": "side", "state": {"terminated": {"exitCode": 0}}}],
        },
        event(LATE),
    )

    assert (told.verdict, told.summary) == ("failed", "it has failed on node-a")
    assert told.verdict in BAD
    assert [one.message for one in told.findings] == [
        "Evicted: the node was low on memory",
        "container main ended with exit code 137 (OOMKilled)",
    ]


def test_a_pod_that_has_ended_well_has() -> None:
    told = explained({"phase": "Succeeded"}, event(LATE))

    assert (told.verdict, told.summary) == ("succeeded", "it has ended well on node-a")
    assert told.verdict not in BAD


def test_a_pod_that_failed_before_it_had_a_node_names_none() -> None:
    assert explained({"phase": "Failed"}, node=None).summary == "it has failed"
