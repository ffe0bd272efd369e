"""Which nodes selectors take in, and what makes a selector unreadable."""

from __future__ import annotations

from typing import Any

import pytest

from kubernetes_rules.selectors import (
    NodeSelectorInvalid,
    missing_node_label,
    node_affinity_matches,
    node_selector_matches,
    read_node,
)

Json = dict[str, Any]

NODE = read_node({"metadata": {"name": "a", "labels": {"zone": "x", "gpus": "8", "kind": "eight"}}})
BOTH = pytest.mark.parametrize("matches", [node_selector_matches, node_affinity_matches])


def demand(key: str, operator: str, *values: str) -> Json:
    return {"key": key, "operator": operator, "values": list(values)}


def selector(*terms: Json) -> Json:
    return {"nodeSelectorTerms": list(terms)}


def labels(*demands: Json) -> Json:
    return {"matchExpressions": list(demands)}


def fields(*demands: Json) -> Json:
    return {"matchFields": list(demands)}


@BOTH
@pytest.mark.parametrize(
    "term",
    [
        labels(demand("zone", "In")),
        labels(demand("zone", "Exists", "x")),
        labels(demand("gpus", "Gt", "many")),
        labels(demand("gpus", "Lt", "9", "10")),
        labels(demand("zone", "Like", "x")),
        labels(demand("zo ne", "Exists")),
        labels(demand("zone", "In", "x y")),
        fields(demand("metadata.name", "Exists")),
        fields(demand("metadata.name", "In", "a", "b")),
    ],
)
def test_a_malformed_term_is_told(matches: Any, term: Json) -> None:
    with pytest.raises(NodeSelectorInvalid, match="a node selector"):
        matches(selector(term), NODE)


def test_beside_a_malformed_term_an_affinity_may_still_match_and_another_selector_may_not() -> None:
    mixed = selector(labels(demand("gpus", "Gt", "many")), labels(demand("zone", "In", "x")))
    assert node_affinity_matches(mixed, NODE)
    with pytest.raises(NodeSelectorInvalid):
        node_selector_matches(mixed, NODE)


def test_the_first_missing_label_is_told() -> None:
    assert missing_node_label({"zone": "x"}, NODE) is None
    assert missing_node_label({}, NODE) is None
    assert missing_node_label({"zone": "y", "rack": "r"}, NODE) == ("rack", "r")
