"""Selectors are printed as kubectl shows them."""

from __future__ import annotations

from kubernetes_rules.selectors import label_selector_text


def test_a_selector_is_printed_sorted_by_its_keys() -> None:
    expressions = [
        {"key": "tier", "operator": "NotIn", "values": ["b", "a"]},
        {"key": "d", "operator": "Exists"},
        {"key": "b", "operator": "DoesNotExist"},
        {"key": "c", "operator": "In", "values": ["x"]},
    ]
    selector = {"matchLabels": {"zone": "1", "app": "web"}, "matchExpressions": expressions}

    assert label_selector_text(selector) == "app=web,!b,c in (x),d,tier notin (a,b),zone=1"
    assert label_selector_text({}) == ""
    assert label_selector_text(None) == ""
