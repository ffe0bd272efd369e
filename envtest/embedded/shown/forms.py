"""The forms in which a client may want objects: as they are, as a table, or their metadata only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from envtest.embedded.shown.tables import table_of

Object = dict[str, Any]

TABLE, METADATA, METADATA_LIST = "Table", "PartialObjectMetadata", "PartialObjectMetadataList"

_GROUP = "meta.k8s.io"
_TYPES = ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf")
_INCLUDES = ("", "Metadata", "Object", "None")


class NotAcceptable(Exception):
    """The client accepts no form that there is, or not the one of this answer; kube-apiserver answers 406."""


@dataclass(frozen=True, slots=True)
class Form:
    """A form: ``kind`` is Table, PartialObjectMetadata, PartialObjectMetadataList, or empty for objects as
    they are; ``version`` is that of meta.k8s.io."""

    kind: str = ""
    version: str = "v1"

    @property
    def api_version(self) -> str:
        """The apiVersion of objects in this form."""
        return f"{_GROUP}/{self.version}"

    def metadata_of(self, item: Object) -> Object:
        """The PartialObjectMetadata of an object."""
        return {"kind": METADATA, "apiVersion": self.api_version, "metadata": item["metadata"]}

    def of(self, answer: Object, go_type: str, plural: str, include: str) -> Object:
        """An object or a list in this form; raises NotAcceptable.

        ``go_type`` is what Kubernetes calls the type of the object, and ``include`` (None, Metadata, Object or
        empty) the part of each object that goes into the row of a table.
        """
        is_list = "items" in answer
        match self.kind:
            case "Table":
                metadata = answer["metadata"] if is_list else _version_of(answer)
                return self.table_of(answer["items"] if is_list else [answer], plural, metadata, include)
            case "PartialObjectMetadata" if is_list:
                text = f"you requested {METADATA}, but the requested object is a list (*{go_type}List)"
                raise NotAcceptable(text)
            case "PartialObjectMetadata":
                return self.metadata_of(answer)
            case "PartialObjectMetadataList" if not is_list:
                text = f"you requested {METADATA_LIST}, but the requested object is not a list (*{go_type})"
                raise NotAcceptable(text)
            case "PartialObjectMetadataList":
                items = [self.metadata_of(item) for item in answer["items"]]
                about = {"kind": METADATA_LIST, "apiVersion": self.api_version}
                return {**about, "metadata": answer["metadata"], "items": items}
        return answer

    def table_of(self, items: list[Object], plural: str, metadata: Object, include: str) -> Object:
        """The table with a row for each object."""
        table = table_of(items, plural, metadata)
        carried = [None if include == "None" else item for item in items]
        if include in ("", "Metadata"):
            carried = [self.metadata_of(item) for item in items]
        rows = [{**row, "object": item} for row, item in zip(table["rows"], carried, strict=True)]
        return {**table, "apiVersion": self.api_version, "rows": rows}
