"""What an update may not change of a pod; tests/tools/conformance/pods compares it with Kubernetes."""

from __future__ import annotations

from typing import Any

import pytest

from kubernetes_rules.defaults import defaulted_pod
from kubernetes_rules.validation.pods import pod_errors, pod_update_errors
from kubernetes_rules.validation.pods.changes import same
from tools.conformance.pods.cases import rich_pod
from tools.conformance.validation.cases import changed
from tools.conformance.validation.changes import REMOVED

OLD = defaulted_pod(rich_pod())


def test_a_refused_update_shows_what_it_would_change() -> None:
    [error] = pod_update_errors(changed(OLD, ("spec.nodeName", "node-2")), OLD)

    assert error.field == "spec"
    assert '+ "nodeName": "node-2",' in error.detail
    assert '"hostname": "train"' not in error.detail, "only what lies around it"


def test_an_amount_written_otherwise_is_no_change() -> None:
    assert pod_update_errors(changed(OLD, ("spec.containers.0.resources.limits.cpu", "2000m")), OLD) == []


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ({"env": []}, {}, True),
        ({"hostNetwork": False}, {}, True),
        ({"hostUsers": False}, {}, False),
        ({"emptyDir": {}}, {}, False),
        ({"resources": {}}, {}, True),
        ({"nodeSelector": {}}, {}, True),
        ({"nodeSelector": {"a": ""}}, {"nodeSelector": {}}, False),
        ({"limits": {"cpu": "0.5"}}, {"limits": {"cpu": "500m"}}, True),
        ({"args": ["0.5"]}, {"args": ["500m"]}, False),
        ({"ports": [{"containerPort": 1}]}, {"ports": []}, False),
    ],
)
def test_absence_is_zero_only_where_zero_says_nothing(
    one: dict[str, Any], other: dict[str, Any], is_same: bool
) -> None:
    assert same(one, other) is is_same
    assert same(other, one) is is_same


def test_the_processes_of_a_pod_are_shared_with_each_other_or_with_the_node() -> None:
    shared = changed(OLD, ("spec.shareProcessNamespace", True), ("spec.hostPID", True))

    [error] = pod_errors(shared)

    assert error.field == "spec.shareProcessNamespace"
    assert error.detail == "Invalid value: true: ShareProcessNamespace and HostPID cannot both be enabled"


def test_a_pod_loses_no_metadata_in_an_update() -> None:
    errors = pod_update_errors(changed(OLD, ("metadata.resourceVersion", REMOVED)), OLD)

    assert [str(error) for error in errors] == [
        'metadata.resourceVersion: Invalid value: "": must be specified for an update'
    ]
