"""Finds what is in the way of claims that fit nowhere now, and whether waiting or anything would help."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Literal

from driver.devices.sharing import SHARES
from driver.kinds.channel import channel_number
from gpuctl.cli.cluster import Object
from gpuctl.cli.output import some_of
from gpuctl.explain.devices import fitting
from gpuctl.explain.findings import Finding, NodeReport, Outcome, RequestReport
from gpuctl.explain.requests import needed, wants
from kubernetes_rules.allocator.allocate import AllocationFailed, Allocator, Gate, refusal
from kubernetes_rules.allocator.requests import Request, RequestedClaim
from kubernetes_rules.errors import RuleError
from kubernetes_rules.quantity import Quantity

_MOST_GANGS = 5

Prospect = Literal["now", "when free", "when well", "never", "unknown"]
"""``now``: it fits. ``when free``: once enough claims there have ended. ``when well``: once taints are gone,
too. ``never``: the node does not have enough devices. ``unknown``: a pool is incomplete, or something is
wrong."""


@dataclass(frozen=True, slots=True)
class TriedNode:
    """A node on which claims were tried, and when they could fit there.

    ``closed`` says why the pod cannot go there at all, ``short`` what the node's device plugin has too little
    of. ``is_full``: it is open, and devices alone decided. ``gives_up``: at the ``error`` the scheduler gives
    up, whatever other nodes have.
    """

    node: Object
    prospect: Prospect
    closed: str | None = None
    short: str | None = None
    error: Finding | None = None
    gives_up: bool = False
    is_full: bool = False

    @property
    def name(self) -> str:
        """The node's name."""
        return str(self.node["metadata"]["name"])


@dataclass(frozen=True, slots=True)
class Trial:
    """Claims that were tried on some nodes; ``claims`` are the ``objects`` as they were read.

    Each report has the nodes in their order.
    ``limits`` says which of them ask for more than a claim can have.
    """

    objects: tuple[Object, ...]
    claims: tuple[RequestedClaim, ...]
    nodes: tuple[TriedNode, ...]
    reports: tuple[RequestReport, ...]
    limits: tuple[Finding, ...]
    prospects: Prospects

    @property
    def requests(self) -> Iterator[tuple[RequestedClaim, tuple[Request, ...]]]:
        """Each request with its claim; those with alternatives have several."""
        return ((claim, alternatives) for claim in self.claims for alternatives in claim.requests)


def findings_of(tried: Trial) -> list[Finding]:
    """Why the claims fit on none of these nodes."""
    if tried.limits:
        return list(tried.limits)
    unselected = _unselected(tried)
    found = [_no_match(report) for report in tried.reports if (report.claim, report.request) in unselected]
    found += [_short(one) for one in tried.nodes if one.short is not None]
    found += [one.error for one in tried.nodes if one.error is not None]
    open_nodes = [one for one in tried.nodes if one.closed is None and one.short is None]
    if open_nodes and all(one.prospect == "never" for one in open_nodes):
        never = list(_never(tried, open_nodes, unselected))
        if not never and not unselected:
            never = _never_together(tried, open_nodes)
        return found + never
    hopeful = {one.name for one in open_nodes if one.prospect != "never"}
    for position, one in enumerate(tried.nodes):
        if one.is_full and one.prospect != "never":
            found += _together(tried, position)
    remedies = (
        finding
        for report in tried.reports
        for node in report.nodes
        if node.node in hopeful
        for finding in _remedies(report, node)
    )
    # The channels of a clique are the same on all of its nodes.
    return list(dict.fromkeys((*found, *remedies)))


def _unselected(tried: Trial) -> set[tuple[str, str]]:
    """The claim and name of each request that selects no device of any node, whatever the alternative."""
    none = {
        (report.claim, report.request)
        for report in tried.reports
        if not any(one.gate != "selector" for node in report.nodes for one in node.outcomes)
        and not any(node.pools for node in report.nodes)
    }
    return {
        (claim.name, one.full_name)
        for claim, alternatives in tried.requests
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


def _never(tried: Trial, nodes: Sequence[TriedNode], unselected: set[tuple[str, str]]) -> Iterator[Finding]:
    """The requests for which no node has enough devices, held or free."""
    prospects = tried.prospects
    for claim, alternatives in tried.requests:
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


def _never_together(tried: Trial, nodes: Sequence[TriedNode]) -> list[Finding]:
    """Each request could be served, but never all of them on one node: is it a constraint, or a lack?"""
    untainted, attributes = tried.prospects.untainted, _attributes(tried)
    if attributes and any(_fits_without_constraints(untainted, one.node, tried) for one in nodes):
        message = f"no node can ever have enough devices that meet the constraint on {', '.join(attributes)}"
        return [Finding("constraint", message, "loosen the constraint; waiting does not help")]
    alls = [one.full_name for _, some in tried.requests for one in some if one.takes_all]
    if alls:
        message = f"no node can ever give all matching devices at once, as request {', '.join(alls)} wants"
        remedy = "ask for a number, or select one form: forms of a GPU exclude each other"
        return [Finding("all", message, remedy)]
    names = ", ".join(claim.name for claim in tried.claims)
    message = f"no node can ever have devices for all requests of {names} together"
    return [Finding("together", message, "ask for less, or add a node that has as much")]


def _together(tried: Trial, position: int) -> list[Finding]:
    """A node has enough devices for each request alone: is it a constraint, or do the requests compete?"""
    node = tried.nodes[position]
    name, reports = node.name, {(one.claim, one.request): one.nodes[position] for one in tried.reports}
    if not all(
        any(reports[claim.name, one.full_name].fitting >= needed(one) for one in alternatives)
        for claim, alternatives in tried.requests
    ):
        return []
    alls = [(claim.name, one.full_name) for claim, some in tried.requests for one in some if one.takes_all]
    lacking = [finding for key in alls for finding in _lacking_all(key[1], reports[key])]
    if lacking:
        return lacking
    attributes, remedy = _attributes(tried), "or wait for other devices to be free"
    if attributes and _fits_without_constraints(tried.prospects.now, node.node, tried):
        message = f"{name} has enough devices, but none that meet the constraint on {', '.join(attributes)}"
        return [Finding("constraint", message, f"loosen the constraint, {remedy}")]
    names = ", ".join(claim.name for claim in tried.claims)
    message = f"{name} has devices for each request of {names}, but not for all of them together"
    return [Finding("together", message, f"ask for less, {remedy}")]


def _lacking_all(request: str, node: NodeReport) -> Iterator[Finding]:
    """A request for all devices cannot have some of them now."""
    matching = sum(len(one.devices) for one in node.outcomes if one.gate != Gate.SELECTOR)
    if node.fitting < matching:
        wanted = f"request {request} wants all {matching} matching devices of {node.node}"
        remedy = "wait for the others, or ask for a number of devices"
        yield Finding("all", f"{wanted}, and can have {node.fitting} of them now", remedy)


def _attributes(tried: Trial) -> list[str]:
    return sorted({one.attribute for claim in tried.claims for one in claim.constraints})


def _remedies(report: RequestReport, node: NodeReport) -> Iterator[Finding]:
    """What would make devices of a node available: the claims that hold them, or the taints, have to go."""
    for problem in node.pools:
        yield Finding("pool", f"{node.node}: {problem}", "see the driver's log there")
    yield from _held_channels(node)
    for one in node.outcomes:
        if _is_of_channels(one):
            continue
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


def _held_channels(node: NodeReport) -> Iterator[Finding]:
    """The IMEX channels that gangs have: many, each with a claim of its own."""
    held = [one for one in node.outcomes if _is_of_channels(one)]
    if held:
        number, claims = sum(len(one.devices) for one in held), {name for one in held for name in one.claims}
        holders = some_of(sorted(claims), _MOST_GANGS)
        plural = "" if number == 1 else "s"
        message = f"{number} IMEX channel{plural} in use by claim{plural} {holders}"
        yield Finding("in-use", message, "wait until one of these claims is deleted, or offer more channels")


def _is_of_channels(outcome: Outcome) -> bool:
    return outcome.gate == "in-use" and all(map(channel_number, outcome.devices))


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
        self.now = now
        self._own = own

    @cached_property
    def _free(self) -> Allocator:
        """Allocates as if nobody else had a device."""
        return self.now.with_claims(self._own)

    @cached_property
    def untainted(self) -> Allocator:
        """Allocates as if nobody else had a device, and none were tainted."""
        return self.now.with_claims(self._own, taints=False)

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


def _fits_without_constraints(allocator: Allocator, node: Object, tried: Trial) -> bool:
    """Whether claims would fit on a node without the constraints between their devices."""
    claims = [
        {**one, "spec": {**one["spec"], "devices": {**one["spec"]["devices"], "constraints": []}}}
        for one in tried.objects
    ]
    try:
        return allocator.allocate(node, claims) is not None
    except RuleError:  # too many combinations, for example
        return False
