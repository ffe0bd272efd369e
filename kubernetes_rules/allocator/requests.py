"""Reads the requests of ResourceClaims as the search needs them, and refuses what cannot be judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from kubernetes_rules.allocator.amounts import Amount, read_amount
from kubernetes_rules.allocator.constraints import Constraint, read_constraints
from kubernetes_rules.allocator.held import claim_name
from kubernetes_rules.allocator.published import Device, Json
from kubernetes_rules.errors import AllocationFailed

MOST_DEVICES = 32
"""The results that an allocation can hold (resource.k8s.io/v1, AllocationResultsMaxSize)."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request, or one of the alternatives (``parent`` names the request then) of a prioritized one.

    ``selectors`` are CEL expressions, first those of the class. ``every`` is set for allocation mode All,
    once it is known what all is; ``count`` is their number then.
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

    @property
    def full_name(self) -> str:
        """``request`` or ``request/subrequest``, as results have it."""
        return self.name if self.parent is None else f"{self.parent}/{self.name}"

    @property
    def names(self) -> tuple[str, str]:
        """The names by which constraints and configurations mean it."""
        return (self.name if self.parent is None else self.parent), self.full_name

    def with_devices(self, every: tuple[Device, ...]) -> Request:
        """The same, knowing what all devices are."""
        return replace(self, every=every, count=len(every))


@dataclass(frozen=True, slots=True)
class RequestedClaim:
    """A claim to allocate: for each request its alternatives, one if it is not prioritized."""

    name: str
    spec: Json
    requests: tuple[tuple[Request, ...], ...]
    constraints: list[Constraint]


def read_claim(claim: Json, classes: Mapping[str, Json]) -> RequestedClaim:
    """The claim of an API object, its device classes looked up.

    Raises AllocationFailed when a class does not exist, or when something is malformed or not known.
    """
    name = claim_name(claim)
    try:
        spec = (claim.get("spec") or {}).get("devices") or {}
        requests = tuple(_alternatives(name, request, classes) for request in spec.get("requests") or ())
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
    """Raises AllocationFailed when even the smallest alternatives are more devices than a result can hold."""
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
