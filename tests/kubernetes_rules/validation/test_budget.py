"""What a PodDisruptionBudget must not say, in the words of Kubernetes."""

from __future__ import annotations

from typing import Any

import pytest

from kubernetes_rules.validation.workloads import budget_errors

NO_PERCENT = (
    "Invalid value: \"x\": a valid percent string must be a numeric string followed by an ending '%' (e.g. "
    "'1%',  or '93%', regex used for validation is '[0-9]+%')"
)


@pytest.mark.parametrize(
    "spec",
    [{}, {"minAvailable": 0}, {"minAvailable": "100%"}, {"maxUnavailable": "5%"}, {"maxUnavailable": 7}],
)
def test_numbers_and_percents_are_fine(spec: dict[str, Any]) -> None:
    assert budget_errors({"spec": spec}) == []


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"minAvailable": "x"}, f"spec.minAvailable: {NO_PERCENT}"),
        ({"minAvailable": -1}, "spec.minAvailable: Invalid value: -1: must be greater than or equal to 0"),
        (
            {"maxUnavailable": "101%"},
            'spec.maxUnavailable: Invalid value: "101%": must not be greater than 100%',
        ),
        (
            {"minAvailable": 1, "maxUnavailable": 1, "selector": {"matchLabels": {"app": "a"}}},
            (
                'spec: Invalid value: {"MinAvailable":1,"Selector":{"matchLabels":{"app":"a"}},'
                '"MaxUnavailable":1,"UnhealthyPodEvictionPolicy":null}: '
                "minAvailable and maxUnavailable cannot be both set"
            ),
        ),
        (
            {"unhealthyPodEvictionPolicy": "Never"},
            (
                'spec.unhealthyPodEvictionPolicy: Unsupported value: "Never": supported values: '
                '"AlwaysAllow", "IfHealthyBudget"'
            ),
        ),
    ],
)
def test_what_makes_no_sense_is_refused(spec: dict[str, Any], words: str) -> None:
    assert [str(error) for error in budget_errors({"spec": spec})] == [words]
