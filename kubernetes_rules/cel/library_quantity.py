"""Functions on quantities such as ``80Gi`` (k8s.io/apiserver/pkg/cel/library/quantity.go)."""

from __future__ import annotations

from dataclasses import dataclass
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


def parse(text: str) -> Quantity:
    """The quantity of a text. Raises CelError for other text."""
    try:
        return Quantity(api.Quantity.parse(text))
    except ValueError as error:
        raise CelError(str(error)) from error


def is_quantity(text: str) -> bool:
    """Whether a text is a quantity."""
    try:
        api.Quantity.parse(text)
    except ValueError:
        return False
    return True


def compare(left: Quantity, right: Quantity) -> int:
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

OVERLOADS = (
    function("quantity", (STRING,), QUANTITY, parse, traversed_string()),
    function("isQuantity", (STRING,), BOOL, is_quantity, traversed_string()),
    function("sign", (QUANTITY,), INT, lambda value: compare(value, _ZERO)),
    method("isGreaterThan", (QUANTITY, QUANTITY), BOOL, lambda left, right: compare(left, right) > 0),
    method("isLessThan", (QUANTITY, QUANTITY), BOOL, lambda left, right: compare(left, right) < 0),
    method("compareTo", (QUANTITY, QUANTITY), INT, compare),
    method("asApproximateFloat", (QUANTITY,), DOUBLE, lambda value: value.amount.approximate()),
    method("asInteger", (QUANTITY,), INT, _as_integer),
    method("isInteger", (QUANTITY,), BOOL, lambda value: value.amount.as_int64() is not None),
    method("add", (QUANTITY, QUANTITY), QUANTITY, lambda left, right: _sum(left, right, 1)),
    method("add", (QUANTITY, INT), QUANTITY, lambda left, right: _sum(left, right, 1)),
    method("sub", (QUANTITY, QUANTITY), QUANTITY, lambda left, right: _sum(left, right, -1)),
    method("sub", (QUANTITY, INT), QUANTITY, lambda left, right: _sum(left, right, -1)),
)
