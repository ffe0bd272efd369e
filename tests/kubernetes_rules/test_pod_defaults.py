"""A pod gets its defaults before it is checked; tests/tools/conformance/test_pods.py compares them."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kubernetes_rules.defaults import created_pod, default_pull_policy, defaulted_pod


def pod(container: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", **(container or {})}], **spec}}


def rich_pod() -> dict[str, Any]:
    volumes = [{"name": "a"}, {"name": "b", "configMap": {"name": "b"}}]
    env = [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]
    return pod({"image": "i", "env": env, "ports": [{"containerPort": 1}]}, volumes=volumes)


def resources(**amounts: dict[str, str]) -> dict[str, Any]:
    found = defaulted_pod(pod({"resources": amounts}))["spec"]["containers"][0]["resources"]
    assert isinstance(found, dict)
    return found


def test_the_pod_that_is_given_stays_as_it_is() -> None:
    given = rich_pod()
    before = copy.deepcopy(given)

    created_pod(given)

    assert given == before


def test_defaults_are_filled_in_once() -> None:
    once = created_pod(rich_pod())

    assert defaulted_pod(once) == once


def test_limits_are_requests_where_none_are_named() -> None:
    assert resources(limits={"nvidia.com/gpu": "1"})["requests"] == {"nvidia.com/gpu": "1"}
    assert resources(limits={"cpu": "2"}, requests={"cpu": "1"})["requests"] == {"cpu": "1"}
    assert "limits" not in resources(requests={"cpu": "1"})


def test_amounts_are_rounded_up_to_thousandths() -> None:
    assert resources(limits={"cpu": "0.0001", "memory": "1.5"})["limits"] == {"cpu": "1m", "memory": "1500m"}
    many = {"cpu": "9" * 40, "memory": f"{'1' * 29}.0001", "example.com/a": "1e2147483647"}
    assert resources(limits=many)["limits"] == {
        "cpu": "9" * 40,
        "memory": f"{'1' * 29}001m",
        "example.com/a": "10e2147483646",
    }


def test_a_time_to_end_below_zero_is_a_second() -> None:
    assert defaulted_pod(pod(terminationGracePeriodSeconds=-7))["spec"]["terminationGracePeriodSeconds"] == 1
    assert defaulted_pod(pod(terminationGracePeriodSeconds=0))["spec"]["terminationGracePeriodSeconds"] == 0
    assert defaulted_pod(pod())["spec"]["terminationGracePeriodSeconds"] == 30


def test_only_a_new_pod_gets_resources_of_its_own() -> None:
    given = pod({"resources": {"requests": {"cpu": "1"}}}, resources={"limits": {"cpu": "2"}})

    assert created_pod(given)["spec"]["resources"]["requests"] == {"cpu": "1"}
    assert "requests" not in defaulted_pod(given)["spec"]["resources"]


def test_a_pod_without_a_spec_has_one() -> None:
    assert created_pod({"metadata": {}})["spec"]["restartPolicy"] == "Always"


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
