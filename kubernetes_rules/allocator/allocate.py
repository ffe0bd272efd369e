"""Allocates devices of a node to claims, as the scheduler's allocator does, or tells what refuses a device.

Its result is the ``status.allocation`` of each claim (AllocationResult). The rules are those of
k8s.io/dynamic-resource-allocation 0.37 with the feature gates that are on by default: admin access,
prioritized lists, partitionable devices, device taints, consumable capacity, binding conditions.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kubernetes_rules.allocator.attempt import Attempt, Choice
from kubernetes_rules.allocator.held import Held, shortage
from kubernetes_rules.allocator.pools import CounterCache, NodeView, NodeViews, exhausted
from kubernetes_rules.allocator.published import Device, Json, read_slices
from kubernetes_rules.allocator.requests import (
    Constraint,
    Request,
    RequestedClaim,
    SelectorResults,
    Unanswered,
    check_limit,
    read_claim,
)
from kubernetes_rules.allocator.search import Search
from kubernetes_rules.errors import AllocationFailed, PoolInvalid
from kubernetes_rules.selectors import read_node
from kubernetes_rules.taints import untolerated_taint

__all__ = ["AllocationFailed", "Allocator", "PoolInvalid"]

_TOLERATION_TEXTS = ("key", "operator", "value", "effect")


class Allocator:
    """Allocates from one set of slices; ``assume`` and ``release`` change which devices are in use.

    All objects are JSON as the API serves it, with its defaults. They are kept, not copied: do not change
    them. Not thread-safe.
    """

    def __init__(
        self,
        slices: Iterable[Json],
        classes: Iterable[Json],
        allocated: Iterable[Json],
        kubernetes: tuple[int, int] = (1, 37),
    ) -> None:
        """``slices`` are ResourceSlices, ``classes`` DeviceClasses, ``allocated`` ResourceClaims in use.

        ``kubernetes`` is the version whose rules count; ``Request`` says what 1.38 changed.
        Raises AllocationFailed when one of them is malformed.
        """
        self._from_1_38 = kubernetes >= (1, 38)
        self.held = Held()
        """The devices in use; read only."""
        self.selectors = SelectorResults()
        """Which devices selectors match; read only."""
        self.views = NodeViews(read_slices(slices))
        """The pools and devices by node; read only."""
        self.counters = CounterCache(self.held)
        """What is left of the pools' counters; read only."""
        self._last_read: tuple[tuple[Json, ...], list[RequestedClaim]] = (), []
        self._classes: dict[str, Json] = {}
        for one in classes:
            self._classes.setdefault((one.get("metadata") or {}).get("name") or "", one)
        for claim in allocated:
            self.held.add(claim)

    def with_claims(self, allocated: Iterable[Json], *, taints: bool = True) -> Allocator:
        """An allocator for the same slices and classes, where these claims are in use and no others.

        Without ``taints`` no device is tainted there. Raises AllocationFailed if a claim is malformed.
        """
        found = copy.copy(self)
        if not taints:
            found.views = self.views.without_taints()
        found.held = Held()
        found.counters = CounterCache(found.held)
        for claim in allocated:
            found.held.add(claim)
        return found

    def assume(self, claim: Json) -> None:
        """Count an allocated claim as in use; raises AllocationFailed if its allocation is malformed."""
        self.counters.forget(self.held.add(claim))

    def release(self, claim: Json) -> None:
        """Forget an allocated claim; raises AllocationFailed if it was not counted."""
        self.counters.forget(self.held.remove(claim))

    def view(self, node: Json) -> NodeView:
        """The pools and devices of a node; raises AllocationFailed for a malformed node selector."""
        return self.views.view(read_node(node))

    def requested(self, view: NodeView, claims: Iterable[Json]) -> list[RequestedClaim]:
        """The claims, read and checked for a node; raises AllocationFailed as ``allocate`` does."""
        found = []
        for read in self._read(tuple(claims)):
            takes_all = any(request.takes_all for alternatives in read.requests for request in alternatives)
            one = self._with_all(view, read) if takes_all else read
            check_limit(one)
            found.append(one)
        return found

    def _read(self, claims: tuple[Json, ...]) -> list[RequestedClaim]:
        # The same claims are often tried on many nodes, one after the other.
        known, read = self._last_read
        if len(known) != len(claims) or any(
            one is not other for one, other in zip(known, claims, strict=True)
        ):
            read = [read_claim(claim, self._classes, from_1_38=self._from_1_38) for claim in claims]
            self._last_read = claims, read
        return read

    def allocate(self, node: Json, claims: Sequence[Json]) -> list[dict[str, Any]] | None:
        """``status.allocation`` of each claim, in order; None when they do not fit on the node.

        Raises AllocationFailed if that cannot be decided: an object is malformed or of an unknown kind, a
        selector fails, a request for all devices meets a pool that is being updated, or the claims do not fit
        while a pool is invalid. The result does not count as in use: see ``assume``.
        """
        view = self.view(node)
        read = self.requested(view, claims)
        constraints = [[constraint.unused() for constraint in one.constraints] for one in read]
        attempt = Attempt(view, self.held, self.counters, constraints)
        search = Search(view, read, attempt, self.selectors)
        if search.run():
            return [
                _allocation_result(
                    view, claim, choices, [search.selected[index, i] for i in range(len(claim.requests))]
                )
                for index, (claim, choices) in enumerate(zip(read, attempt.chosen, strict=True))
            ]
        for pool in view.pools:
            if pool.invalid is not None:
                raise PoolInvalid(
                    f"the claims do not fit on node {view.node.name}, where pool {pool.id} is invalid:"
                    f" {pool.invalid}",
                    "correct its driver",
                )
        return None

    def _with_all(self, view: NodeView, claim: RequestedClaim) -> RequestedClaim:
        requests = tuple(
            tuple(
                request.with_devices(self._every(view, request)) if request.takes_all else request
                for request in alternatives
            )
            for alternatives in claim.requests
        )
        return RequestedClaim(claim.name, claim.spec, requests, claim.constraints)

    def _every(self, view: NodeView, request: Request) -> tuple[Device, ...]:
        """All devices that match and have the capacity, whether or not they are in use or tainted.

        allocationMode All means all of these: the search fails if one of them cannot be had.
        """
        return tuple(
            device
            for device in view.all_devices()
            if self.selectors.first_false(device, request.selectors) is None
            and view.selects(device)
            and shortage(device, request.capacity_of(device), {}, {}) is None
        )


def _allocation_result(
    view: NodeView, claim: RequestedClaim, choices: Sequence[Choice], selected: Sequence[Request]
) -> dict[str, Any]:
    """The allocation of one claim; ``selected`` has each request, or its chosen subrequest.

    Raises AllocationFailed for a node selector with several terms, which cannot be merged.
    """
    devices: dict[str, Any] = {}
    if choices:
        devices["results"] = [_result(choice) for choice in choices]
    config = _config(claim, selected)
    if config:
        devices["config"] = config
    allocation: dict[str, Any] = {"devices": devices}
    node_selector = _node_selector(choices, view.node.name)
    if node_selector:
        allocation["nodeSelector"] = node_selector
    return allocation


def _result(choice: Choice) -> dict[str, Any]:
    request, device = choice.request, choice.device
    result: dict[str, Any] = {"request": request.full_name, **device.id._asdict()}
    if request.admin_access:
        result["adminAccess"] = True
    if request.tolerations:
        result["tolerations"] = [_toleration(one) for one in request.tolerations]
    for name in ("bindingConditions", "bindingFailureConditions"):
        if device.spec.get(name):
            result[name] = list(device.spec[name])
    if choice.share_id is not None:
        result["shareID"] = choice.share_id
    # All capacities of the device, also those that the request does not name (KEP-5075).
    if choice.consumed:
        # By the names that the slice has: a request may have left the domain out, or have added it.
        result["consumedCapacity"] = {
            name: str(amount.quantity) for name, amount in sorted(choice.consumed.items())
        }
    return result


def _toleration(stored: Json) -> dict[str, Any]:
    toleration = {name: stored[name] for name in _TOLERATION_TEXTS if stored.get(name)}
    if stored.get("tolerationSeconds") is not None:
        toleration["tolerationSeconds"] = stored["tolerationSeconds"]
    return toleration


def _config(claim: RequestedClaim, selected: Sequence[Request]) -> list[dict[str, Any]]:
    """``allocation.devices.config``: first that of the classes, each class once, then that of the claim."""
    entries: list[dict[str, Any]] = []
    of_class: dict[str, list[dict[str, Any]]] = {}
    for request in selected:
        known = of_class.get(request.class_name)
        if known is None:
            known = of_class[request.class_name] = [
                _entry("FromClass", [], config) for config in request.class_config
            ]
            entries += known
        for entry in known:
            entry["requests"].append(request.full_name)
    for config in claim.spec.get("config") or ():
        requests = config.get("requests") or []
        if not requests or any(_names(requests, request) for request in selected):
            entries.append(_entry("FromClaim", list(requests), config))
    # Kubernetes 1.37 leaves ``requests`` out if they are all requests of the claim; empty means all.
    for entry in entries:
        if all(_names(entry["requests"], request) for request in selected) or not entry["requests"]:
            del entry["requests"]
    return entries


def _names(requests: Sequence[str], request: Request) -> bool:
    """Whether a configuration's ``requests`` name the request: ``REQUEST`` or ``REQUEST/SUBREQUEST``."""
    return any(name in requests for name in request.names)


def _entry(source: str, requests: list[str], config: Json) -> dict[str, Any]:
    entry: dict[str, Any] = {"source": source, "requests": requests}
    if config.get("opaque") is not None:
        entry["opaque"] = copy.deepcopy(config["opaque"])
    return entry


def _node_selector(choices: Sequence[Choice], node: str) -> dict[str, Any] | None:
    """The node itself if a device is bound to it, else the requirements of all devices' selectors, else None.

    Go: createNodeSelector.
    """
    merged: dict[str, list[dict[str, Any]]] = {"matchExpressions": [], "matchFields": []}
    for choice in choices:
        device = choice.device
        selection = device.effective_selection
        # This form, one matchFields of metadata.name, is also what the API server takes the node of an
        # allocation from when a node's own token writes the claim's status.
        if selection.node_name is not None or device.spec.get("bindsToNode") is True:
            only = {"key": "metadata.name", "operator": "In", "values": [node]}
            return {"nodeSelectorTerms": [{"matchFields": [only]}]}
        terms = (selection.terms or {}).get("nodeSelectorTerms") or ()
        # Terms are alternatives; the union of requirements can only be built from one of them.
        if len(terms) > 1:
            raise AllocationFailed(
                f"device {device.id} has a node selector with {len(terms)} terms", "publish it with one term"
            )
        for term in terms:
            for kind, known in merged.items():
                _add_new(known, term.get(kind) or ())
    term = {kind: known for kind, known in merged.items() if known}
    return {"nodeSelectorTerms": [term]} if term else None


def _add_new(known: list[dict[str, Any]], requirements: Sequence[Json]) -> None:
    for requirement in requirements:
        values = list(requirement.get("values") or ())
        key, operator = requirement.get("key") or "", requirement.get("operator") or ""
        if any(
            one["key"] == key and one["operator"] == operator and set(one.get("values", ())) == set(values)
            for one in known
        ):
            continue
        known.append({"key": key, "operator": operator} | ({"values": values} if values else {}))


class Gate(StrEnum):
    """The checks, in the order in which they are made here: lasting reasons before passing ones.

    The search itself first checks whether a device is in use, since that is cheap. The order does not change
    whether a device is refused.
    """

    SELECTOR = "selector"
    SELECTOR_FAILED = "selector-failed"
    OTHER_NODE = "other-node"
    TAINT = "taint"
    IN_USE = "in-use"
    CAPACITY = "capacity"
    CAPACITY_FAILED = "capacity-failed"
    COUNTERS = "counters"
    CONSTRAINT = "constraint"


@dataclass(frozen=True, slots=True)
class Refusal:
    """The first check that a device fails, with a sentence or an expression as its detail.

    ``claims`` are the claims that are in the way, if any.
    """

    gate: Gate
    detail: str
    claims: tuple[str, ...] = ()


def refusal(
    allocator: Allocator,
    view: NodeView,
    request: Request,
    device: Device,
    constraints: Iterable[Constraint] = (),
) -> Refusal | None:
    """Why the device cannot be allocated to the request, None if it can when nothing else is requested.

    The device is one of ``view.devices``. Of constraints only a missing attribute is reported: whether
    values of several devices go together depends on the devices that are chosen.
    """
    return (
        _by_selector(allocator, request, device)
        or _by_node(view, device)
        or _by_taint(request, device)
        or _in_use(allocator, request, device)
        or _by_capacity(allocator, request, device)
        or _by_counters(allocator, view, device)
        or _by_constraint(request, device, constraints)
    )


def _in_use(allocator: Allocator, request: Request, device: Device) -> Refusal | None:
    holders = allocator.held.exclusive.get(device.id)
    if not holders or request.admin_access:
        return None
    return Refusal(Gate.IN_USE, f"in use by {', '.join(holders)}", tuple(holders))


def _by_selector(allocator: Allocator, request: Request, device: Device) -> Refusal | None:
    try:
        wrong = allocator.selectors.first_false(device, request.selectors)
    except Unanswered as error:
        return Refusal(Gate.SELECTOR_FAILED, error.reason)
    except AllocationFailed as error:
        return Refusal(Gate.SELECTOR_FAILED, error.what)
    return None if wrong is None else Refusal(Gate.SELECTOR, wrong)


def _by_node(view: NodeView, device: Device) -> Refusal | None:
    try:
        if view.selects(device):
            return None
    except AllocationFailed as error:
        return Refusal(Gate.OTHER_NODE, error.what)
    return Refusal(Gate.OTHER_NODE, f"the device is not for node {view.node.name}")


def _by_capacity(allocator: Allocator, request: Request, device: Device) -> Refusal | None:
    try:
        short = shortage(device, request.capacity_of(device), allocator.held.capacity_taken(device.id), {})
    except AllocationFailed as error:
        return Refusal(Gate.CAPACITY_FAILED, error.what)
    if short is None:
        return None
    return Refusal(
        Gate.CAPACITY, str(short), tuple(claim for claim, _ in allocator.held.shares.get(device.id, ()))
    )


def _by_counters(allocator: Allocator, view: NodeView, device: Device) -> Refusal | None:
    if not device.consumes or (device.allow_multiple and device.id in allocator.held.shares):
        return None
    short = exhausted(allocator.counters.of(view, device.id.pool_id), device)
    if short is None:
        return None
    pool = view.pool_of[device.id.pool_id]
    sets = {name for name, _ in device.consumes}
    claims: dict[str, None] = {}
    for other in allocator.counters.takers(view, pool.id):
        if sets.isdisjoint(name for name, _ in other.consumes):
            continue
        claims |= dict.fromkeys(allocator.held.exclusive.get(other.id, ()))
        claims |= dict.fromkeys(claim for claim, _ in allocator.held.shares.get(other.id, ()))
    whole = dict(dict(pool.counter_sets)[short.counter_set])[short.counter]
    return Refusal(Gate.COUNTERS, short.described(whole), tuple(claims))


def _by_taint(request: Request, device: Device) -> Refusal | None:
    taint = untolerated_taint(device.taints, request.tolerations)
    if taint is None:
        return None
    value = f"={taint['value']}" if taint.get("value") else ""
    return Refusal(Gate.TAINT, f"{taint.get('key')}{value}:{taint.get('effect')}")


def _by_constraint(request: Request, device: Device, constraints: Iterable[Constraint]) -> Refusal | None:
    for one in constraints:
        if one.applies_to(request.names) and device.attribute(one.attribute) is None:
            return Refusal(Gate.CONSTRAINT, f"it has no attribute {one.attribute}")
    return None
