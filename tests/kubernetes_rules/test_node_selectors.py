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


def demand(key: str, operator: str, *values: str) -> Json:
    return {"key": key, "operator": operator, "values": list(values)}


def selector(*terms: Json) -> Json:
    return {"nodeSelectorTerms": list(terms)}


def labels(*demands: Json) -> Json:
    return {"matchExpressions": list(demands)}


def test_beside_a_malformed_term_an_affinity_may_still_match_and_another_selector_may_not() -> None:
    mixed = selector(labels(demand("gpus", "Gt", "many")), labels(demand("zone", "In", "x")))
    assert node_affinity_matches(mixed, NODE)
    with pytest.raises(NodeSelectorInvalid):
        node_selector_matches(mixed, NODE)


def test_the_first_missing_label_is_told() -> None:
    assert missing_node_label({"zone": "x"}, NODE) is None
    assert missing_node_label({}, NODE) is None
    assert missing_node_label({"zone": "y", "rack": "r"}, NODE) == ("rack", "r")
