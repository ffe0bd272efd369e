"""Selectors are read, take in nodes, and are printed as in Kubernetes."""

import pytest

from kubernetes_rules.selector_texts import (
    FieldTerm,
    SelectorInvalid,
    parse_field_selector,
    parse_label_selector,
)
from kubernetes_rules.selectors import (
    NodeSelectorInvalid,
    label_selector_text,
    missing_node_label,
    node_affinity_matches,
    node_selector_matches,
    read_node,
)
from tests.clusters import Object

NODE = read_node({"metadata": {"name": "a", "labels": {"zone": "x", "gpus": "8", "kind": "eight"}}})


def requirement(key: str, operator: str, *values: str) -> Object:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def test_beside_a_malformed_term_an_affinity_may_still_match_and_another_selector_may_not() -> None:
    demands = requirement("gpus", "Gt", "many"), requirement("zone", "In", "x")
    mixed = {"nodeSelectorTerms": [{"matchExpressions": [one]} for one in demands]}
    assert node_affinity_matches(mixed, NODE)
    with pytest.raises(NodeSelectorInvalid):
        node_selector_matches(mixed, NODE)


def test_the_first_missing_label_is_told() -> None:
    assert missing_node_label({"zone": "x"}, NODE) is None
    assert missing_node_label({}, NODE) is None
    assert missing_node_label({"zone": "y", "rack": "r"}, NODE) == ("rack", "r")


def test_a_selector_is_printed_sorted_by_its_keys() -> None:
    expressions = [
        requirement("tier", "NotIn", "b", "a"),
        requirement("d", "Exists"),
        requirement("b", "DoesNotExist"),
        requirement("c", "In", "x"),
    ]
    selector = {"matchLabels": {"zone": "1", "app": "web"}, "matchExpressions": expressions}

    assert label_selector_text(selector) == "app=web,!b,c in (x),d,tier notin (a,b),zone=1"
    assert label_selector_text({}) == ""
    assert label_selector_text(None) == ""


@pytest.mark.parametrize(
    ("text", "requirements"),
    [
        ("", []),
        ("app = web", [requirement("app", "In", "web")]),
        ("app in(web, db),!old", [requirement("app", "In", "db", "web"), requirement("old", "DoesNotExist")]),
        ("in", [requirement("in", "Exists")]),
        ("pg>0", [requirement("pg", "Gt", "0")]),
        ("app=", [requirement("app", "In", "")]),
        ("in notin (a,)", [requirement("in", "NotIn", "", "a")]),
        ("a in ()", [requirement("a", "In", "")]),
    ],
)
def test_label_selectors_are_read(text: str, requirements: list[Object]) -> None:
    found = [
        {key: sorted(value) if isinstance(value, list) else value for key, value in one.items()}
        for one in parse_label_selector(text)
    ]

    assert [{key: value for key, value in one.items() if value != []} for one in found] == requirements


@pytest.mark.parametrize(
    "text",
    ["a=b=c", "!!a", "app in web", "a>b", "pg=1,", "a,,b", "ain (b)", "a b", "-a=b", "a=-b", "a in (b", "!"],
)
def test_a_label_selector_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(SelectorInvalid, match="unable to parse requirement"):
        parse_label_selector(text)


def test_field_selectors_are_read_with_escapes() -> None:
    assert parse_field_selector(r"metadata.name=a\,b,status.phase!=Failed") == [
        FieldTerm("metadata.name", "a,b", is_equal=True),
        FieldTerm("status.phase", "Failed", is_equal=False),
    ]
    with pytest.raises(SelectorInvalid, match="invalid selector: 'a'"):
        parse_field_selector("a")
