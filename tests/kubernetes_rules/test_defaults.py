"""Pods, claims and workloads get their defaults; tests/tools/conformance compares the most of them."""

import copy
from typing import Any

from kubernetes_rules.defaults import created_pod, defaulted_pod, defaulted_workload
from tests.clusters import Object, defaulted_claim_spec


def pod(container: Object | None = None, **spec: Any) -> Object:
    return {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", **(container or {})}], **spec}}


def rich_pod() -> Object:
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


def filled(**asked: Any) -> Object:
    spec = {"devices": {"requests": [{"name": "r", "exactly": asked}], "config": []}}
    (request,) = defaulted_claim_spec(spec)["devices"]["requests"]
    found: Object = request["exactly"]
    return found


def test_a_toleration_compares_for_equality() -> None:
    tolerations = filled(tolerations=[{"key": "a"}, {"operator": "Exists"}])["tolerations"]
    assert tolerations == [{"key": "a", "operator": "Equal"}, {"operator": "Exists"}]


def test_alternatives_have_the_same_defaults_and_what_was_given_stays() -> None:
    spec: Object = {
        "devices": {"requests": [{"name": "r", "firstAvailable": [{"name": "a"}, {"name": "b"}]}]}
    }

    (request,) = defaulted_claim_spec(spec)["devices"]["requests"]

    assert [one["count"] for one in request["firstAvailable"]] == [1, 1]
    assert spec["devices"]["requests"][0]["firstAvailable"][0] == {"name": "a"}


def test_the_object_that_is_given_stays_as_it_is() -> None:
    given: Object = {"kind": "ReplicaSet", "metadata": {"name": "w"}, "spec": {"template": {"spec": {}}}}

    assert defaulted_workload(given, is_new=True)["spec"]["replicas"] == 1
    assert given["spec"] == {"template": {"spec": {}}}
