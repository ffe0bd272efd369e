"""Turns the dataclasses of a machine's state into JSON documents, and reads them back by their types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from driver.nvml.pci_address import PciAddress

D = TypeVar("D")


def to_document(value: object, usual: Mapping[str, object] | None = None) -> Any:
    """A value as JSON has it; a dataclass without the fields that have their ``usual`` values."""
    if isinstance(value, PciAddress):
        return str(value)
    if is_dataclass(value):
        named = [(field.name, getattr(value, field.name)) for field in fields(value)]
        return {name: to_document(one) for name, one in named if not usual or one != usual.get(name, ...)}
    if isinstance(value, Mapping):
        return {str(key): to_document(one) for key, one in value.items()}
    return [to_document(one) for one in value] if isinstance(value, tuple) else value


@cache
def _reader(kind: Any) -> Callable[[Any], Any]:
    """The function that reads values of a type."""
    # It is made once for each type: examining types is slow, and states are read often.
    if kind is PciAddress:
        return PciAddress.parse
    if isinstance(kind, type) and is_dataclass(kind):
        readers = {name: _reader(one) for name, one in get_type_hints(kind).items()}
        return lambda document: kind(**{name: readers[name](one) for name, one in document.items()})
    origin, args = get_origin(kind), get_args(kind)
    if origin is tuple:
        read_item = _reader(args[0])
        return lambda document: tuple(map(read_item, document))
    if origin is Mapping:
        read_key, read_value = map(_reader, args)
        return lambda document: {read_key(key): read_value(one) for key, one in document.items()}
    if NoneType in args:
        read_known = _reader(args[0])
        return lambda document: None if document is None else read_known(document)
    return lambda document: document


def read_state(kind: type[D], document: Any, schema: int, machine: str, what: str) -> D:
    """The state in the document of a state file; raises ValueError for other documents and other machines.

    Fields that the document does not have get their defaults.
    """
    known: Any = kind
    try:
        head = (document.pop("schema"), document.pop("machine"))
        state: D = _reader(known)(document)
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"it is not the state of a fake {what} ({error})") from error
    if head != (schema, machine):
        raise ValueError(f"it holds schema {head[0]} of machine {head[1]!r}")
    return state
