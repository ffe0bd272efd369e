"""Workloads are stored with the defaults that the API server fills in."""

from __future__ import annotations

from typing import Any

from kubernetes_rules.defaults import NO_LIMIT, defaulted_workload

Object = dict[str, Any]


def workload(kind: str, **spec: Any) -> Object:
    metadata = {"name": "w", "uid": "u"}
    return defaulted_workload({"kind": kind, "metadata": metadata, "spec": spec}, is_new=True)


def test_a_deployment_rolls_over_by_quarters_and_keeps_its_history() -> None:
    spec = workload("Deployment")["spec"]

    assert (spec["replicas"], spec["revisionHistoryLimit"], spec["progressDeadlineSeconds"]) == (1, 10, 600)
    rolling = {"maxUnavailable": "25%", "maxSurge": "25%"}
    assert spec["strategy"] == {"type": "RollingUpdate", "rollingUpdate": rolling}
    assert spec["template"]["spec"]["restartPolicy"] == "Always"
    assert workload("Deployment", strategy={"type": "Recreate"})["spec"]["strategy"] == {"type": "Recreate"}
    half = {"rollingUpdate": {"maxSurge": 0}}
    kept = workload("Deployment", strategy=half)["spec"]["strategy"]["rollingUpdate"]
    assert kept == {"maxSurge": 0, "maxUnavailable": "25%"}
    assert workload("Deployment", replicas=0)["spec"]["replicas"] == 0


def test_a_new_job_selects_its_own_pods_and_is_labelled_as_they_are() -> None:
    job = workload("Job")

    labels = {"job-name": "w", "controller-uid": "u"}
    labels |= {f"batch.kubernetes.io/{key}": value for key, value in labels.items()}
    assert job["spec"]["template"]["metadata"]["labels"] == labels
    assert job["metadata"]["labels"] == labels
    assert job["spec"]["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}}
    spec = job["spec"]
    assert (spec["completions"], spec["parallelism"], spec["backoffLimit"], spec["suspend"]) == (
        1,
        1,
        6,
        False,
    )
    assert (spec["completionMode"], spec["podReplacementPolicy"]) == ("NonIndexed", "TerminatingOrFailed")


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
