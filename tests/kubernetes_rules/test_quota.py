"""What a claim is charged, and which pods a quota with scopes counts."""

from typing import Any

import pytest

from kubernetes_rules.quota import device_charges, limits_claims, quota_counts
from tests.clusters import Object

DEVICES = "gpu.deviceclass.resource.k8s.io/devices"


IMPLICIT = "requests.deviceclass.resource.kubernetes.io/gpu"


EXPLICIT = "requests.example.com/gpu"


CLASSES: dict[str, Object] = {
    "gpu": {"spec": {"extendedResourceName": "example.com/gpu"}},
    "plain": {"spec": {}},
}


def charges(*requests: Object, **paid: int) -> dict[str, int]:
    return device_charges({"devices": {"requests": list(requests)}}, CLASSES.get, paid)


def exactly(name: str = "gpu", **asked: Any) -> Object:
    return {"name": "r", "exactly": {"deviceClassName": name, **asked}}


@pytest.mark.parametrize(
    ("asked", "count"),
    [
        ({}, 1),
        ({"count": 3}, 3),
        ({"allocationMode": "All"}, 32),
        ({"allocationMode": "Later", "count": 3}, 0),
    ],
)
def test_the_most_that_a_request_can_get_counts(asked: Object, count: int) -> None:
    assert charges(exactly(**asked))[DEVICES] == count


def test_devices_count_by_class_and_by_both_extended_resources() -> None:
    assert charges(exactly(count=2), exactly(count=1)) == {DEVICES: 3, IMPLICIT: 3, EXPLICIT: 3}
    assert charges(exactly("plain")) == {
        "plain.deviceclass.resource.k8s.io/devices": 1,
        "requests.deviceclass.resource.kubernetes.io/plain": 1,
    }


def test_a_class_that_does_not_exist_stands_for_no_extended_resource() -> None:
    assert charges(exactly("gone")) == {"gone.deviceclass.resource.k8s.io/devices": 1}


def test_of_alternatives_the_largest_of_each_class_counts() -> None:
    alternatives = [
        {"deviceClassName": name, "count": count} for name, count in (("gpu", 2), ("gpu", 5), ("gone", 1))
    ]
    found = charges({"name": "r", "firstAvailable": alternatives})
    assert found[DEVICES] == 5
    assert found["gone.deviceclass.resource.k8s.io/devices"] == 1


def test_what_the_pod_paid_lowers_the_extended_resources_only() -> None:
    assert charges(exactly(count=3), **{EXPLICIT: 2, IMPLICIT: 4}) == {DEVICES: 3, EXPLICIT: 1}


@pytest.mark.parametrize(
    ("spec", "limits"),
    [
        ({}, True),
        ({"scopes": []}, True),
        ({"scopes": ["BestEffort"]}, False),
        ({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass"}]}}, False),
    ],
)
def test_a_quota_with_scopes_limits_no_claims(spec: Object, limits: bool) -> None:
    assert limits_claims({"spec": spec}) is limits


def scoped(operator: str, *values: str) -> Object:
    """A quota with one expression about priority classes."""
    expression = {"scopeName": "PriorityClass", "operator": operator, "values": list(values)}
    return {"spec": {"scopeSelector": {"matchExpressions": [expression]}}}


def counted(quota: Object) -> list[str]:
    """Which priority classes the pods have that count; empty is none."""
    classes = ("low", "high", "")
    return [name for name in classes if quota_counts(quota, "pods", {"spec": {"priorityClassName": name}})]


@pytest.mark.parametrize(
    ("quota", "wanted"),
    [
        ({"spec": {}}, ["low", "high", ""]),
        (scoped("In", "low", "middle"), ["low"]),
        (scoped("NotIn", "low"), ["high", ""]),
        (scoped("Exists"), ["low", "high"]),
        (scoped("DoesNotExist"), [""]),
        ({"spec": {"scopes": ["PriorityClass"]}}, ["low", "high"]),
        ({"spec": {"scopes": ["BestEffort"]}}, ["low", "high", ""]),
        ({"spec": {"scopes": ["NotBestEffort"]}}, []),
        ({"spec": {"scopes": ["NotTerminating", "PriorityClass"]}}, ["low", "high"]),
        ({"spec": {"scopes": ["CrossNamespacePodAffinity"]}}, []),
    ],
)
def test_pods_count_by_their_scopes(quota: Object, wanted: list[str]) -> None:
    assert counted(quota) == wanted


def test_other_objects_count_for_quotas_without_scopes_alone() -> None:
    assert quota_counts({"spec": {}}, "resourceclaims", {})
    assert not quota_counts(scoped("DoesNotExist"), "resourceclaims", {})
