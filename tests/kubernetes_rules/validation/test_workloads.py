"""Workloads that make no sense are refused in the words of the API server."""

from __future__ import annotations

from typing import Any

import pytest

from kubernetes_rules.defaults import defaulted_workload
from kubernetes_rules.validation.workloads import controller_errors, revision_errors

Object = dict[str, Any]

LABELS = {"app": "a"}
UNAVAILABLE = "spec.strategy.rollingUpdate.maxUnavailable"


def workload(kind: str, **spec: Any) -> Object:
    template = {"metadata": {"labels": LABELS}, "spec": {"restartPolicy": "Never"}}
    selector = {"selector": {"matchLabels": LABELS}} if kind != "Job" else {}
    body = {"kind": kind, "metadata": {"name": "w", "uid": "u"}}
    return defaulted_workload({**body, "spec": {"template": template, **selector, **spec}}, is_new=True)


def errors(kind: str, **spec: Any) -> list[str]:
    return [str(error) for error in controller_errors(workload(kind, **spec), None)]


def rolling(**limits: Any) -> Object:
    return {"strategy": {"type": "RollingUpdate", "rollingUpdate": limits}}


@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet", "DaemonSet", "StatefulSet", "Job"])
def test_what_is_in_order_is_taken(kind: str) -> None:
    assert errors(kind) == []


@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet"])
def test_a_selector_has_to_select_the_pods_that_are_made(kind: str) -> None:
    (error,) = errors(kind, selector={"matchLabels": {"app": "b"}})
    expected = 'spec.template.metadata.labels: Invalid value: {"app":"a"}: `selector` does not match template'
    assert error == f"{expected} `labels`"
    assert errors(kind, selector=None) == ["spec.selector: Required value"]
    (error,) = errors(kind, selector={})
    assert error == "spec.selector: Invalid value: {}: empty selector is invalid for deployment"


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        ({"replicas": -1}, "spec.replicas: Invalid value: -1: must be greater than or equal to 0"),
        (
            rolling(maxSurge=0, maxUnavailable=0),
            "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0",
        ),
        (
            rolling(maxUnavailable="101%"),
            f'{UNAVAILABLE}: Invalid value: "101%": must not be greater than 100%',
        ),
        (
            rolling(maxSurge=-1),
            "spec.strategy.rollingUpdate.maxSurge: Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            {"strategy": {"type": "Recreate", "rollingUpdate": {}}},
            "spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'",
        ),
        (
            {"strategy": {"type": "BlueGreen"}},
            'spec.strategy: Unsupported value: "BlueGreen": supported values: "Recreate", "RollingUpdate"',
        ),
        (
            {"minReadySeconds": 700},
            "spec.progressDeadlineSeconds: Invalid value: 600: must be greater than minReadySeconds",
        ),
    ],
)
def test_a_deployment_that_cannot_be_rolled_out_is_refused(spec: Object, error: str) -> None:
    assert errors("Deployment", **spec) == [error]


def test_more_than_all_pods_may_come_beside_the_others() -> None:
    assert errors("Deployment", **rolling(maxSurge="200%")) == []


def test_an_indexed_job_has_to_say_how_many_pods_it_has() -> None:
    assert errors("Job", completionMode="Indexed", parallelism=2) == [
        "spec.completions: Required value: when completion mode is Indexed"
    ]
    (error,) = errors("Job", completionMode="Other")
    assert error.startswith('spec.completionMode: Unsupported value: "Other"')
    assert errors("Job", backoffLimit=-1) == [
        "spec.backoffLimit: Invalid value: -1: must be greater than or equal to 0"
    ]


SELECTOR = 'spec.template.metadata.labels: Invalid value: {"app":"a"}: `selector` does not match'
ROLLING = "spec.updateStrategy.rollingUpdate"


def updated(kind: str = "", **limits: Any) -> Object:
    return {"updateStrategy": {"type": kind or "RollingUpdate", "rollingUpdate": limits}}


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        ({"selector": None}, SELECTOR),
        ({"selector": {}}, "spec.selector: Invalid value: {}: empty selector is invalid for daemonset"),
        (
            {"updateStrategy": {"type": "x"}},
            'spec.updateStrategy: Unsupported value: {"Type":"x","RollingUpdate":null}: supported values: ',
        ),
        (
            updated(maxSurge=1),
            f"{ROLLING}.maxSurge: Invalid value: 1: may not be set when maxUnavailable is non-zero",
        ),
        (
            updated(maxSurge="0%", maxUnavailable=0),
            f"{ROLLING}.maxUnavailable: Required value: cannot be 0 when maxSurge is 0",
        ),
    ],
)
def test_a_daemon_set_that_cannot_be_rolled_out_is_refused(spec: Object, error: str) -> None:
    (found,) = errors("DaemonSet", **spec)
    assert found.startswith(error)


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        ({"podManagementPolicy": "x"}, 'spec.podManagementPolicy: Invalid value: "x": must be '),
        ({"replicas": -1}, "spec.replicas: Invalid value: -1: must be greater than or equal to 0"),
        (
            {"ordinals": {"start": -1}},
            "spec.ordinals.start: Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            {"updateStrategy": {"type": "Recreate"}},
            'spec.updateStrategy: Invalid value: {"Type":"Recreate","RollingUpdate":null}: must be ',
        ),
        (
            updated("OnDelete", partition=1),
            f'{ROLLING}: Invalid value: {{"Partition":1,"MaxUnavailable":null}}: only allowed for ',
        ),
        (updated(maxUnavailable="0%"), f'{ROLLING}.maxUnavailable: Invalid value: "0%": cannot be 0'),
    ],
)
def test_a_stateful_set_that_cannot_be_rolled_out_is_refused(spec: Object, error: str) -> None:
    (found,) = errors("StatefulSet", **spec)
    assert found.startswith(error)


def test_a_stateful_set_needs_a_selector() -> None:
    required, unmatched = errors("StatefulSet", selector=None)

    assert required == "spec.selector: Required value"
    assert unmatched.startswith(SELECTOR)


def test_a_revision_has_data_that_stay() -> None:
    revision = {"kind": "ControllerRevision", "revision": 1, "data": {"a": 1}}

    assert revision_errors(revision, None) == []
    assert [one.field for one in revision_errors({**revision, "revision": -1, "data": None}, None)] == [
        "revision",
        "data",
    ]
    assert [one.field for one in revision_errors({**revision, "data": {}}, revision)] == ["data"]


def test_a_workload_keeps_its_pods() -> None:
    def changed(kind: str, was: Object, **spec: Any) -> list[str]:
        return [error.field for error in controller_errors(workload(kind, **spec), workload(kind, **was))]

    assert changed("Deployment", {"replicas": 1}, replicas=2) == []
    both = {"matchExpressions": [{"key": "app", "operator": "Exists"}]}
    assert changed("Deployment", {}, selector=both) == ["spec.selector"]
    assert changed("DaemonSet", {}, selector=both) == ["spec.selector"]
    assert changed("StatefulSet", {"serviceName": "a"}, serviceName="b") == ["spec.serviceName"]
    assert changed("Job", {"parallelism": 1}, parallelism=2) == []
    assert changed("Job", {"completions": 1}, completions=2) == ["spec.completions"]
    indexed = {"completionMode": "Indexed"}
    assert changed("Job", {**indexed, "completions": 1}, **indexed, completions=2) == []
    other = {"metadata": {"labels": LABELS}, "spec": {"restartPolicy": "OnFailure"}}
    assert changed("Job", {}, template=other) == ["spec.template"]
    assert changed("Job", {"suspend": True}, template=other, suspend=True) == []
