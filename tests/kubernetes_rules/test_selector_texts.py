"""Selectors in texts are read as apimachinery reads them, which ignores most spaces."""

from __future__ import annotations

from typing import Any

import pytest

from kubernetes_rules.selector_texts import (
    FieldTerm,
    SelectorInvalid,
    parse_field_selector,
    parse_label_selector,
)


def requirement(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


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
def test_label_selectors_are_read(text: str, requirements: list[dict[str, Any]]) -> None:
    found = [
        {key: sorted(value) if isinstance(value, list) else value for key, value in one.items()}
        for one in parse_label_selector(text)
    ]

    assert [{key: value for key, value in one.items() if value != []} for one in found] == requirements


@pytest.mark.parametrize(
    "text",
    [
        "a=b=c",
        "!!a",
        "app in web",
        "a>b",
        "pg=1,",
        ",a",
        "a,,b",
        "ain (b)",
        "a b",
        "-a=b",
        "a=-b",
        "a in (b",
        "!",
    ],
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
