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


def test_the_pod_that_is_given_stays_as_it_is() -> None:
    given = rich_pod()
    before = copy.deepcopy(given)

    created_pod(given)

    assert given == before


def test_defaults_are_filled_in_once() -> None:
    once = created_pod(rich_pod())

    assert defaulted_pod(once) == once


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
