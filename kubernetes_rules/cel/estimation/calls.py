"""Estimates the cost and the result's size of calls of library functions.

Those of Kubernetes come from k8s.io/apiserver/pkg/cel/library/cost.go (EstimateCallCost), those of lists and
sets from cel-go (ext/lists.go, ext/sets.go).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from kubernetes_rules.cel import syntax
from kubernetes_rules.cel.estimation.sizes import UNBOUNDED, UNKNOWN, Size, fixed, plus, scaled, times
from kubernetes_rules.cel.types import Overload, Type

_ONE_UNIT = frozenset((
    "serviceAccount", "path", "group", "resource", "subresource", "namespace", "name", "allowed", "reason",
    "error", "errored", "masked", "prefixLength", "family", "isUnspecified", "isLoopback",
    "isLinkLocalMulticast", "isLinkLocalUnicast", "isGlobalUnicast", "format.named", "sign", "asInteger",
    "isInteger", "asApproximateFloat", "isGreaterThan", "isLessThan", "compareTo", "add", "sub", "major",
    "minor", "patch", "getScheme", "getHostname", "getHost", "getPort", "getEscapedPath", "getQuery",
))  # fmt: skip
_TRAVERSING = frozenset(("cidr", "isIP", "isCIDR", "ip", "quantity", "isQuantity", "semver", "isSemver"))
_ONCE_PER_ELEMENT = frozenset(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf", "includes"))
_CHEAP_EQUALITY = frozenset((
    "net.IP", "net.CIDR", "kubernetes.Quantity", "kubernetes.Semver", "kubernetes.authorization.Authorizer",
    "kubernetes.authorization.PathCheck", "kubernetes.authorization.GroupCheck",
    "kubernetes.authorization.ResourceCheck", "kubernetes.authorization.Decision",
))  # fmt: skip
_CHECK_UNITS = 350_000
_LIST_UNITS, _MESSAGE_UNITS = 10, 40
_ADDRESS_UNITS = 4
"""Comparing two lists of 16 bytes."""
_LONGEST_FORMAT, _LONGEST_NAME_PATTERN = 64, 128


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a call, or its receiver.

    ``size`` is the size as far as the expression tells it, ``known`` that or the declared one. ``item`` are
    the type and the declared size of the elements of a list.
    """

    node: syntax.Node
    kind: Type
    size: Size | None
    known: Size
    item: tuple[Type, Size] | None


@dataclass(frozen=True, slots=True)
class Estimate:
    """The units that a call costs at most, and the size of its result if it has one."""

    units: int
    size: Size | None = None


def library_estimate(
    overload: Overload, target: Argument | None, arguments: list[Argument]
) -> Estimate | None:
    """The estimate of a call by one signature, without its arguments; None for other functions."""
    name = overload.name
    found = _list_estimate(overload, target, arguments)
    if found is not None:
        return found
    if name in _ONE_UNIT:
        return Estimate(1)
    if name == "check":
        return Estimate(_CHECK_UNITS)
    if name in _ONCE_PER_ELEMENT and target is not None:
        return _once_per_element(name, target)
    if name in _TRAVERSING:
        if name == "ip" and overload.receiver:
            return Estimate(1)
        return Estimate(scaled(arguments[0].known.most, 0.1)) if arguments else None
    if name == "_==_":
        return _opaque_equality(arguments)
    if target is None:
        return _function_estimate(name, arguments)
    return _text_estimate(overload, target, arguments)


def _function_estimate(name: str, arguments: list[Argument]) -> Estimate | None:
    match name:
        case "url" | "jsonpatch.escapeKey":
            return Estimate(scaled(arguments[0].known.most, 0.1), arguments[0].known)
        case "ip.isCanonical":
            return Estimate(scaled(arguments[0].known.most, 0.2))
    return None


def _text_estimate(overload: Overload, target: Argument, arguments: list[Argument]) -> Estimate | None:
    text = target.known
    match overload.name:
        case "lowerAscii" | "upperAscii" | "substring" | "trim":
            return Estimate(scaled(text.most, 0.1), text)
        case "replace":
            return Estimate(scaled(text.most, 0.2), _replaced(text, arguments[0].known, arguments[1].known))
        case "split":
            limit = _literal_integer(arguments[1]) if len(arguments) > 1 else None
            return Estimate(
                scaled(text.most, 0.2), Size(0, text.most if limit is None else limit & UNBOUNDED)
            )
        case "join":
            return _joined(target, arguments)
        case "find" | "findAll":
            units = times(scaled(plus(text.most, 1), 0.1), scaled(arguments[0].known.most, 0.25))
            return Estimate(units, Size(0, text.most))
        case "fieldSelector" | "labelSelector":
            given = arguments[0].known.most
            requirements = scaled(scaled(given, 0.5), float(_LIST_UNITS + _MESSAGE_UNITS))
            return Estimate(plus(_LIST_UNITS, scaled(given, 0.1), requirements))
        case "containsIP" | "containsCIDR":
            more = 0 if overload.name == "containsIP" else 3
            if overload.parameters[1].name == "string":
                more = plus(more, scaled(arguments[0].known.most, 0.1))
            return Estimate(plus(_ADDRESS_UNITS, more))
        case "validate":
            return Estimate(scaled(scaled(arguments[0].known.most, 0.1), _LONGEST_NAME_PATTERN * 0.25))
    return None


def _once_per_element(name: str, target: Argument) -> Estimate:
    if target.item is None and name != "includes":
        return Estimate(scaled(target.known.most, 0.1))
    units = 1
    if target.item is not None and target.item[0].name in ("string", "bytes"):
        units = plus(units, scaled(target.item[1].most, 0.1))
    return Estimate(times(target.known.most, units))


def _replaced(text: Size, old: Size, new: Size) -> Size:
    """The size of a text in which one part is replaced by another."""
    most_count, most_kept = 0, 0
    if old.least == 0:
        most_count, most_kept = plus(text.most, 1), text.most
    elif new.most <= old.least:
        most_kept = text.most
    else:
        most_count = math.ceil(float(text.most) / float(old.least))
    least_count, least_kept = 0, 0
    if old.most == 0:
        least_count, least_kept = plus(text.least, 1), text.least
    elif old.most <= new.least:
        least_kept = text.least
    else:
        least_count = math.ceil(float(text.least) / float(old.most))
    return Size(least_count, most_count).times(new).plus(Size(least_kept, most_kept))


def _joined(target: Argument, arguments: list[Argument]) -> Estimate:
    size = Size(0, 0) if target.item is None else target.known.times(target.item[1])
    if arguments:
        separators = Size(max(target.known.least - 1, 0), max(target.known.most - 1, 0))
        size = size.plus(arguments[0].known.times(separators))
    return Estimate(scaled(size.most, 0.1), size)


def _opaque_equality(arguments: list[Argument]) -> Estimate | None:
    kind = arguments[0].kind
    if kind != arguments[1].kind:
        return None
    if kind.name in _CHEAP_EQUALITY:
        return Estimate(1)
    if kind.name == "kubernetes.NamedFormat":
        return Estimate(scaled(_LONGEST_FORMAT, 0.1))
    if kind.name == "kubernetes.URL":
        # Kubernetes takes the size of the second URL for both.
        size = arguments[1].size
        return Estimate(scaled(1 if size is None else size.most, 0.1))
    return None


def _literal_integer(argument: Argument) -> int | None:
    value = argument.node.value if isinstance(argument.node, syntax.Literal) else None
    return value if type(value) is int else None


def _unsigned(argument: Argument, otherwise: int) -> int:
    value = _literal_integer(argument)
    return otherwise if value is None else max(value, 0)


def _list_estimate(overload: Overload, target: Argument | None, arguments: list[Argument]) -> Estimate | None:
    is_list = overload.parameters[:1] and overload.parameters[0].name == "list"
    size = UNKNOWN if target is None else target.known
    match overload.name:
        case "sets.contains" | "sets.intersects" | "sets.equivalent":
            compared = times(arguments[0].known.most, arguments[1].known.most)
            return Estimate(plus(scaled(compared, 2 if overload.name == "sets.equivalent" else 1), 1))
        case "lists.range":
            return _new_list(1, fixed(_unsigned(arguments[0], UNBOUNDED)))
        case "slice":
            start, end = _unsigned(arguments[0], 0), _unsigned(arguments[1], size.most)
            return _new_list(1, fixed(end - start & UNBOUNDED))
        case "flatten":
            return _new_list(_unsigned(arguments[0], UNBOUNDED) if arguments else 1, size)
        case "reverse" if is_list:
            return _new_list(1, size)
        case "distinct":
            return _new_list(2, size.times(size))
        case "sort":
            return _sorted(size, overload.parameters[0].parameters[0])
        case "@sortByAssociatedKeys":
            return _sorted(arguments[0].known, overload.parameters[1].parameters[0])
    return None


def _sorted(size: Size, kind: Type) -> Estimate:
    return _new_list(2.1 if kind.name in ("string", "bytes") else 2.0, size.times(size))


def _new_list(factor: float, size: Size) -> Estimate:
    return Estimate(plus(scaled(size.most, float(factor)), 1, _LIST_UNITS), size)
