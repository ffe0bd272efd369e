"""What stands in the way of claims that fit nowhere now, and what would help: claims that end, or nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuctl.explain.findings import Finding, NodeReport, Outcome, RequestReport
from gpuctl.explain.prospects import Prospect, Prospects, fits_without_constraints
from gpuctl.explain.requests import needed, wants
from kubernetes_rules.allocator.allocate import Allocator
from kubernetes_rules.allocator.requests import Request, RequestedClaim

Object = dict[str, Any]
Fitting = Mapping[tuple[str, str, str], int]
"""How many devices nothing rules out, by claim, request and node."""


@dataclass(frozen=True, slots=True)
class Tried:
    """One node: whether the claims fit there, and if not, why not and when they could.

    ``short`` is what its device plugin does not have; ``allocator`` is set where devices alone decided.
    """

    node: Object
    name: str
    prospect: Prospect
    fits: bool = False
    closed: str | None = None
    short: str | None = None
    error: Finding | None = None
    allocator: Allocator | None = None


@dataclass(frozen=True, slots=True)
class Look:
    """A look at the nodes on which the same claims are wanted; ``limits`` are those that no node can give."""

    wanted: tuple[Object, ...]
    read: tuple[RequestedClaim, ...]
    tried: tuple[Tried, ...]
    reports: tuple[RequestReport, ...]
    limits: tuple[Finding, ...]


def findings_of(look: Look, prospects: Prospects) -> list[Finding]:
    """The findings where the claims fit on none of these nodes."""
    if look.limits:
        return list(look.limits)
    unselected = _unselected(look)
    found = [_no_match(report) for report in look.reports if (report.claim, report.request) in unselected]
    found += [_short(one) for one in look.tried if one.short is not None]
    found += [one.error for one in look.tried if one.error is not None]
    open_nodes = [one for one in look.tried if one.closed is None and one.short is None]
    if open_nodes and all(one.prospect == "never" for one in open_nodes):
        never = list(_never(look, open_nodes, prospects, unselected))
        if not never and not unselected:
            never = _never_together(look, open_nodes, prospects)
        return found + never
    fitting = {
        (report.claim, report.request, node.node): node.fitting
        for report in look.reports
        for node in report.nodes
    }
    for one in open_nodes:
        if one.allocator is not None and one.prospect != "never":
            found += _together(look, one, one.allocator, fitting)
    hopeful = {one.name for one in open_nodes if one.prospect != "never"}
    return found + [
        finding
        for report in look.reports
        for node in report.nodes
        if node.node in hopeful
        for finding in _remedies(report, node)
    ]


def _unselected(look: Look) -> set[tuple[str, str]]:
    """Claim and name of requests that select no device of any node, in none of their alternatives."""
    none = {
        (report.claim, report.request)
        for report in look.reports
        if not any(one.gate != "selector" for node in report.nodes for one in node.outcomes)
        and not any(node.pools for node in report.nodes)
    }
    return {
        (claim.name, one.full_name)
        for claim in look.read
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
        else "see that the driver runs and publishes",
    )


def _short(tried: Tried) -> Finding:
    remedy = "wait until pods there that have some end, ask for fewer, or use another node"
    return Finding("device-plugin", f"{tried.name}: {tried.short}", remedy)


def _never(
    look: Look, nodes: Sequence[Tried], prospects: Prospects, unselected: set[tuple[str, str]]
) -> Iterator[Finding]:
    """The requests for which no node has as many devices, held or free."""
    for claim in look.read:
        for alternatives in claim.requests:
            if (claim.name, alternatives[0].full_name) in unselected:
                continue
            best = [(*_best(one, claim, nodes, prospects), one) for one in alternatives]
            if any(most >= needed(one) for most, _, one in best):
                continue
            for most, where, one in best:
                has = (
                    f"the most that one publishes is {most}, on {where}"
                    if most
                    else "none has a device for it"
                )
                yield Finding(
                    "never",
                    f"no node can ever give request {one.full_name} what it wants, {wants(one)}: {has}",
                    "ask for less, or add a node that has as much; waiting does not help",
                )


def _best(
    request: Request, claim: RequestedClaim, nodes: Sequence[Tried], prospects: Prospects
) -> tuple[int, str]:
    """The most devices that a node could ever give to a request, and the first node that has as many."""
    counts = [(prospects.most(one.node, request, claim), one.name) for one in nodes]
    return max(counts, key=lambda found: found[0])


def _never_together(look: Look, nodes: Sequence[Tried], prospects: Prospects) -> list[Finding]:
    """Each request could be served, but never all of them on one node."""
    attributes = _attributes(look)
    constrained = attributes and any(
        prospects.fits_without_constraints(one.node, look.wanted) for one in nodes
    )
    if constrained:
        message = f"no node can ever have enough devices that meet the constraint on {', '.join(attributes)}"
        return [Finding("constraint", message, "loosen the constraint; waiting does not help")]
    names = ", ".join(claim.name for claim in look.read)
    message = f"no node can ever have devices for all requests of {names} together"
    return [Finding("together", message, "ask for less, or add a node that has as much")]


def _together(look: Look, tried: Tried, allocator: Allocator, fitting: Fitting) -> list[Finding]:
    """Where the node has enough for each request alone: is it a constraint, or that they compete?"""
    name = tried.name
    if not all(
        any(fitting.get((claim.name, one.full_name, name), 0) >= needed(one) for one in alternatives)
        for claim in look.read
        for alternatives in claim.requests
    ):
        return []
    attributes = _attributes(look)
    if attributes and fits_without_constraints(allocator, tried.node, look.wanted):
        message = f"{name} has enough devices, but none that meet the constraint on {', '.join(attributes)}"
        return [Finding("constraint", message, "loosen the constraint, or wait for other devices to be free")]
    names = ", ".join(claim.name for claim in look.read)
    message = f"{name} has devices for each request of {names}, but not for all of them together"
    return [Finding("together", message, "ask for less, or wait for other devices to be free")]


def _attributes(look: Look) -> list[str]:
    return sorted({one.attribute for claim in look.read for one in claim.constraints})


def _remedies(report: RequestReport, node: NodeReport) -> Iterator[Finding]:
    """What would free devices of a node: the claims that have those which are ruled out by nothing else."""
    for problem in node.pools:
        yield Finding("pool", f"{node.node}: {problem}", "see the driver's log there")
    for one in node.outcomes:
        number = len(one.devices)
        count, verb = f"{node.node}: {number} of the devices in question", "is" if number == 1 else "are"
        if one.gate == "in-use":
            holders = ", ".join(dict.fromkeys(one.claims))
            yield Finding("in-use", f"{count} {verb} in use by claim {holders}", _frees(one))
        elif one.gate == "counters" and one.claims:
            yield Finding("counters", f"{count} cannot be had: {one.reason}", _frees(one))
        elif one.gate == "capacity" and one.claims:
            have = "has" if number == 1 else "have"
            yield Finding("capacity", f"{count} {have} too little left: {one.reason}", _frees(one))
        elif one.gate == "taint":
            yield Finding("taint", f"{count} {verb} {one.reason}", "counts again once the taint is gone")
    if node.fitting:
        message = f"{node.node} has {node.fitting} free for request {report.request}"
        yield Finding("too-few", f"{message}, which wants {report.wants}")


def _frees(outcome: Outcome) -> str:
    names = list(dict.fromkeys(outcome.claims))
    return (
        f"frees when claim {names[0]} ends" if len(names) == 1 else f"frees as claims {', '.join(names)} end"
    )
