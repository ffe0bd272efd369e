"""A pod gets its defaults before it is checked; tests/tools/conformance/test_pods.py compares them."""

from __future__ import annotations

import copy
from typing import Any

from kubernetes_rules.defaults import created_pod, defaulted_pod


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
