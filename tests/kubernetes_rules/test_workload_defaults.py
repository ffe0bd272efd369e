"""Workloads are stored with the defaults that the API server fills in."""

from __future__ import annotations

from typing import Any

from kubernetes_rules.defaults import NO_LIMIT, defaulted_workload

Object = dict[str, Any]


def workload(kind: str, **spec: Any) -> Object:
    metadata = {"name": "w", "uid": "u"}
    return defaulted_workload({"kind": kind, "metadata": metadata, "spec": spec}, is_new=True)


def test_a_job_that_says_more_keeps_it() -> None:
    queue = workload("Job", parallelism=3)["spec"]
    assert "completions" not in queue
    assert workload("Job", completions=3)["spec"]["parallelism"] == 1
    assert workload("Job", backoffLimitPerIndex=1)["spec"]["backoffLimit"] == NO_LIMIT
    assert workload("Job", podFailurePolicy={})["spec"]["podReplacementPolicy"] == "Failed"
    manual = workload("Job", manualSelector=True, selector={"matchLabels": {"a": "b"}})
    assert manual["spec"]["selector"] == {"matchLabels": {"a": "b"}}
    assert "labels" not in manual["metadata"]
    again = defaulted_workload(workload("Job"), is_new=False)
    assert again == workload("Job")


def test_the_object_that_is_given_stays_as_it_is() -> None:
    given: Object = {"kind": "ReplicaSet", "metadata": {"name": "w"}, "spec": {"template": {"spec": {}}}}

    assert defaulted_workload(given, is_new=True)["spec"]["replicas"] == 1
    assert given["spec"] == {"template": {"spec": {}}}
