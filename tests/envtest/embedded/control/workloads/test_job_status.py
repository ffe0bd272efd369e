"""A Job's pods are counted, numbered and waited for as the controller of Kubernetes does."""

from __future__ import annotations

from typing import Any

import pytest

from envtest.embedded.control.workloads import jobs

Object = dict[str, Any]


def job(**spec: Any) -> Object:
    template = {"spec": {"restartPolicy": "Never"}}
    return {"spec": {"backoffLimit": 6, "parallelism": 1, "template": template, **spec}}


def ended(succeeded: int = 0, failed: int = 0) -> jobs.EndedPods:
    found = jobs.EndedPods()
    phases = ["Succeeded"] * succeeded + ["Failed"] * failed
    found.add(
        {"metadata": {"uid": str(index)}, "status": {"phase": phase}} for index, phase in enumerate(phases)
    )
    return found


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
    assert jobs.wanted_active(job(**spec), ended(succeeded), active) == wanted


def test_a_job_fails_with_too_many_pods() -> None:
    def reason(failed: int) -> str | None:
        found = jobs.how_it_ends(job(), ended(failed=failed), 1)
        return None if found is None else found[1]

    assert (reason(6), reason(7)) == (None, "BackoffLimitExceeded")


def test_the_wait_after_failures_doubles_up_to_ten_minutes() -> None:
    assert [jobs.back_off_seconds(count) for count in (0, 1, 2, 3, 7, 50)] == [0, 10, 20, 40, 600, 600]
