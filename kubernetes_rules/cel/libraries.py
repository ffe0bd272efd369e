"""All functions that a selector can call, by their names."""

from __future__ import annotations

from kubernetes_rules.cel import (
    conversions,
    library_authz,
    library_format,
    library_ip,
    library_lists,
    library_quantity,
    library_regex,
    library_semver,
    library_sets,
    library_strings,
    library_urls,
    operators,
    optionals,
    times,
)
from kubernetes_rules.cel.types import Overload

_CORE = (operators, conversions, times, optionals)
_LIBRARIES = (
    *_CORE, library_urls, library_regex, library_authz, library_quantity, library_strings, library_sets,
    library_ip, library_format, library_semver, library_lists,
)  # fmt: skip
"""In the order of k8s.io/apiserver/pkg/cel/environment: of several signatures that fit, the first counts."""


def _by_name() -> dict[str, tuple[Overload, ...]]:
    found: dict[str, tuple[Overload, ...]] = {}
    for library in _LIBRARIES:
        for overload in library.OVERLOADS:
            found[overload.name] = (*found.get(overload.name, ()), overload)
    return found


FUNCTIONS = _by_name()
_EXTENSIONS = (*library_lists.EXTENSION_OVERLOADS, *library_sets.OVERLOADS)
COUNTED_BY_SIGNATURE = frozenset(
    overload.name for library in _CORE for overload in library.OVERLOADS
) | frozenset(overload.name for overload in _EXTENSIONS)
"""The functions whose cost depends on which signature is called, unlike that of Kubernetes' own."""
