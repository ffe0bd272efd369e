"""Turns objects into the tables that ``kubectl get`` prints, and into their metadata alone."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from envtest.embedded.shown.cells import CELLS, plain_cells

Object = dict[str, Any]

TABLE = "as=Table"
"""In the Accept header of a client that wants a table."""
METADATA = "as=PartialObjectMetadata"
"""In the Accept header of a client that wants metadata only (for a list, PartialObjectMetadataList)."""
_WITHOUT_COLUMNS = "roles"
"""One of the kinds whose table has only names and times of creation."""


def table_of(items: Iterable[Object], plural: str, metadata: Object, include: str) -> Object:
    """A metav1.Table; ``include`` (None, Metadata or Object) is the part of the object in each row."""
    cells = CELLS.get(plural, plain_cells)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": _definitions(plural if plural in CELLS else _WITHOUT_COLUMNS),
        "rows": [{"cells": cells(item), "object": carried(item, include)} for item in items],
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


def metadata_of(answer: Object) -> Object:
    """The metadata of an object, or of each object of a list."""
    if "items" not in answer:
        return _metadata(answer)
    items = [_metadata(item) for item in answer["items"]]
    about = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1"}
    return {**about, "metadata": answer["metadata"], "items": items}


def _metadata(item: Object) -> Object:
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": item["metadata"]}


def carried(item: Object, include: str) -> Any:
    """The part of an object that a row carries: nothing, the metadata or all of it."""
    if include == "None":
        return None
    if include == "Object":
        return item
    return _metadata(item)
