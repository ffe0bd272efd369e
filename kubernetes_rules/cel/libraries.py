"""All functions that a selector can call, by name."""

from __future__ import annotations

from kubernetes_rules.cel import (
    conversions,
    library_format,
    library_ip,
    library_lists,
    library_numbers,
    library_regex,
    library_strings,
    library_urls,
    operators,
    optionals,
    times,
)
from kubernetes_rules.cel.types import Overload

_CORE_OVERLOADS = (*operators.OVERLOADS, *conversions.OVERLOADS, *times.OVERLOADS, *optionals.OVERLOADS)
_OVERLOADS = (
    *_CORE_OVERLOADS, *library_urls.OVERLOADS, *library_regex.OVERLOADS,
    *library_numbers.OVERLOADS, *library_strings.OVERLOADS, *library_ip.OVERLOADS,
    *library_format.OVERLOADS, *library_lists.OVERLOADS,
)  # fmt: skip
"""In the order of k8s.io/apiserver/pkg/cel/environment: the first signature that fits counts."""


def _by_name() -> dict[str, tuple[Overload, ...]]:
    found: dict[str, tuple[Overload, ...]] = {}
    for overload in _OVERLOADS:
        found[overload.name] = (*found.get(overload.name, ()), overload)
    return found


FUNCTIONS = _by_name()
COUNTED_BY_SIGNATURE = frozenset(
    overload.name for overload in (*_CORE_OVERLOADS, *library_lists.EXTENSION_OVERLOADS)
)
"""The functions whose cost depends on the signature; that of Kubernetes' own depends only on the name."""
