"""A quota with scopes counts the pods that they select, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from kubernetes_rules.quota import quota_counts


def scoped(operator: str, *values: str) -> dict[str, Any]:
    """A quota with one expression about priority classes."""
    expression = {"scopeName": "PriorityClass", "operator": operator, "values": list(values)}
    return {"spec": {"scopeSelector": {"matchExpressions": [expression]}}}


def counted(quota: dict[str, Any]) -> list[str]:
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
def test_pods_count_by_their_scopes(quota: dict[str, Any], wanted: list[str]) -> None:
    assert counted(quota) == wanted


def test_other_objects_count_for_quotas_without_scopes_alone() -> None:
    assert quota_counts({"spec": {}}, "resourceclaims", {})
    assert not quota_counts(scoped("DoesNotExist"), "resourceclaims", {})


def test_an_unknown_operator_is_an_error() -> None:
    with pytest.raises(ValueError, match="Gt is no operator"):
        counted(scoped("Gt"))
