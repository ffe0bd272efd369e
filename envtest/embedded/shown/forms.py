"""The forms in which a client may want objects: as they are, as a table, or their metadata only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from envtest.embedded.shown.tables import MakeTable

Object = dict[str, Any]

TABLE, METADATA, METADATA_LIST = "Table", "PartialObjectMetadata", "PartialObjectMetadataList"

_GROUP = "meta.k8s.io"
_VERSIONS = ("v1", "v1beta1")
_PROTOBUF = "application/vnd.kubernetes.protobuf"
YAML = "application/yaml"
_TYPES = ("application/json", YAML, _PROTOBUF)
_STREAMS = ("application/json;stream=watch", f"{_PROTOBUF};stream=watch")
_ANY = ("*/*", "application/*")
_INCLUDES = ("", "Metadata", "Object", "None")


class NotAcceptable(Exception):
    """The client accepts no form that there is, or not the one of this answer; kube-apiserver answers 406.

    ``details`` are those of the answer, None for none.
    """

    def __init__(self, message: str, details: Object | None = None) -> None:
        super().__init__(message)
        self.details = details


class UnknownInclude(Exception):
    """A table is to carry something that objects do not have; kube-apiserver answers 400."""


@dataclass(frozen=True, slots=True)
class Form:
    """A form: ``kind`` is Table, PartialObjectMetadata, PartialObjectMetadataList, or empty for objects as
    they are; ``version`` is that of meta.k8s.io."""

    kind: str = ""
    version: str = "v1"
    is_yaml: bool = False

    @property
    def api_version(self) -> str:
        """The apiVersion of objects in this form."""
        return f"{_GROUP}/{self.version}"

    def metadata_of(self, item: Object) -> Object:
        """The PartialObjectMetadata of an object."""
        return {"kind": METADATA, "apiVersion": self.api_version, "metadata": item["metadata"]}

    def of_object(self, item: Object, go_type: str, make_table: MakeTable, include: str) -> Object:
        """An object in this form; raises NotAcceptable.

        ``go_type`` is what Kubernetes calls the type of the object, and ``include`` (None, Metadata, Object
        or empty) the part of the object that goes into the row of a table.
        """
        if self.kind == TABLE:
            metadata = item["metadata"]
            # The object of a dry run may have no version.
            about = {key: metadata[key] for key in ("resourceVersion",) if key in metadata}
            return self.table_of([item], make_table, about, include)
        if self.kind == METADATA_LIST:
            text = f"you requested {METADATA_LIST}, but the requested object is not a list (*{go_type})"
            raise NotAcceptable(text)
        return self.metadata_of(item) if self.kind == METADATA else item

    def of_list(self, answer: Object, go_type: str, make_table: MakeTable, include: str) -> Object:
        """A list in this form; raises NotAcceptable."""
        metadata = {key: value for key, value in answer["metadata"].items() if value}
        if self.kind == TABLE:
            return self.table_of(answer["items"], make_table, metadata, include)
        if self.kind == METADATA:
            text = f"you requested {METADATA}, but the requested object is a list (*{go_type}List)"
            raise NotAcceptable(text)
        if self.kind == METADATA_LIST:
            items = [self.metadata_of(item) for item in answer["items"]]
            about = {"kind": METADATA_LIST, "apiVersion": self.api_version}
            return {**about, "metadata": metadata, "items": items}
        return {**answer, "items": [_listed(item) for item in answer["items"]]}

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
        return {**table, "apiVersion": self.api_version, "rows": rows}

    def check_include(self, include: str) -> None:
        """Check what the rows of a table are to carry; raises UnknownInclude as ValidateTableOptions does."""
        if self.kind == TABLE and include not in _INCLUDES:
            known = "must be 'Metadata', 'Object', 'None', or empty"
            fault = f'includeObject: Invalid value: "{include}": {known}'
            raise UnknownInclude(f"Unable to convert to Table as requested: {fault}")


def _listed(item: Object) -> Object:
    """An object as an entry of a list: the list names the kind of all."""
    return {key: value for key, value in item.items() if key not in ("apiVersion", "kind")}


def asked_form(accept: str, *, is_built_in: bool, is_collection: bool) -> Form:
    """The form that an Accept header asks for; raises NotAcceptable where there is none such.

    As NegotiateMediaTypeOptions in k8s.io/apiserver/pkg/endpoints/handlers/negotiation. The paths of built-in
    kinds are those of go-restful, which looks at the header before.
    """
    clauses = [_clause(text) for text in accept.split(",")]
    if accept and is_built_in and not any(media_type in (*_TYPES, "*/*") for media_type, _ in clauses):
        available = ", ".join((*_TYPES, *_STREAMS) if is_collection else _TYPES)
        raise NotAcceptable(f"406: Not Acceptable\n\nAvailable representations: {available}", {})
    known = [clause for clause in clauses if clause[0] in (*_TYPES, *_ANY)]
    # The order of those that are wanted equally stays.
    for media_type, parameters in sorted(known, key=lambda clause: -_quality(clause[1])):
        form = _form(media_type, parameters)
        if form is not None:
            return form
    if accept:
        raise NotAcceptable(f"only the following media types are accepted: {', '.join(_TYPES)}")
    return Form()


def check_stream(form: Form) -> None:
    """Raises NotAcceptable for a form that a watch cannot have."""
    if form.is_yaml:
        raise NotAcceptable(f"only the following media types are accepted: {', '.join(_STREAMS)}")


def _form(media_type: str, parameters: dict[str, str]) -> Form | None:
    """The form of one clause, None where it is not served."""
    is_yaml = media_type == YAML
    if not parameters.keys() & {"as", "g", "v"}:
        return Form(is_yaml=is_yaml)
    form = Form(parameters.get("as", ""), parameters.get("v", ""), is_yaml)
    is_known = parameters.get("g") == _GROUP and form.version in _VERSIONS
    if form.kind == TABLE:
        return form if is_known and media_type != _PROTOBUF else None
    return form if is_known and form.kind in (METADATA, METADATA_LIST) else None


def _clause(text: str) -> tuple[str, dict[str, str]]:
    media_type, *rest = (part.strip() for part in text.split(";"))
    pairs = (part.partition("=") for part in rest)
    return media_type, {name.strip(): value.strip() for name, _, value in pairs}


def _quality(parameters: dict[str, str]) -> float:
    try:
        return float(parameters.get("q", "1"))
    except ValueError:
        return 1.0
