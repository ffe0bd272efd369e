"""What a claim leaves out is filled in, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from kubernetes_rules.defaults import defaulted_claim_spec

Json = dict[str, Any]


def filled(**asked: Any) -> Json:
    spec = {"devices": {"requests": [{"name": "r", "exactly": asked}], "config": []}}
    (request,) = defaulted_claim_spec(spec)["devices"]["requests"]
    found: Json = request["exactly"]
    return found


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({}, {"allocationMode": "ExactCount", "count": 1}),
        ({"allocationMode": "", "count": 0}, {"allocationMode": "ExactCount", "count": 1}),
        ({"count": 3}, {"allocationMode": "ExactCount", "count": 3}),
        ({"allocationMode": "All"}, {"allocationMode": "All"}),
        ({"allocationMode": "Later"}, {"allocationMode": "Later"}),
    ],
)
def test_a_request_is_for_exactly_one_device(asked: Json, found: Json) -> None:
    assert filled(**asked) == found


def test_a_toleration_compares_for_equality() -> None:
    tolerations = filled(tolerations=[{"key": "a"}, {"operator": "Exists"}])["tolerations"]
    assert tolerations == [{"key": "a", "operator": "Equal"}, {"operator": "Exists"}]


def test_alternatives_have_the_same_defaults_and_what_was_given_stays() -> None:
    spec: Json = {"devices": {"requests": [{"name": "r", "firstAvailable": [{"name": "a"}, {"name": "b"}]}]}}

    (request,) = defaulted_claim_spec(spec)["devices"]["requests"]

    assert [one["count"] for one in request["firstAvailable"]] == [1, 1]
    assert spec["devices"]["requests"][0]["firstAvailable"][0] == {"name": "a"}


@pytest.mark.parametrize("spec", [{}, {"devices": {}}, {"devices": {"requests": [{"name": "new kind"}]}}])
def test_what_has_no_requests_that_are_known_stays_as_it_is(spec: Json) -> None:
    assert defaulted_claim_spec(spec) == spec
