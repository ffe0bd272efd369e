"""Functions on quantities such as ``80Gi`` and on semantic versions such as ``1.2.3-rc.1``.

Go: quantity.go and semverlib.go in k8s.io/apiserver/pkg/cel/library.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from decimal import Decimal
from typing import ClassVar

from kubernetes_rules import quantity as api
from kubernetes_rules.cel.types import BOOL, DOUBLE, INT, STRING, CelError, Type, function, method
from kubernetes_rules.cel.values import OpaqueValue, traversed_string

QUANTITY = Type("kubernetes.Quantity")


@dataclass(frozen=True, slots=True, eq=False)
class Quantity(OpaqueValue):
    """An exact number.

    ``computed``: it is the result of add or sub. Kubernetes compares such a value by ``==`` only as the left
    operand; as the right one it is an error.
    """

    type: ClassVar[Type] = QUANTITY
    amount: api.Quantity
    computed: bool = False

    def equals(self, other: object) -> bool:
        """Whether the numbers are equal. Raises CelError for another type, and for a computed one."""
        if not isinstance(other, Quantity) or other.computed:
            raise CelError("no such overload")
        return self.amount == other.amount


def parse_quantity(text: str) -> Quantity:
    """The quantity of a text. Raises CelError for other text."""
    try:
        return Quantity(api.Quantity.parse(text))
    except ValueError as error:
        raise CelError(str(error)) from error


def _is_quantity(text: str) -> bool:
    """Whether a text is a quantity."""
    try:
        api.Quantity.parse(text)
    except ValueError:
        return False
    return True


def _order_of(left: Quantity, right: Quantity) -> int:
    """-1, 0 or 1."""
    one, other = left.amount.value, right.amount.value
    return (one > other) - (one < other)


def _as_integer(value: Quantity) -> int:
    integer = value.amount.as_int64()
    if integer is None:
        raise CelError("cannot convert value to integer")
    return integer


def _sum(left: Quantity, right: Quantity | int, sign: int) -> Quantity:
    other = right.amount if isinstance(right, Quantity) else _of_integer(right)
    try:
        return Quantity(left.amount.plus(other) if sign > 0 else left.amount.minus(other), computed=True)
    except OverflowError as error:
        raise CelError(str(error)) from error


def _of_integer(number: int) -> api.Quantity:
    return api.Quantity(Decimal(number), api.Format.DECIMAL_EXPONENT)


_ZERO = Quantity(api.Quantity(Decimal(0)))

_QUANTITY_OVERLOADS = (
    function("quantity", (STRING,), QUANTITY, parse_quantity, traversed_string()),
    function("isQuantity", (STRING,), BOOL, _is_quantity, traversed_string()),
    function("sign", (QUANTITY,), INT, lambda value: _order_of(value, _ZERO)),
    method("isGreaterThan", (QUANTITY, QUANTITY), BOOL, lambda left, right: _order_of(left, right) > 0),
    method("isLessThan", (QUANTITY, QUANTITY), BOOL, lambda left, right: _order_of(left, right) < 0),
    method("compareTo", (QUANTITY, QUANTITY), INT, _order_of),
    method("asApproximateFloat", (QUANTITY,), DOUBLE, lambda value: value.amount.approximate()),
    method("asInteger", (QUANTITY,), INT, _as_integer),
    method("isInteger", (QUANTITY,), BOOL, lambda value: value.amount.as_int64() is not None),
    method("add", (QUANTITY, QUANTITY), QUANTITY, lambda left, right: _sum(left, right, 1)),
    method("add", (QUANTITY, INT), QUANTITY, lambda left, right: _sum(left, right, 1)),
    method("sub", (QUANTITY, QUANTITY), QUANTITY, lambda left, right: _sum(left, right, -1)),
    method("sub", (QUANTITY, INT), QUANTITY, lambda left, right: _sum(left, right, -1)),
)

SEMVER = Type("kubernetes.Semver")

_NUMBER = re.compile(r"0|[1-9][0-9]*")
_IDENTIFIER = re.compile(r"[0-9A-Za-z-]+")
_DIGITS_OF_UINT64 = 20


@dataclass(frozen=True, slots=True, order=True)
class Semver(OpaqueValue):
    """A version by semver.org 2.0.0, without its build metadata, which does not count in comparisons.

    ``before`` orders pre-releases: the release itself comes after them, and numbers come before words.
    """

    type: ClassVar[Type] = SEMVER

    major: int
    minor: int
    patch: int
    before: tuple[tuple[int, int, str], ...] = field(default=())


_NO_PRERELEASE = ((2, 0, ""),)


def parse_semver(text: str) -> Semver:
    """The version of a text in strict form. Raises CelError for other text."""
    parts = text.split(".", 2)
    if len(parts) != 3:
        raise CelError(f"{text[:64]!r} is not a version: no major.minor.patch found")
    core, plus, build = parts[2].partition("+")
    patch, dash, prerelease = core.partition("-")
    if plus and not all(map(_IDENTIFIER.fullmatch, build.split("."))):
        raise CelError(f"{text[:64]!r} is not a version: its build metadata is not alphanumeric")
    before = tuple(map(_prerelease_part, prerelease.split("."))) if dash else _NO_PRERELEASE
    return Semver(_number(parts[0]), _number(parts[1]), _number(patch), before)


def _parse_normalized(text: str, normalize: bool) -> Semver:
    """Like parse_semver, if wanted after normalization: leading v and zeros removed, missing numbers 0."""
    if not normalize:
        return parse_semver(text)
    parts = [_without_zeros(part) for part in text.removeprefix("v").split(".", 2)]
    if len(parts) < 3 and ("+" in parts[-1] or "-" in parts[-1]):
        raise CelError("short version cannot contain PreRelease/Build meta data")
    return parse_semver(".".join([*parts, "0", "0"][: max(3, len(parts))]))


def _without_zeros(part: str) -> str:
    if len(part) < 2:
        return part
    stripped = part.lstrip("0")
    return stripped if stripped[:1] in set("0123456789") else f"0{stripped}"


def _number(digits: str) -> int:
    if not _NUMBER.fullmatch(digits) or len(digits) > _DIGITS_OF_UINT64 or int(digits) >= 2**64:
        raise CelError(f"{digits[:64]!r} is not a number of a version")
    return int(digits)


def _prerelease_part(part: str) -> tuple[int, int, str]:
    if not _IDENTIFIER.fullmatch(part):
        raise CelError(f"{part[:64]!r} is not an identifier of a pre-release")
    return (0, _number(part), "") if part.isdigit() else (1, 0, part)


def _is_semver(text: str, normalize: bool = False) -> bool:
    """Whether a text is a version."""
    try:
        _parse_normalized(text, normalize)
    except CelError:
        return False
    return True


def _order_of_versions(left: Semver, right: Semver) -> int:
    """-1, 0 or 1."""
    return (left > right) - (left < right)


def _as_int64(number: int) -> int:
    """Kubernetes converts a uint64 to an int64, so that large ones become negative."""
    return number - 2**64 if number >= 2**63 else number


_SEMVER_OVERLOADS = (
    function("semver", (STRING,), SEMVER, parse_semver, traversed_string()),
    function("semver", (STRING, BOOL), SEMVER, _parse_normalized, traversed_string()),
    function("isSemver", (STRING,), BOOL, _is_semver, traversed_string()),
    function("isSemver", (STRING, BOOL), BOOL, _is_semver, traversed_string()),
    method("isGreaterThan", (SEMVER, SEMVER), BOOL, lambda left, right: left > right),
    method("isLessThan", (SEMVER, SEMVER), BOOL, lambda left, right: left < right),
    method("compareTo", (SEMVER, SEMVER), INT, _order_of_versions),
    method("major", (SEMVER,), INT, lambda version: _as_int64(version.major)),
    method("minor", (SEMVER,), INT, lambda version: _as_int64(version.minor)),
    method("patch", (SEMVER,), INT, lambda version: _as_int64(version.patch)),
)
OVERLOADS = _QUANTITY_OVERLOADS + _SEMVER_OVERLOADS
