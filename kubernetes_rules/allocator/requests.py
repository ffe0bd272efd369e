"""Reads requests and constraints of ResourceClaims for the search, and evaluates their selectors.

Requests that cannot be judged are refused. A selector is evaluated once per distinct content of devices.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kubernetes_rules.allocator.held import Demand, bare_name, claim_name, demand
from kubernetes_rules.allocator.published import Amount, Capacity, Device, Json, read_amount
from kubernetes_rules.cel.selector import SelectorDevice, SelectorFailed, SelectorInvalid, compile_selector
from kubernetes_rules.errors import AllocationFailed, RuleError

MOST_DEVICES = 32
"""The results that an allocation can hold (resource.k8s.io/v1, AllocationResultsMaxSize)."""

_TYPES = ("string", "int", "bool", "version")


@dataclass(frozen=True, slots=True)
class Request:
    """A request, or a subrequest of ``firstAvailable``, whose ``parent`` is the name of its request.

    ``selectors`` are CEL expressions, those of the class first. ``takes_all`` is allocation mode All. For
    it, ``every`` has the devices and ``count`` their number once a node is known. ``from_1_38``: by the rules
    of Kubernetes 1.38 names of capacities mean the same with and without the driver's domain, negative
    amounts are an error, and a device that has a share in use is not allocated as a whole.
    """

    claim: str
    name: str
    parent: str | None
    class_name: str
    class_config: tuple[Json, ...]
    selectors: tuple[str, ...]
    takes_all: bool
    count: int
    admin_access: bool
    tolerations: tuple[Json, ...]
    capacity: Mapping[str, Amount]
    every: tuple[Device, ...] = ()
    from_1_38: bool = False
    _demands: dict[int, tuple[Mapping[str, Capacity], Demand]] = field(
        default_factory=dict, repr=False, compare=False
    )

    @property
    def full_name(self) -> str:
        """``request`` or ``request/subrequest``, as results have it."""
        return self.name if self.parent is None else f"{self.parent}/{self.name}"

    @property
    def names(self) -> tuple[str, str]:
        """The names by which constraints and configurations can refer to it."""
        return (self.name if self.parent is None else self.parent), self.full_name

    def capacity_of(self, device: Device) -> Mapping[str, Amount]:
        """The requested capacity, by the names that the device has for it.

        Raises AllocationFailed for a negative amount, and for one that is asked for twice.
        """
        if not self.from_1_38:
            return self.capacity
        driver = device.id.driver
        bare = [(bare_name(driver, name), amount) for name, amount in self.capacity.items()]
        found = {
            name if "/" in name or name in device.capacities else f"{driver}/{name}": amount
            for name, amount in bare
        }
        # A device without the capacity is passed over; then the amounts do not matter.
        if not found.keys() <= device.capacities.keys():
            return found
        where = f"claim {self.claim}, request {self.name}"
        if len(found) < len(bare):
            raise AllocationFailed(
                f"{where}: a capacity is asked for twice, with and without the domain {driver}",
                "ask for it once",
            )
        if any(amount.nanos < 0 for amount in found.values()):
            raise AllocationFailed(f"{where}: it asks for a negative amount", "ask for a positive one")
        return found

    def demand_on(self, device: Device) -> Demand:
        """What it takes of the device's capacities. Raises AllocationFailed as ``shortage`` does."""
        # By the address of the capacities, which many devices have in common, and which is kept for that.
        known = self._demands.get(id(device.capacities))
        if known is None:
            found = device.capacities, demand(device, self.capacity_of(device))
            known = self._demands[id(device.capacities)] = found
        return known[1]

    def with_devices(self, every: tuple[Device, ...]) -> Request:
        """A copy of a request for all devices, with the devices of a node."""
        return replace(self, every=every, count=len(every))


@dataclass(frozen=True, slots=True)
class RequestedClaim:
    """A claim to allocate: for each request its subrequests, or the one request of ``exactly``."""

    name: str
    spec: Json
    requests: tuple[tuple[Request, ...], ...]
    constraints: list[Constraint]


def read_claim(claim: Json, classes: Mapping[str, Json], *, from_1_38: bool = False) -> RequestedClaim:
    """A ResourceClaim with the selectors and configuration of its device classes; ``from_1_38`` as there.

    Raises AllocationFailed if a class does not exist, or something is malformed or of an unknown kind.
    """
    name = claim_name(claim)
    try:
        spec = (claim.get("spec") or {}).get("devices") or {}
        requests = tuple(_alternatives(name, request, classes) for request in spec.get("requests") or ())
        if from_1_38:
            requests = tuple(tuple(replace(one, from_1_38=True) for one in some) for some in requests)
        return RequestedClaim(name, spec, requests, read_constraints(name, spec.get("constraints")))
    except (KeyError, TypeError, AttributeError) as error:
        raise AllocationFailed(f"claim {name} is malformed: {error!r}", "create the claim anew") from error


def _alternatives(claim: str, request: Json, classes: Mapping[str, Json]) -> tuple[Request, ...]:
    prioritized = request.get("firstAvailable")
    if prioritized:
        return tuple(_request(claim, request["name"], one["name"], one, classes) for one in prioritized)
    if request.get("exactly") is None:
        raise AllocationFailed(
            f"claim {claim}, request {request.get('name')}: it is of a kind that is not known",
            "use exactly or firstAvailable",
        )
    return (_request(claim, None, request["name"], request["exactly"], classes),)


def _request(claim: str, parent: str | None, name: str, stored: Json, classes: Mapping[str, Json]) -> Request:
    where = f"claim {claim}, request {name}"
    if stored.get("derivedAttributes"):
        raise AllocationFailed(f"{where}: derived attributes are not enabled", "do not use them")
    own = _selectors(where, stored.get("selectors"))
    class_name = stored.get("deviceClassName") or ""
    if not class_name:
        raise AllocationFailed(f"{where}: it names no device class", "name one")
    device_class = classes.get(class_name)
    if device_class is None:
        raise AllocationFailed(f"{where}: the device class {class_name} does not exist", "create it")
    mode = stored.get("allocationMode")
    if mode not in ("ExactCount", "All"):
        raise AllocationFailed(f"{where}: allocation mode {mode!r} is not known", "use ExactCount or All")
    class_spec = device_class.get("spec") or {}
    capacity = (stored.get("capacity") or {}).get("requests") or {}
    return Request(
        claim,
        name,
        parent,
        class_name,
        tuple(class_spec.get("config") or ()),
        _selectors(f"class {class_name}", class_spec.get("selectors")) + own,
        takes_all=mode == "All",
        count=stored.get("count") or 0,
        # Subrequests have no adminAccess.
        admin_access=parent is None and stored.get("adminAccess") is True,
        tolerations=tuple(stored.get("tolerations") or ()),
        capacity={key: read_amount(value) for key, value in capacity.items()},
    )


def _selectors(where: str, stored: Any) -> tuple[str, ...]:
    for index, selector in enumerate(stored or ()):
        if selector.get("cel") is None:
            raise AllocationFailed(
                f"{where}, selector #{index}: it is of a kind that is not known", "use cel"
            )
    return tuple(selector["cel"].get("expression") or "" for selector in stored or ())


def check_limit(claim: RequestedClaim) -> None:
    """Raises AllocationFailed if even the smallest alternatives have more devices than a result holds."""
    total = 0
    for alternatives in claim.requests:
        least = min(request.count for request in alternatives)
        if least > MOST_DEVICES - total:
            raise AllocationFailed(
                f"claim {claim.name}, request {alternatives[0].names[0]}: with its {least} devices the claim"
                f" has more than the {MOST_DEVICES} that an allocation can hold",
                "ask for fewer devices",
            )
        total += least
    if total < 0:
        raise AllocationFailed(
            f"claim {claim.name} asks for a negative number of devices", "correct its counts"
        )


@dataclass(slots=True)
class Constraint:
    """A constraint with the values of the devices chosen so far; empty ``requests`` mean every request.

    An attribute that is a list has several values. Matching devices have a value in common: ``values`` has
    what the first has, then what is common to the first two, and so on. Distinct devices have none in common
    with each other: ``values`` has those of each.
    """

    attribute: str
    distinct: bool
    requests: frozenset[str]
    values: list[frozenset[tuple[str, Any]]] = field(default_factory=list)

    def unused(self) -> Constraint:
        """The same constraint before any device was chosen."""
        return Constraint(self.attribute, self.distinct, self.requests)

    def applies_to(self, names: tuple[str, str]) -> bool:
        """Whether it is for a request; ``names`` are ``Request.names``."""
        return not self.requests or names[0] in self.requests or names[1] in self.requests

    def allows(self, device: Device) -> bool:
        """Whether the device can be chosen beside those chosen so far."""
        # A device without the attribute never satisfies a constraint, not even distinctAttribute.
        attribute = device.attribute(self.attribute)
        if attribute is None:
            return False
        if not self.values:
            return True
        found = values_of(attribute)
        # As in the scheduler, an attribute without a value is accepted for the first device only.
        if not found:
            return False
        if self.distinct:
            return all(found.isdisjoint(one) for one in self.values)
        return not found.isdisjoint(self.values[-1])

    @property
    def state(self) -> frozenset[tuple[str, Any]]:
        """The values that decide which devices are still allowed."""
        return frozenset().union(*(self.values if self.distinct else self.values[-1:]))

    def add(self, device: Device) -> None:
        """Remember the values of a device that was chosen."""
        attribute = device.attribute(self.attribute)
        if attribute is not None:
            found = values_of(attribute)
            self.values.append(found & self.values[-1] if self.values and not self.distinct else found)

    def remove(self) -> None:
        """Forget the values of the device that was chosen last."""
        self.values.pop()


def read_constraints(claim: str, stored: Any) -> list[Constraint]:
    """The constraints of a claim; raises AllocationFailed for an unknown kind."""
    found = []
    for index, one in enumerate(stored or ()):
        distinct = one.get("matchAttribute") is None
        attribute = one.get("distinctAttribute" if distinct else "matchAttribute")
        if attribute is None:
            raise AllocationFailed(
                f"claim {claim}, constraint #{index}: it is of a kind that is not known",
                "use matchAttribute or distinctAttribute",
            )
        found.append(Constraint(attribute, distinct, frozenset(one.get("requests") or ())))
    return found


def values_of(attribute: Json) -> frozenset[tuple[str, Any]]:
    """The values with their type; a list has several, and a single value counts as a list of one.

    The allocator compares versions as texts, build metadata included.
    """
    for kind in _TYPES:
        if attribute.get(f"{kind}s"):
            return frozenset((kind, one) for one in attribute[f"{kind}s"])
    return frozenset((kind, attribute[kind]) for kind in _TYPES if attribute.get(kind) is not None)


class Unanswered(AllocationFailed):
    """A selector failed on one device; ``reason`` is the message without the device's name."""

    def __init__(self, device: Device, error: SelectorFailed) -> None:
        super().__init__(f"device {device.id}: {error.what}", error.way_out)
        self.reason = error.what


def selector_device(device: Device) -> SelectorDevice:
    """The device as selectors see it."""
    return SelectorDevice(device.id.driver, *_seen_of(device))


class SelectorResults:
    """Which devices match which expressions; each is evaluated once for devices that it cannot tell apart."""

    def __init__(self) -> None:
        self._answers: dict[str, _Answers] = {}
        # By the address of the device's object, which has to be kept for that.
        self._ordinary: dict[int, tuple[Json, bool]] = {}

    def first_false(self, device: Device, expressions: Iterable[str]) -> str | None:
        """The first expression that is false for the device, None if all hold.

        Raises AllocationFailed for an expression that cannot be compiled or evaluated.
        """
        # Classes test ``device.driver`` first, so expressions after a false one must not be evaluated: on a
        # device of another driver they may fail, and any failure fails the pod on all nodes.
        for expression in expressions:
            result = self._answers_of(expression).of(device, ordinary=self._is_ordinary(device))
            if result is False:
                return expression
            if result is not True:
                raise result
        return None

    def false_parts(self, device: Device, expression: str) -> tuple[str, ...]:
        """The terms joined by ``&&`` that are not true of the device; all of it if that cannot be said."""
        return self._answers_of(expression).false_parts(device, ordinary=self._is_ordinary(device))

    def _answers_of(self, expression: str) -> _Answers:
        known = self._answers.get(expression)
        if known is None:
            known = self._answers[expression] = _Answers(expression)
        return known

    def _is_ordinary(self, device: Device) -> bool:
        known = self._ordinary.get(id(device.spec))
        if known is None:
            from kubernetes_rules.cel.program import is_ordinary

            attributes, capacity, _ = _seen_of(device)
            known = self._ordinary[id(device.spec)] = device.spec, is_ordinary(attributes, capacity)
        return known[1]


class _Answers:
    """The answers of one expression."""

    def __init__(self, expression: str) -> None:
        self._expression = expression
        self._by_content: dict[str, bool | AllocationFailed] = {}
        self._by_reads: dict[Hashable, bool] = {}
        self._false_parts: dict[Hashable, tuple[str, ...]] = {}
        try:
            self._reads = compile_selector(expression).reads
        except SelectorInvalid:
            self._reads = None

    def of(self, device: Device, *, ordinary: bool) -> bool | AllocationFailed:
        """Whether the device matches, or why that cannot be said; ``ordinary``: see ``is_ordinary``."""
        what = self._what_is_read(device) if ordinary else None
        answer = None if what is None else self._by_reads.get(what)
        if answer is not None:
            return answer
        # An error, or its way out, may name more of the device than what the expression reads.
        content = json.dumps((device.id.driver, _seen_of(device)), sort_keys=True)
        result = self._by_content.get(content)
        if result is None:
            result = self._by_content[content] = _evaluate(self._expression, device)
        if what is not None and isinstance(result, bool):
            self._by_reads[what] = result
            del self._by_content[content]
        return result

    def false_parts(self, device: Device, *, ordinary: bool) -> tuple[str, ...]:
        """See ``SelectorResults.false_parts``."""
        what = self._what_is_read(device) if ordinary else None
        parts = self._false_parts.get(what) if what is not None else None
        if parts is None:
            try:
                parts = compile_selector(self._expression).false_parts(selector_device(device))
            except RuleError:
                parts = ()
            parts = parts or (self._expression,)
            if what is not None:
                self._false_parts[what] = parts
        return parts

    def _what_is_read(self, device: Device) -> Hashable:
        """The part of the device that decides, None if it may be anything."""
        if self._reads is None:
            return None
        attributes, capacity, shared = _seen_of(device)
        driver = device.id.driver
        found: list[Hashable] = [driver, shared]
        for kind, domain, name in self._reads:
            table = attributes if kind == "attributes" else capacity
            value = table.get(f"{domain}/{name}")
            if domain == driver and name in table:
                # Both names mean the same, and which of them counts depends on their order.
                if value is not None:
                    return None
                value = table[name]
            found.append(None if value is None else repr(value))
        return tuple(found)


def _seen_of(device: Device) -> tuple[Json, Json, bool]:
    return device.attributes, device.spec.get("capacity") or {}, device.allow_multiple


def _evaluate(expression: str, device: Device) -> bool | AllocationFailed:
    try:
        return compile_selector(expression).matches(selector_device(device))
    except SelectorInvalid as error:
        return AllocationFailed(
            f"the selector {expression!r} is no CEL expression: {error.what}", error.way_out
        )
    except SelectorFailed as error:
        return Unanswered(device, error)
