"""Makes the value of ``device`` from a device of a ResourceSlice.

Go: k8s.io/dynamic-resource-allocation/cel/compile.go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from kubernetes_rules.cel import library_quantity, library_semver
from kubernetes_rules.cel.attributes import DomainMap
from kubernetes_rules.cel.operators import DeviceMap
from kubernetes_rules.cel.types import CelError


def _plain(value: Any) -> Any:
    return value


def _each(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda values: tuple(map(convert, values))


# Kubernetes 1.37 evaluates lists even if DRAListTypeAttributes, the gate for publishing them, is off.
_KINDS: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    ("ints", _each(_plain)),
    ("bools", _each(_plain)),
    ("strings", _each(_plain)),
    ("versions", _each(library_semver.parse)),
    ("int", _plain),
    ("bool", _plain),
    ("string", _plain),
    ("version", library_semver.parse),
)
"""The fields of an attribute; the first that is set counts."""


def device_value(
    driver: str,
    attributes: Mapping[str, Mapping[str, Any]],
    capacity: Mapping[str, Mapping[str, Any]],
    *,
    allow_multiple_allocations: bool,
) -> dict[str, Any]:
    """The value of a device, from the attributes and capacity of a slice's JSON.

    Raises CelError or KeyError for an attribute or a capacity of an unknown kind.
    """
    return {
        "driver": driver,
        "allowMultipleAllocations": allow_multiple_allocations,
        "attributes": _by_domain(attributes, driver, _attribute),
        "capacity": _by_domain(capacity, driver, _quantity),
    }


def _by_domain(
    named: Mapping[str, Mapping[str, Any]], driver: str, convert: Callable[[Mapping[str, Any]], Any]
) -> DomainMap:
    domains = DomainMap()
    # A name without a domain is in the driver's domain: ``foo`` and ``DRIVER/foo`` are one key here.
    for name, value in named.items():
        domain, slash, identifier = name.partition("/")
        if not slash:
            domain, identifier = driver, name
        domains.setdefault(domain, DeviceMap())[identifier] = convert(value)
    return domains


def _attribute(value: Mapping[str, Any]) -> Any:
    for kind, convert in _KINDS:
        if value.get(kind) is not None:
            return convert(value[kind])
    raise CelError("unsupported attribute value")


def _quantity(value: Mapping[str, Any]) -> Any:
    return library_quantity.parse(str(value.get("value", "0")))


def is_ordinary(
    attributes: Mapping[str, Mapping[str, Any]], capacity: Mapping[str, Mapping[str, Any]]
) -> bool:
    """Whether ``device_value`` surely makes a value of these; lists of versions are not looked into."""
    kinds = (next(iter(one.items())) if len(one) == 1 else ("", None) for one in attributes.values())
    amounts = (("quantity", one.get("value")) for one in capacity.values())
    return all(_is_readable(kind, value) for kind, value in (*kinds, *amounts))


def _is_readable(kind: str, value: Any) -> bool:
    if kind in ("version", "quantity"):
        return type(value) is str and _converts(kind, value)
    if kind in ("ints", "bools", "strings"):
        return type(value) is list
    return kind in ("int", "bool", "string") and value is not None


@lru_cache(maxsize=4096)
def _converts(kind: str, text: str) -> bool:
    try:
        library_semver.parse(text) if kind == "version" else library_quantity.parse(text)
    except CelError:
        return False
    return True
