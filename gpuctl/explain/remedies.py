"""Finds what is in the way of claims that fit nowhere now, and whether waiting or anything would help."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Literal

from driver.devices.sharing import SHARES
from gpuctl.explain.devices import fitting
from gpuctl.explain.findings import Finding, NodeReport, Outcome, RequestReport
from gpuctl.explain.requests import needed, wants
from gpuctl.explain.snapshot import Object
from kubernetes_rules.allocator.allocate import AllocationFailed, Allocator
from kubernetes_rules.allocator.refusals import Gate, refusal
from kubernetes_rules.allocator.requests import Request, RequestedClaim
from kubernetes_rules.errors import RuleError
from kubernetes_rules.quantity import Quantity

Fitting = Mapping[tuple[str, str, str], int]
"""How many devices nothing rules out, by claim, request and node."""


Prospect = Literal["when free", "when well", "never", "unknown"]
"""``when free``: as soon as enough claims there have ended. ``when well``: as soon as taints are gone, too.
``never``: the node does not have enough devices. ``unknown``: a pool is incomplete, or something is wrong."""


@dataclass(frozen=True, slots=True)
class TriedNode:
    """A node on which claims were tried: whether they fit, and if not, why not and when they could.

    ``closed`` says why the pod cannot go there at all, ``short`` what the node's device plugin has too little
    of. ``allocator`` is set if devices alone decided. ``gives_up``: at the ``error`` the scheduler gives up,
    whatever other nodes have.
    """

    node: Object
    name: str
    prospect: Prospect
    fits: bool = False
    closed: str | None = None
    short: str | None = None
    error: Finding | None = None
    gives_up: bool = False
    allocator: Allocator | None = None


@dataclass(frozen=True, slots=True)
class TriedNodes:
    """Nodes on which the same claims were tried.

    ``claims`` are the ``objects`` as they were read. ``limits`` says which of them ask for more than a claim
    can have.
    """

    objects: tuple[Object, ...]
    claims: tuple[RequestedClaim, ...]
    nodes: tuple[TriedNode, ...]
    reports: tuple[RequestReport, ...]
    limits: tuple[Finding, ...]


def findings_of(tried: TriedNodes, prospects: Prospects) -> list[Finding]:
    """Why the claims fit on none of these nodes."""
    if tried.limits:
        return list(tried.limits)
    unselected = _unselected(tried)
    found = [_no_match(report) for report in tried.reports if (report.claim, report.request) in unselected]
    found += [_short(one) for one in tried.nodes if one.short is not None]
    found += [one.error for one in tried.nodes if one.error is not None]
    open_nodes = [one for one in tried.nodes if one.closed is None and one.short is None]
    if open_nodes and all(one.prospect == "never" for one in open_nodes):
        never = list(_never(tried, open_nodes, prospects, unselected))
        if not never and not unselected:
            never = _never_together(tried, open_nodes, prospects)
        return found + never
    fitting = {
        (report.claim, report.request, node.node): node.fitting
        for report in tried.reports
        for node in report.nodes
    }
    for one in open_nodes:
        if one.allocator is not None and one.prospect != "never":
            found += _together(tried, one, one.allocator, fitting)
    hopeful = {one.name for one in open_nodes if one.prospect != "never"}
    return found + [
        finding
        for report in tried.reports
        for node in report.nodes
        if node.node in hopeful
        for finding in _remedies(report, node)
    ]


def _unselected(tried: TriedNodes) -> set[tuple[str, str]]:
    """The claim and name of each request that selects no device of any node, whatever the alternative."""
    none = {
        (report.claim, report.request)
        for report in tried.reports
        if not any(one.gate != "selector" for node in report.nodes for one in node.outcomes)
        and not any(node.pools for node in report.nodes)
    }
    return {
        (claim.name, one.full_name)
        for claim in tried.claims
        for alternatives in claim.requests
        if all((claim.name, other.full_name) in none for other in alternatives)
        for one in alternatives
    }


def _no_match(report: RequestReport) -> Finding:
    return Finding(
        "no-match",
        f"request {report.request} ({report.wants}) selects no device that a node could use",
        "compare the selectors with what the devices have"
        if any(node.outcomes for node in report.nodes)
        else "check that the driver runs and publishes devices",
    )


def _short(node: TriedNode) -> Finding:
    remedy = "wait until pods that use some there end, ask for fewer, or use another node"
    return Finding("device-plugin", f"{node.name}: {node.short}", remedy)


def _never(
    tried: TriedNodes, nodes: Sequence[TriedNode], prospects: Prospects, unselected: set[tuple[str, str]]
) -> Iterator[Finding]:
    """The requests for which no node has enough devices, held or free."""
    for claim in tried.claims:
        for alternatives in claim.requests:
            if (claim.name, alternatives[0].full_name) in unselected:
                continue
            best = [(*_best(one, claim, nodes, prospects), one) for one in alternatives]
            if any(most >= needed(one) for most, _, one in best):
                continue
            constraints = [one for one in map(partial(_unmet, claim, nodes, prospects), alternatives) if one]
            if constraints:
                yield from constraints
                continue
            for most, where, one in best:
                has = f"the most on one node is {most}, on {where}" if most else "no node has a device for it"
                remedy = "ask for less, or add a node that has as much; waiting does not help"
                if one.capacity and not most:
                    remedy = _other_measure(one, nodes, prospects) or remedy
                message = f"no node can ever serve request {one.full_name}, which wants {wants(one)}: {has}"
                yield Finding("never", message, remedy)


def _other_measure(request: Request, nodes: Sequence[TriedNode], prospects: Prospects) -> str:
    """What helps if only shares by another measure fit, by number or by memory; empty if that is not so."""
    measures = {name: most for one in nodes for name, most in prospects.measures(one.node, request).items()}
    if not measures or measures.keys() & {name.rpartition("/")[2] for name in request.capacity}:
        return ""
    ask, offer = "memory: ask for memory", "shares by number"
    if SHARES in measures:
        ask, offer = f'number: ask for shares: "1" to "{measures[SHARES]}"', "memory in steps"
    return f"these shares are handed out by {ask}, or let the node offer {offer}"


def _unmet(
    claim: RequestedClaim, nodes: Sequence[TriedNode], prospects: Prospects, request: Request
) -> Finding | None:
    """The constraint on an attribute that too few devices have; None if that is not what is in the way."""
    # A device without the attribute meets no constraint on it.
    most, where = _best(request, replace(claim, constraints=[]), nodes, prospects)
    names = sorted({one.attribute for one in claim.constraints if one.applies_to(request.names)})
    if most < needed(request) or not names:
        return None
    return Finding(
        "constraint",
        f"{where} has {most} devices for request {request.full_name}, but too few of them have "
        f"{' and '.join(names)}, which a constraint of claim {claim.name} compares",
        "compare an attribute that they have, or leave the constraint out; more nodes do not help",
    )


def _best(
    request: Request, claim: RequestedClaim, nodes: Sequence[TriedNode], prospects: Prospects
) -> tuple[int, str]:
    """The most devices that any node could ever give to a request, and the first node with as many."""
    counts = [(prospects.most(one.node, request, claim), one.name) for one in nodes]
    return max(counts, key=lambda found: found[0])


def _never_together(tried: TriedNodes, nodes: Sequence[TriedNode], prospects: Prospects) -> list[Finding]:
    """Each request could be served, but never all of them on one node: is it a constraint, or a lack?"""
    attributes = _attributes(tried)
    if attributes and any(
        fits_without_constraints(prospects.untainted, one.node, tried.objects) for one in nodes
    ):
        message = f"no node can ever have enough devices that meet the constraint on {', '.join(attributes)}"
        return [Finding("constraint", message, "loosen the constraint; waiting does not help")]
    alls = [
        one.full_name for claim in tried.claims for some in claim.requests for one in some if one.takes_all
    ]
    if alls:
        message = f"no node can ever give all matching devices at once, as request {', '.join(alls)} wants"
        return [
            Finding("all", message, "ask for a number, or select one form: forms of a GPU exclude each other")
        ]
    names = ", ".join(claim.name for claim in tried.claims)
    message = f"no node can ever have devices for all requests of {names} together"
    return [Finding("together", message, "ask for less, or add a node that has as much")]


def _together(tried: TriedNodes, node: TriedNode, allocator: Allocator, fitting: Fitting) -> list[Finding]:
    """A node has enough devices for each request alone: is it a constraint, or do the requests compete?"""
    name = node.name
    if not all(
        any(fitting.get((claim.name, one.full_name, name), 0) >= needed(one) for one in alternatives)
        for claim in tried.claims
        for alternatives in claim.requests
    ):
        return []
    lacks_all = list(_lacking_all(tried, name))
    if lacks_all:
        return lacks_all
    attributes = _attributes(tried)
    if attributes and fits_without_constraints(allocator, node.node, tried.objects):
        message = f"{name} has enough devices, but none that meet the constraint on {', '.join(attributes)}"
        return [Finding("constraint", message, "loosen the constraint, or wait for other devices to be free")]
    names = ", ".join(claim.name for claim in tried.claims)
    message = f"{name} has devices for each request of {names}, but not for all of them together"
    return [Finding("together", message, "ask for less, or wait for other devices to be free")]


def _lacking_all(tried: TriedNodes, node: str) -> Iterator[Finding]:
    """The requests for all devices of which some cannot be had on a node now."""
    alls = {
        one.full_name for claim in tried.claims for some in claim.requests for one in some if one.takes_all
    }
    for report in tried.reports:
        for one in report.nodes if report.request in alls else ():
            matching = sum(len(each.devices) for each in one.outcomes if each.gate != Gate.SELECTOR)
            if one.node == node and one.fitting < matching:
                wants = f"request {report.request} wants all {matching} matching devices of {node}"
                remedy = "wait for the others, or ask for a number of devices"
                yield Finding("all", f"{wants}, and can have {one.fitting} of them now", remedy)


def _attributes(tried: TriedNodes) -> list[str]:
    return sorted({one.attribute for claim in tried.claims for one in claim.constraints})


def _remedies(report: RequestReport, node: NodeReport) -> Iterator[Finding]:
    """What would make devices of a node available: the claims that hold them, or the taints, have to go."""
    for problem in node.pools:
        yield Finding("pool", f"{node.node}: {problem}", "see the driver's log there")
    for one in node.outcomes:
        number = len(one.devices)
        plural, verb = ("", "is") if number == 1 else ("s", "are")
        count = f"{node.node}: {number} matching device{plural}"
        if one.gate == "in-use":
            holders = ", ".join(sorted(set(one.claims)))
            yield Finding("in-use", f"{count} {verb} in use by claim {holders}", _frees(one))
        elif one.gate == "counters" and one.claims:
            yield Finding("counters", f"{count} cannot be allocated: {one.reason}", _frees(one))
        elif one.gate == "capacity" and one.claims:
            have = "has" if number == 1 else "have"
            yield Finding("capacity", f"{count} {have} too little left: {one.reason}", _frees(one))
        elif one.gate == "taint":
            yield Finding("taint", f"{count} {verb} {one.reason}", "usable again once the taint is gone")
    if node.fitting:
        message = f"{node.node} has {node.fitting} free for request {report.request}"
        yield Finding("too-few", f"{message}, which wants {report.wants}")


def _frees(outcome: Outcome) -> str:
    # Sorted, since the order in which claims got their parts of a GPU says nothing.
    names = sorted(set(outcome.claims))
    return (
        f"wait until claim {names[0]} ends"
        if len(names) == 1
        else f"wait until claims {', '.join(names)} end"
    )


class Prospects:
    """The cluster as it would be if only the claims in question used it."""

    def __init__(self, now: Allocator, own: Sequence[Object]) -> None:
        """``own`` are the claims in question that have their devices already; they keep them."""
        self._now = now
        self._own = own

    @cached_property
    def _free(self) -> Allocator:
        """Allocates as if nobody else had a device."""
        return self._now.with_claims(self._own)

    @cached_property
    def untainted(self) -> Allocator:
        """Allocates as if nobody else had a device, and none were tainted."""
        return self._now.with_claims(self._own, taints=False)

    def of(self, node: Object, wanted: Sequence[Object]) -> Prospect:
        """When claims that have no devices yet can fit on a node."""
        try:
            if not all(pool.usable for pool in self._free.view(node).pools):
                return "unknown"
            if self._free.allocate(node, wanted) is not None:
                return "when free"
            return "never" if self.untainted.allocate(node, wanted) is None else "when well"
        except RuleError:
            return "unknown"

    def most(self, node: Object, request: Request, claim: RequestedClaim) -> int:
        """How many devices of a node could ever serve a request, each considered alone."""
        try:
            return fitting(self.untainted, self.untainted.view(node), request, claim.constraints)
        except AllocationFailed:
            return 0

    def measures(self, node: Object, request: Request) -> dict[str, Quantity]:
        """The capacities in which claims can take shares of the devices that only an amount rules out."""
        plain, view = replace(request, capacity={}), self.untainted.view(node)
        return {
            name.rpartition("/")[2]: capacity.value.quantity
            for device in view.devices
            if device.allow_multiple and refusal(self.untainted, view, plain, device) is None
            for name, capacity in device.capacities.items()
            # With a single value there is nothing to ask for.
            if capacity.policy is None or capacity.policy.values is None
        }


def fits_without_constraints(allocator: Allocator, node: Object, wanted: Sequence[Object]) -> bool:
    """Whether claims would fit on a node without the constraints between their devices."""
    try:
        return allocator.allocate(node, [_without_constraints(one) for one in wanted]) is not None
    except RuleError:  # too many combinations, for example
        return False


def _without_constraints(claim: Object) -> Object:
    return {**claim, "spec": {**claim["spec"], "devices": {**claim["spec"]["devices"], "constraints": []}}}
