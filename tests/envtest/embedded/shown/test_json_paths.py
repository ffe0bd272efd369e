"""JSONPath finds what client-go's jsonpath finds."""

from __future__ import annotations

from typing import Any

import pytest

from envtest.embedded.schema.custom_kinds import Column
from envtest.embedded.shown.custom_columns import custom_table
from envtest.embedded.shown.json_paths import JsonPathError, found_at

ITEM: dict[str, Any] = {
    "metadata": {"name": "one", "creationTimestamp": "2000-01-01T00:00:00Z"},
    "spec": {"size": 3, "part": {"a.b": "dotted"}, "open": True, "ratio": 0.5},
    "status": {
        "conditions": [
            {"type": "Ready", "status": "False", "seconds": 5},
            {"type": "Done", "status": "True", "seconds": 50},
        ]
    },
}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".spec.size", [3]),
        (".spec['size']", [3]),
        (r".spec.part.a\.b", ["dotted"]),
        (".spec.nothing.deeper", []),
        (".status.conditions[0].type", ["Ready"]),
        (".status.conditions[-1].type", ["Done"]),
        (".status.conditions[*].status", ["False", "True"]),
        (".status.conditions[1:].type", ["Done"]),
        ('.status.conditions[?(@.type=="Done")].status', ["True"]),
        (".status.conditions[?(@.seconds<10)].type", ["Ready"]),
        (".status.conditions[?(@.type=='Gone')].status", []),
        ("..seconds", [5, 50]),
    ],
)
def test_a_path_finds_its_values(path: str, found: list[Any]) -> None:
    assert found_at(ITEM, path) == found


@pytest.mark.parametrize("path", [".spec[size", ".status.conditions[5]", ".spec.size[0]"])
def test_a_path_that_does_not_fit_is_an_error(path: str) -> None:
    with pytest.raises(JsonPathError):
        found_at(ITEM, path)


@pytest.mark.parametrize(
    ("kind", "path", "cell"),
    [
        ("integer", ".spec.size", 3),
        ("integer", ".spec.ratio", 0),
        ("number", ".spec.size", 3.0),
        ("boolean", ".spec.open", True),
        ("boolean", ".spec.size", None),
        ("string", ".spec.part", '{"a.b":"dotted"}'),
        ("string", ".spec.open", "true"),
        ("string", ".status.conditions[5]", None),
        ("date", ".metadata.name", "<invalid>"),
        ("date", ".spec.size", None),
    ],
)
def test_a_cell_has_the_type_of_its_column(kind: str, path: str, cell: Any) -> None:
    table = custom_table([Column("It", kind, path)], [ITEM], {})
    assert table["rows"] == [{"cells": ["one", cell]}]
