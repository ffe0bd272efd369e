"""Decodes Kubernetes' protobuf encoding, which typed clients such as kubectl write.

The encoding: https://protobuf.dev/programming-guides/encoding, in an envelope of four bytes ``k8s\\0`` and
the message runtime.Unknown. The tags of the fields are those of types.json.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from envtest.embedded.schema.decoding import BodyError, DecodingError
from envtest.embedded.schema.types import FieldType, tags_of, type_of

MAGIC = b"k8s\x00"
CONTENT_TYPE = "application/vnd.kubernetes.protobuf"

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_DELETE_OPTIONS = FieldType("struct", "meta.v1.DeleteOptions")
_MOST_DEPTH = 40


def from_protobuf(data: bytes) -> dict[str, Any]:
    """The object in the envelope, in the form that JSON has; raises DecodingError, BodyError."""
    if not data.startswith(MAGIC):
        text = "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
        raise BodyError(text)
    # runtime.Unknown: 1 is the type (apiVersion, kind), 2 the object itself.
    envelope = dict(_fields(data[len(MAGIC) :]))
    head = dict(_fields(_as_bytes(envelope.get(1, b""))))
    api_version, kind = (_text(head.get(number, b"")) for number in (1, 2))
    found = _DELETE_OPTIONS if kind == "DeleteOptions" else type_of(api_version, kind)
    if found is None:
        raise DecodingError(f"no kind {kind!r} is registered for version {api_version!r}")
    item = _struct(_as_bytes(envelope.get(2, b"")), found, _MOST_DEPTH)
    return {**item, "apiVersion": api_version, "kind": kind}


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The number and the raw value of each field of a message."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        # A tag is the number of the field and, in three bits, how its value is encoded.
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, at = _varint(data, at)
            yield number, value
            continue
        if wire == _BYTES:
            size, at = _varint(data, at)
        elif wire in (_FIXED64, _FIXED32):
            size = 8 if wire == _FIXED64 else 4
        else:
            raise DecodingError(f"the body has a protobuf field of the unknown wire type {wire}")
        if at + size > len(data):
            raise DecodingError("the protobuf body ends within a field")
        yield number, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise DecodingError("the protobuf body ends within a number")
        byte = data[at]
        # Seven bits of each byte, the lowest ones first; the eighth says that more follow.
        result |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return result, at


def _struct(data: bytes, kind: FieldType, depth: int, ref: str = "") -> dict[str, Any]:
    """The fields of a message; ``ref`` is the message's type where it is an inline part of ``kind``."""
    if depth == 0:
        raise DecodingError("the body is nested too deeply")
    tags, fields = tags_of(ref or kind.ref), kind.fields
    result: dict[str, Any] = {}
    for number, value in _fields(data):
        name, *more = tags.get(str(number), ("", ""))
        if name:
            _add(result, name, fields[name], value, is_bytes=bool(more), depth=depth - 1)
        elif more[0]:
            result |= _struct(_as_bytes(value), kind, depth - 1, more[0])
    return result


def _add(
    result: dict[str, Any], name: str, kind: FieldType, value: int | bytes, *, is_bytes: bool, depth: int
) -> None:
    of = kind.of
    if kind.shape == "map" and of is not None:
        # A map is sent as repeated messages of key (1) and value (2).
        entry = dict(_fields(_as_bytes(value)))
        key = _text(entry.get(1, b""))
        result.setdefault(name, {})[key] = _value(entry.get(2, b""), of, is_bytes=is_bytes, depth=depth)
    elif kind.shape == "list" and of is not None:
        result.setdefault(name, []).append(_value(value, of, is_bytes=is_bytes, depth=depth))
    else:
        result[name] = _value(value, kind, is_bytes=is_bytes, depth=depth)
        # Go writes a text that is absent as an empty one.
        if result[name] == "":
            del result[name]


def _value(value: int | bytes, kind: FieldType, *, is_bytes: bool, depth: int) -> Any:
    if kind.shape == "boolean":
        return value not in (0, b"")
    if kind.shape in ("int32", "int64"):
        number = value if isinstance(value, int) else 0
        # Negative numbers are sent as 64 bits in two's complement.
        return number - (1 << 64) if number >> 63 else number
    return _message(_as_bytes(value), kind, is_bytes=is_bytes, depth=depth)


def _message(data: bytes, kind: FieldType, *, is_bytes: bool, depth: int) -> Any:
    match kind.shape:
        case "number":
            number = float(struct.unpack("<d", data)[0])
            # Go writes a whole number without a fraction.
            return int(number) if number.is_integer() else number
        case "struct":
            return _struct(data, kind, depth)
        case "quantity":
            # A Quantity is a message with its text.
            return _text(dict(_fields(data)).get(1, b"0"))
        case "time" | "microTime":
            return _time(data, is_micro=kind.shape == "microTime")
        case "intOrString":
            parts = dict(_fields(data))
            # IntOrString: 1 is the type (0 a number, 1 a text), 2 the number, 3 the text.
            return _text(parts.get(3, b"")) if parts.get(1) else parts.get(2, 0)
        case "any":
            # RawExtension and FieldsV1 hold JSON.
            return _json(_as_bytes(dict(_fields(data)).get(1, b"null")))
    return base64.b64encode(data).decode() if is_bytes else _text(data)


def _time(data: bytes, *, is_micro: bool) -> str:
    """An RFC 3339 time; empty for the zero time, which has no seconds or those of the year 1."""
    parts = dict(_fields(data))
    seconds, nanos = parts.get(1, 0), parts.get(2, 0)
    if not isinstance(seconds, int) or not isinstance(nanos, int) or not seconds or seconds >> 63:
        return ""
    moment = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{moment}.{nanos // 1000:06}Z" if is_micro else f"{moment}Z"


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError as error:
        raise DecodingError(f"a raw field of the body is not JSON: {error}") from error


def _as_bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise DecodingError("the body has a number where its type has a message or a text")
    return value


def _text(value: int | bytes) -> str:
    try:
        return _as_bytes(value).decode()
    except UnicodeDecodeError as error:
        raise DecodingError("the body has a text that is not UTF-8") from error
