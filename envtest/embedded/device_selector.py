"""Judges the simple CEL selectors of device classes: comparisons joined by ``&&``, and nothing else."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from driver.errors import DriverError

if TYPE_CHECKING:
    from collections.abc import Mapping

_LITERAL = r"""(?P<value>'[^'\\]*'|"[^"\\]*"|true|false|-?(?:0|[1-9]\d{0,17}))"""
_DRIVER = re.compile(rf"^device\.driver\s*==\s*{_LITERAL}$")
_ATTRIBUTE = re.compile(
    rf"""^device\.attributes\[(?:'(?P<single>[^'\\]+)'|"(?P<double>[^"\\]+)")\]"""
    rf"""\.(?P<name>[A-Za-z_]\w*)\s*==\s*{_LITERAL}$""",
    re.ASCII,
)


class CannotJudge(DriverError):
    """Only the real scheduler knows what to do with this; nothing was decided."""

    retryable = False

    def __init__(self, what: str) -> None:
        super().__init__(what, "use a real cluster for it")


def selects(expression: str, driver: str, attributes: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether the selector is true for a device of ``driver`` with these attributes of a ResourceSlice.

    Known are ``device.driver == 'x'`` and ``device.attributes['domain'].name == literal``, joined by
    ``&&``. As in CEL, a comparison that is false decides also where another one has no answer. Raises
    CannotJudge for everything else: other operators and functions, an attribute that the device does
    not have, one of another type than the literal's, and versions.
    """
    unknown: CannotJudge | None = None
    for term in expression.split("&&"):
        try:
            if not _holds(term.strip(), driver, attributes):
                return False
        except CannotJudge as error:
            unknown = error
    if unknown is not None:
        raise unknown
    return True


def check_known(expression: str) -> None:
    """Raises CannotJudge for a selector that has another form than those that are known here."""
    for term in expression.split("&&"):
        if not (_DRIVER.match(term.strip()) or _ATTRIBUTE.match(term.strip())):
            raise CannotJudge(f"the embedded scheduler cannot evaluate the CEL term {term.strip()!r}")


def _holds(term: str, driver: str, attributes: Mapping[str, Mapping[str, Any]]) -> bool:
    match = _DRIVER.match(term)
    if match is not None:
        return _same(term, driver, _literal(match["value"]))
    match = _ATTRIBUTE.match(term)
    if match is None:
        raise CannotJudge(f"the embedded scheduler cannot evaluate the CEL term {term!r}")
    domain = match["single"] or match["double"]
    value = attributes.get(f"{domain}/{match['name']}")
    if value is None and domain == driver:
        value = attributes.get(match["name"])
    known = {kind: value[kind] for kind in ("string", "bool", "int") if kind in (value or {}) and value}
    if not known:
        raise CannotJudge(f"a device of {driver} has no plain attribute for the CEL term {term!r}")
    return _same(term, next(iter(known.values())), _literal(match["value"]))


def _same(term: str, value: Any, literal: str | int) -> bool:
    """Whether both are equal; bool is not int here."""
    if type(value) is not type(literal):
        raise CannotJudge(f"the CEL term {term!r} compares unlike types")
    return bool(value == literal)


def _literal(text: str) -> str | int:
    if text in ("true", "false"):
        return text == "true"
    return text[1:-1] if text[0] in "'\"" else int(text)
