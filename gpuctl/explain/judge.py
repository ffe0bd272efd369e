"""Tries claims on every node: where they fit, where they could fit, and what rules out each device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpuctl.explain.devices import Unselected, outcomes
from gpuctl.explain.findings import Finding, NodeReport, RequestReport
from gpuctl.explain.remedies import Prospects, TriedNode, TriedNodes, findings_of
from gpuctl.explain.requests import looking_on, missing_classes, too_many, wants
from gpuctl.explain.snapshot import Object, Snapshot
from gpuctl.explain.withheld import changing, not_offered, unheld, withheld
from kubernetes_rules.allocator.allocate import AllocationFailed, Allocator, PoolInvalid
from kubernetes_rules.allocator.requests import Request, RequestedClaim, read_claim
from kubernetes_rules.allocator.selector_results import Unanswered
from kubernetes_rules.errors import RuleError
from kubernetes_rules.preemption.asked import Asked
from kubernetes_rules.preemption.pod_fit import closed
from kubernetes_rules.taints import tainted_slices

GIVES_UP = "gives-up"
"""The kind of the finding that the scheduler gives up at a device, although other nodes have room."""


@dataclass(frozen=True, slots=True)
class Judged:
    """The nodes where it fits now; without any, what is in the way.

    ``never``: none of the nodes that the pod may go to could ever serve it.
    """

    fits: tuple[str, ...]
    findings: tuple[Finding, ...] = ()
    reports: tuple[RequestReport, ...] = ()
    never: bool = False


def judge(snapshot: Snapshot, asked: Asked, allocator: Allocator | None = None) -> Judged:
    """Try what is asked for on every node, as the scheduler does.

    ``allocator`` is one that has these classes, slices and claims already.
    """
    nodes = snapshot.known_nodes()
    # Nodes differ only by extended resources, so that most want the same claims, which are read once.
    by_claims: dict[tuple[str, ...], tuple[tuple[Object, ...], list[Object]]] = {}
    for node in nodes:
        wanted = asked.on(node)
        key = tuple(f"{one['metadata']['uid']} {one['spec']}" for one in wanted)
        by_claims.setdefault(key, (wanted, []))[1].append(node)
    if not nodes:
        by_claims[()] = (asked.on({}), [])
    missing = missing_classes(snapshot, [claim for wanted, _ in by_claims.values() for claim in wanted])
    if missing:
        return Judged((), missing)
    try:
        trials = _Trials(snapshot, asked, allocator or _allocator_of(snapshot))
        groups = [trials.on(wanted, members) for wanted, members in by_claims.values()]
    except AllocationFailed as error:
        return Judged((), (Finding("error", error.what, error.way_out),))
    judged = _judged(groups, nodes, trials.prospects)
    if judged.findings:
        asked_for = [claim for group in groups for claim in group.claims]
        rules = dict.fromkeys(looking_on(asked_for, judged.findings))
        judged = replace(judged, findings=(*judged.findings, *rules, *unheld(snapshot.slices, asked_for)))
    kinds = {finding.kind for finding in judged.findings}
    more = not_offered(snapshot.slices, snapshot.said) if kinds & {"no-match", "never"} else ()
    if "no-match" in kinds:
        more = (*changing(snapshot.slices, snapshot.claims), *withheld(snapshot.slices), *more)
    return replace(judged, findings=(*judged.findings, *more))


def _judged(groups: Sequence[TriedNodes], nodes: Sequence[Object], prospects: Prospects) -> Judged:
    """What follows from the nodes that were tried, in their groups."""
    reports = tuple(report for group in groups for report in group.reports)
    tried = [one for group in groups for one in group.nodes]
    fitting = {one.name for one in tried if one.fits}
    given_up = [_given_up(one.name, one.error) for one in tried if one.gives_up and one.error is not None]
    if fitting and given_up:
        return Judged((), tuple(given_up), reports)
    if fitting:
        names = (node["metadata"]["name"] for node in nodes)
        return Judged(tuple(name for name in names if name in fitting), (), reports)
    findings = [finding for group in groups for finding in findings_of(group, prospects)]
    open_nodes = [one for one in tried if one.closed is None]
    if nodes and not open_nodes:
        findings.append(
            Finding("node", "this pod may not go to any node", "see the reasons next to the nodes")
        )
    never = bool(open_nodes) and all(one.prospect == "never" for one in open_nodes)
    # What matches nothing today may match the devices of a driver that is still being installed.
    never = never and all(finding.kind != "no-match" for finding in findings)
    return Judged((), tuple(dict.fromkeys(findings)), reports, never)


def _given_up(node: str, error: Finding) -> Finding:
    return Finding(
        GIVES_UP,
        f"other nodes have the devices, but the scheduler gives up at one of {error.message}",
        f"`kubectl cordon {node}`, and see who publishes this there; or correct the selector",
    )


class _Trials:
    """Tries claims on nodes, with what other claims hold now."""

    def __init__(self, snapshot: Snapshot, asked: Asked, allocator: Allocator) -> None:
        self._asked = asked
        self._allocator = allocator
        self._unselected: Unselected = {}
        self._classes = {one["metadata"]["name"]: one for one in snapshot.classes}
        own = [claim for claim in asked.claims if _allocation(claim)]
        self.prospects = Prospects(allocator, own)

    def on(self, wanted: Sequence[Object], nodes: Sequence[Object]) -> TriedNodes:
        """Try the same claims on some nodes. Raises AllocationFailed for a malformed claim."""
        claims = [read_claim(claim, self._classes) for claim in wanted]
        limits = too_many(claims)
        tried = tuple(self._try(node, wanted, possible=not limits) for node in nodes)
        reports = tuple(
            RequestReport(
                claim.name,
                request.full_name,
                wants(request),
                tuple(self._report(request, claim, one) for one in tried),
            )
            for claim in claims
            for alternatives in claim.requests
            for request in alternatives
        )
        return TriedNodes(tuple(wanted), tuple(claims), tried, reports, limits)

    def _try(self, node: Object, wanted: Sequence[Object], *, possible: bool) -> TriedNode:
        name = node["metadata"]["name"]
        tried = TriedNode(node, name, prospect="never")
        try:
            why = closed(self._asked.pod, node, self._asked.claims) or self._asked.missing_on(node)
        except RuleError as error:
            why = error.what
        if why is not None or not possible:
            return replace(tried, closed=why)
        short = self._asked.shortage_on(node)
        if short is not None:
            return replace(tried, short=short, prospect="unknown")
        try:
            if self._allocator.allocate(node, wanted) is not None:
                return replace(tried, fits=True, prospect="when free")
            return replace(tried, prospect=self.prospects.of(node, wanted), allocator=self._allocator)
        except PoolInvalid:
            return replace(tried, prospect="unknown")  # the node's report has the problem of the pool
        except AllocationFailed as error:
            finding = Finding("error", f"{name}: {error.what}", error.way_out)
            gives_up = isinstance(error, Unanswered)
            return replace(tried, prospect="unknown", error=finding, gives_up=gives_up)

    def _report(self, request: Request, claim: RequestedClaim, tried: TriedNode) -> NodeReport:
        try:
            view = self._allocator.view(tried.node)
            pools = tuple(
                f"pool {pool.id} is incomplete: {pool.incomplete}"
                if pool.incomplete
                else f"pool {pool.id} is invalid: {pool.invalid}"
                for pool in view.pools
                if not pool.usable
            )
            found = outcomes(self._allocator, view, request, claim.constraints, self._unselected)
            never = tried.closed is None and tried.prospect == "never"
            return NodeReport(tried.name, found, pools, tried.closed, never)
        except RuleError as error:
            return NodeReport(tried.name, (), (), error.what)


def _allocator_of(snapshot: Snapshot) -> Allocator:
    """Raises AllocationFailed if an object is malformed."""
    allocated = [claim for claim in snapshot.claims if _allocation(claim)]
    return Allocator(tainted_slices(snapshot.slices, snapshot.taint_rules), snapshot.classes, allocated)


def _allocation(claim: Object) -> Any:
    return (claim.get("status") or {}).get("allocation")
