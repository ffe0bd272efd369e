"""Mistakes in objects of built-in kinds are found; those of pods are in tests/tools/conformance."""

import copy
from typing import Any

import pytest

from kubernetes_rules.defaults import created_pod, defaulted_workload
from kubernetes_rules.validation.kinds import created_errors, updated_errors
from tests.clusters import Object
from tools.conformance.validation.cases import changed
from tools.conformance.validation.changes import REMOVED

POD: Object = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "main", "image": "i"}]}}
SELECTOR: Object = {"matchLabels": {"app": "a"}}
SPECS: dict[str, Object] = {
    "Deployment": {"selector": SELECTOR, "template": POD},
    "ReplicaSet": {"selector": SELECTOR, "template": POD},
    "Job": {"template": {**POD, "spec": {**POD["spec"], "restartPolicy": "Never"}}},
    "PodDisruptionBudget": {"minAvailable": 1},
    "ResourceQuota": {"hard": {"pods": "2", "requests.nvidia.com/gpu": "1"}},
    "Node": {"taints": [{"key": "a", "effect": "NoSchedule"}]},
    "Pod": {**POD["spec"], "nodeSelector": {"a": "b"}, "tolerations": [{"key": "a", "operator": "Exists"}]},
    "StatefulSet": {},
}


def valid(kind: str) -> Object:
    metadata = {"name": "w", "namespace": "default", "uid": "u", "resourceVersion": "1"}
    if kind in ("Node", "PriorityClass"):
        del metadata["namespace"]
    item = {"kind": kind, "metadata": metadata, "spec": copy.deepcopy(SPECS.get(kind, {}))}
    if kind in ("Deployment", "ReplicaSet", "Job"):
        return defaulted_workload(item, is_new=True)
    return created_pod(item) if kind == "Pod" else item


def told(item: Object, old: Object | None = None) -> list[str]:
    namespaced = "namespace" in item["metadata"]
    if old is None:
        return [one.field for one in created_errors("", item, namespaced=namespaced)]
    return [one.field for one in updated_errors("", item, old, namespaced=namespaced)]


@pytest.mark.parametrize("kind", [*SPECS, "ConfigMap", "PriorityClass"])
def test_what_is_right_is_not_complained_about(kind: str) -> None:
    assert told(valid(kind)) == []
    assert told(valid(kind), valid(kind)) == []


MISTAKES: tuple[tuple[str, str, Any, str], ...] = (
    ("Deployment", "metadata.name", "Bad_Name", "metadata.name"),
    ("Deployment", "spec.selector", REMOVED, "spec.selector"),
    ("Deployment", "spec.selector", {}, "spec.selector"),
    ("ReplicaSet", "spec.selector", {"matchLabels": {"app": "b"}}, "spec.template.metadata.labels"),
    ("Deployment", "spec.replicas", -1, "spec.replicas"),
    ("Deployment", "spec.strategy", {"type": "Sometimes"}, "spec.strategy"),
    (
        *("Deployment", "spec.strategy.rollingUpdate", {"maxSurge": "x", "maxUnavailable": 1}),
        "spec.strategy.rollingUpdate.maxSurge",
    ),
    (
        *("Deployment", "spec.strategy.rollingUpdate", {"maxSurge": 0, "maxUnavailable": "0%"}),
        "spec.strategy.rollingUpdate.maxUnavailable",
    ),
    ("Deployment", "spec.template.spec.restartPolicy", "Never", "spec.template.spec.restartPolicy"),
    ("Job", "spec.template.spec.restartPolicy", "Always", "spec.template.spec.restartPolicy"),
    ("Job", "spec.completionMode", "Sometimes", "spec.completionMode"),
    ("Job", "spec.template.spec.containers.0.image", "", "spec.template.spec.containers[0].image"),
    ("PodDisruptionBudget", "spec.minAvailable", "half", "spec.minAvailable"),
    ("PodDisruptionBudget", "spec.maxUnavailable", 1, "spec"),
    ("ResourceQuota", "spec.hard", {"gpu": "1"}, "spec.hard[gpu]"),
    ("ResourceQuota", "spec.hard", {"pods": "0.5"}, "spec.hard[pods]"),
    ("PriorityClass", "value", 1_000_000_001, "value"),
    ("Node", "spec.taints.0.effect", "Sometimes", "metadata.taints[0].effect"),
    ("ConfigMap", "data", {"a b": ""}, "data[a b]"),
)


@pytest.mark.parametrize(("kind", "path", "value", "field"), MISTAKES)
def test_a_mistake_is_found_where_it_is(kind: str, path: str, value: Any, field: str) -> None:
    assert told(changed(valid(kind), (path, value))) == [field]


@pytest.mark.parametrize(
    ("kind", "path", "value", "field"),
    [
        (
            "Deployment",
            "spec.selector.matchExpressions",
            [{"key": "app", "operator": "Exists"}],
            "spec.selector",
        ),
        ("Job", "spec.template.metadata.labels", {"app": "b"}, "spec.template"),
        ("PriorityClass", "value", 2, "value"),
        ("Pod", "spec.nodeSelector", {"a": "c"}, "spec"),
        ("Pod", "spec.tolerations", [], "spec.tolerations"),
    ],
)
def test_what_never_changes_is_kept(kind: str, path: str, value: Any, field: str) -> None:
    assert told(changed(valid(kind), (path, value)), valid(kind)) == [field]


def test_a_toleration_may_get_other_seconds_and_further_ones_beside_it() -> None:
    more = [{"key": "a", "operator": "Exists", "tolerationSeconds": 3}, {"key": "b", "operator": "Exists"}]

    assert told(changed(valid("Pod"), ("spec.tolerations", more)), valid("Pod")) == []
