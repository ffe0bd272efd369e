"""Pods, claims and workloads get their defaults; tests/tools/conformance compares the most of them."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kubernetes_rules.defaults import (
    NO_LIMIT,
    created_pod,
    default_pull_policy,
    defaulted_claim_spec,
    defaulted_pod,
    defaulted_workload,
)


def pod(container: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", **(container or {})}], **spec}}


def rich_pod() -> dict[str, Any]:
    volumes = [{"name": "a"}, {"name": "b", "configMap": {"name": "b"}}]
    env = [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]
    return pod({"image": "i", "env": env, "ports": [{"containerPort": 1}]}, volumes=volumes)


def test_the_pod_that_is_given_stays_as_it_is() -> None:
    given = rich_pod()
    before = copy.deepcopy(given)

    created_pod(given)

    assert given == before


def test_defaults_are_filled_in_once() -> None:
    once = created_pod(rich_pod())

    assert defaulted_pod(once) == once


def test_only_a_new_pod_gets_resources_of_its_own() -> None:
    given = pod({"resources": {"requests": {"cpu": "1"}}}, resources={"limits": {"cpu": "2"}})

    assert created_pod(given)["spec"]["resources"]["requests"] == {"cpu": "1"}
    assert "requests" not in defaulted_pod(given)["spec"]["resources"]


def test_amounts_are_rounded_up_to_thousandths_and_a_time_to_end_below_zero_is_a_second() -> None:
    found = defaulted_pod(pod({"resources": {"limits": {"cpu": "0.0001"}}}, terminationGracePeriodSeconds=-7))

    assert found["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "1m"}
    assert found["spec"]["terminationGracePeriodSeconds"] == 1


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("a", "Always"),
        ("a:latest", "Always"),
        ("a:1", "IfNotPresent"),
        ("localhost:5000/a", "Always"),
        ("localhost:5000/a:1", "IfNotPresent"),
        (f"a@sha256:{'b' * 64}", "IfNotPresent"),
    ],
)
def test_images_without_a_version_are_pulled_always(image: str, policy: str) -> None:
    assert default_pull_policy(image) == policy


Json = dict[str, Any]


def filled(**asked: Any) -> Json:
    spec = {"devices": {"requests": [{"name": "r", "exactly": asked}], "config": []}}
    (request,) = defaulted_claim_spec(spec)["devices"]["requests"]
    found: Json = request["exactly"]
    return found


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({}, {"allocationMode": "ExactCount", "count": 1}),
        ({"allocationMode": "", "count": 0}, {"allocationMode": "ExactCount", "count": 1}),
        ({"count": 3}, {"allocationMode": "ExactCount", "count": 3}),
        ({"allocationMode": "All"}, {"allocationMode": "All"}),
        ({"allocationMode": "Later"}, {"allocationMode": "Later"}),
    ],
)
def test_a_request_is_for_exactly_one_device(asked: Json, found: Json) -> None:
    assert filled(**asked) == found


def test_a_toleration_compares_for_equality() -> None:
    tolerations = filled(tolerations=[{"key": "a"}, {"operator": "Exists"}])["tolerations"]
    assert tolerations == [{"key": "a", "operator": "Equal"}, {"operator": "Exists"}]


def test_alternatives_have_the_same_defaults_and_what_was_given_stays() -> None:
    spec: Json = {"devices": {"requests": [{"name": "r", "firstAvailable": [{"name": "a"}, {"name": "b"}]}]}}

    (request,) = defaulted_claim_spec(spec)["devices"]["requests"]

    assert [one["count"] for one in request["firstAvailable"]] == [1, 1]
    assert spec["devices"]["requests"][0]["firstAvailable"][0] == {"name": "a"}


@pytest.mark.parametrize("spec", [{}, {"devices": {}}, {"devices": {"requests": [{"name": "new kind"}]}}])
def test_what_has_no_requests_that_are_known_stays_as_it_is(spec: Json) -> None:
    assert defaulted_claim_spec(spec) == spec


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
