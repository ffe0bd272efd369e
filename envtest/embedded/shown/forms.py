"""The forms in which a client may want objects: as they are, as a table, or their metadata only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from envtest.embedded.shown.tables import MakeTable

Object = dict[str, Any]

TABLE, METADATA, METADATA_LIST = "Table", "PartialObjectMetadata", "PartialObjectMetadataList"

_API_VERSION = "meta.k8s.io/v1"
_TYPES = ("application/json", "*/*", "application/*")


@dataclass(frozen=True, slots=True)
class Form:
    """A form: ``kind`` is Table, PartialObjectMetadata, PartialObjectMetadataList, or empty for objects as
    they are."""

    kind: str = ""

    def metadata_of(self, item: Object) -> Object:
        """The PartialObjectMetadata of an object."""
        return {"kind": METADATA, "apiVersion": _API_VERSION, "metadata": item["metadata"]}

    def of_object(self, item: Object, make_table: MakeTable, include: str) -> Object:
        """An object in this form; ``include`` is the part of it that goes into the row of a table.

        It is None, Metadata, Object or empty.
        """
        if self.kind == TABLE:
            metadata = item["metadata"]
            # The object of a dry run may have no version.
            about = {key: metadata[key] for key in ("resourceVersion",) if key in metadata}
            return self.table_of([item], make_table, about, include)
        return self.metadata_of(item) if self.kind == METADATA else item

    def of_list(self, answer: Object, make_table: MakeTable, include: str) -> Object:
        """A list in this form."""
        metadata = {key: value for key, value in answer["metadata"].items() if value}
        if self.kind == TABLE:
            return self.table_of(answer["items"], make_table, metadata, include)
        if self.kind == METADATA_LIST:
            items = [self.metadata_of(item) for item in answer["items"]]
            return {"kind": self.kind, "apiVersion": _API_VERSION, "metadata": metadata, "items": items}
        # The list names the kind of all.
        named = ("apiVersion", "kind")
        items = [{key: one[key] for key in one if key not in named} for one in answer["items"]]
        return {**answer, "items": items}

    def table_of(self, items: list[Object], make_table: MakeTable, metadata: Object, include: str) -> Object:
        """The table with a row for each object."""
        # Only the object of a bookmark has no name.
        named = [
            one if "name" in one["metadata"] else {**one, "metadata": {"name": "", **one["metadata"]}}
            for one in items
        ]
        table = make_table(named, metadata)
        carried: list[Object | None] = [None if include == "None" else item for item in items]
        if include in ("", "Metadata"):
            carried = [self.metadata_of(item) for item in items]
        rows = [{**row, "object": item} for row, item in zip(table["rows"], carried, strict=True)]
        return {**table, "rows": rows}


def asked_form(accept: str) -> Form:
    """The first form of an Accept header that there is; objects as they are in JSON where there is none."""
    for clause in accept.split(","):
        media_type, *rest = (part.strip() for part in clause.split(";"))
        asked = dict(part.split("=", 1) for part in rest if "=" in part)
        if media_type not in _TYPES:
            continue
        if "as" not in asked:
            return Form()
        if asked["as"] in (TABLE, METADATA, METADATA_LIST) and asked.get("v") == "v1":
            return Form(asked["as"])
    return Form()
