"""A Job's pods are counted, numbered and waited for as the controller of Kubernetes does."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from envtest.embedded.control.workloads import jobs

Object = dict[str, Any]


def job(**spec: Any) -> Object:
    template = {"spec": {"restartPolicy": "Never"}}
    return {"spec": {"backoffLimit": 6, "parallelism": 1, "template": template, **spec}}


def pod(phase: str = "Running", index: int | None = None, **status: Any) -> Object:
    annotations = {} if index is None else {jobs.INDEX: str(index)}
    metadata = {"annotations": annotations, "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"metadata": metadata, "status": {"phase": phase, **status}}


@pytest.mark.parametrize(
    ("indexes", "text"),
    [([], ""), ([3], "3"), ([0, 1], "0,1"), ([0, 1, 2, 5], "0-2,5"), ([7, 1, 0, 3, 4, 5], "0,1,3-5,7")],
)
def test_numbers_of_pods_are_written_as_ranges(indexes: list[int], text: str) -> None:
    assert jobs.indexes_text(indexes) == text
    assert jobs.indexes_in(text) == set(indexes)


def test_the_first_numbers_without_a_pod_are_pending() -> None:
    pods = [pod(index=1), pod("Failed", index=2), pod("Succeeded", index=0)]

    assert jobs.pending_indexes(job(completions=5), {0}, pods) == [2, 3, 4]


@pytest.mark.parametrize(
    ("spec", "succeeded", "active", "wanted"),
    [
        ({"completions": 5, "parallelism": 2}, 0, 0, 2),
        ({"completions": 5, "parallelism": 2}, 4, 1, 1),
        ({"completions": 5, "parallelism": 2}, 6, 0, 0),
        ({"parallelism": 3}, 0, 1, 3),
        ({"parallelism": 3}, 1, 2, 2),  # the others of a work queue may end, and no more are made
    ],
)
def test_no_more_pods_run_than_are_left_to_do(spec: Object, succeeded: int, active: int, wanted: int) -> None:
    assert jobs.wanted_active(job(**spec), succeeded, active) == wanted


def test_a_job_fails_with_too_many_pods_restarts_or_seconds() -> None:
    def reason(one: Object, pods: list[Object], failed: int = 0) -> str | None:
        found = jobs.how_it_ends(one, pods, failed)
        return None if found is None else str(found["reason"])

    assert reason(job(), [], failed=6) is None
    assert reason(job(), [], failed=7) == "BackoffLimitExceeded"
    restarted = pod(containerStatuses=[{"restartCount": 2}])
    assert reason(job(backoffLimit=2), [restarted]) is None
    on_failure = job(backoffLimit=2, template={"spec": {"restartPolicy": "OnFailure"}})
    assert reason(on_failure, [restarted]) == "BackoffLimitExceeded"
    begun = (datetime.now(UTC) - timedelta(seconds=9)).isoformat()
    late = {**job(activeDeadlineSeconds=5), "status": {"startTime": begun}}
    assert reason(late, []) == "DeadlineExceeded"
    assert reason({**job(activeDeadlineSeconds=60), "status": {"startTime": begun}}, []) is None
    suspended = {**job(activeDeadlineSeconds=5, suspend=True), "status": {"startTime": begun}}
    assert reason(suspended, []) is None


def test_the_wait_after_failures_doubles_up_to_ten_minutes() -> None:
    waits = [jobs.back_off_seconds(count) for count in (0, 1, 2, 3, 7, 50)]

    assert waits == [0, 10, 20, 40, 600, 600]


def test_a_pod_ended_with_its_last_container() -> None:
    def ended(moment: str) -> Object:
        return {"state": {"terminated": {"finishedAt": moment}}}

    both = pod(containerStatuses=[ended("2026-01-01T00:00:05Z"), ended("2026-01-01T00:00:09Z")])
    unready = pod(
        conditions=[{"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:07Z"}]
    )

    moments = [jobs.ended_at(one).strftime("%S") for one in (both, unready, pod())]

    assert moments == ["09", "07", "00"]


def test_a_condition_that_was_never_true_is_not_said_to_be_false() -> None:
    resumed = jobs.condition(jobs.SUSPENDED, "False", "JobResumed", "Job resumed")
    suspended = jobs.condition(jobs.SUSPENDED, "True", "JobSuspended", "Job suspended")

    assert jobs.with_condition({}, resumed) == {}
    held = jobs.with_condition({}, suspended)
    assert jobs.with_condition(held, resumed)["conditions"] == [resumed]
    assert jobs.with_condition(held, {**suspended, "lastProbeTime": "later"}) == held
