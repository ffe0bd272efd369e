"""Turns objects into the tables that ``kubectl get`` prints."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

from envtest.embedded.shown.cells import CELLS, plain_cells

Object = dict[str, Any]

MakeTable = Callable[[Iterable[Object], Object], Object]
"""Makes the metav1.Table of objects and its metadata; its rows have no objects."""

_WITHOUT_COLUMNS = "roles"
"""One of the kinds whose table has only names and times of creation."""


def table_of(plural: str, items: Iterable[Object], metadata: Object) -> Object:
    """A metav1.Table, whose rows have no objects."""
    cells = CELLS.get(plural, plain_cells)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": _definitions(plural if plural in CELLS else _WITHOUT_COLUMNS),
        "rows": [{"cells": cells(item)} for item in items],
    }


@cache
def _definitions(plural: str) -> list[Object]:
    """The definitions of the columns, as kube-apiserver 1.37.1 answers them."""
    return [
        # kubectl shows columns of a priority above 0 with -o wide only.
        {"name": name, "type": kind, "format": form, "description": description, "priority": priority}
        for name, kind, form, priority, description in _columns()[plural]
    ]


@cache
def _columns() -> dict[str, list[tuple[str, str, str, int, str]]]:
    found: dict[str, list[tuple[str, str, str, int, str]]] = json.loads(
        Path(__file__).with_name("columns.json").read_text()
    )
    return found
