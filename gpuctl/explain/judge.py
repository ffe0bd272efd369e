"""Tries claims on every node: where they fit, where they could fit, and what rules out each device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpuctl.cli.cluster import Object
from gpuctl.explain.devices import Unselected, outcomes
from gpuctl.explain.findings import Finding, NodeReport, RequestReport
from gpuctl.explain.remedies import Prospects, Trial, TriedNode, findings_of
from gpuctl.explain.requests import looking_on, missing_classes, too_many, wants
from gpuctl.explain.snapshot import Snapshot
from gpuctl.explain.withheld import changing, not_offered, unheld, withheld
from kubernetes_rules.allocator.allocate import AllocationFailed, Allocator, PoolInvalid
from kubernetes_rules.allocator.requests import Request, RequestedClaim, Unanswered, read_claim
from kubernetes_rules.errors import RuleError
from kubernetes_rules.preemption.cluster import Asked, closed, is_allocated

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
        trials = _Trials(snapshot, asked, allocator or snapshot.allocator)
        groups = [trials.on(wanted, members) for wanted, members in by_claims.values()]
    except AllocationFailed as error:
        return Judged((), (Finding("error", error.what, error.way_out),))
    judged = _judged(groups)
    if not judged.findings:
        return judged
    claims = [claim for group in groups for claim in group.claims]
    slices, kinds = snapshot.slices, {finding.kind for finding in judged.findings}
    more = [*dict.fromkeys(looking_on(claims, judged.findings)), *unheld(slices, claims)]
    if "no-match" in kinds:
        more += (*changing(slices, snapshot.claims), *withheld(slices))
    if kinds & {"no-match", "never"}:
        more += not_offered(slices, snapshot.said)
    return replace(judged, findings=(*judged.findings, *more))


def _judged(groups: Sequence[Trial]) -> Judged:
    """What follows from the nodes that were tried, in their groups."""
    reports = tuple(report for group in groups for report in group.reports)
    tried = [one for group in groups for one in group.nodes]
    fitting = tuple(one.name for one in tried if one.prospect == "now")
    given_up = tuple(_given_up(one.name, one.error) for one in tried if one.gives_up and one.error)
    if fitting:
        return Judged((), given_up, reports) if given_up else Judged(fitting, (), reports)
    findings = [finding for group in groups for finding in findings_of(group)]
    open_nodes = [one for one in tried if one.closed is None]
    if tried and not open_nodes:
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
        self._prospects = Prospects(allocator, list(filter(is_allocated, asked.claims)))

    def on(self, wanted: tuple[Object, ...], nodes: Sequence[Object]) -> Trial:
        """Try the same claims on some nodes. Raises AllocationFailed for a malformed claim."""
        claims = tuple(read_claim(claim, self._classes) for claim in wanted)
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
        return Trial(wanted, claims, tried, reports, limits, self._prospects)

    def _try(self, node: Object, wanted: Sequence[Object], *, possible: bool) -> TriedNode:
        try:
            why = closed(self._asked.pod, node, self._asked.claims) or self._asked.missing_on(node)
        except RuleError as error:
            why = error.what
        if why is not None or not possible:
            return TriedNode(node, "never", closed=why)
        short = self._asked.shortage_on(node)
        if short is not None:
            return TriedNode(node, "unknown", short=short)
        try:
            if self._allocator.allocate(node, wanted) is not None:
                return TriedNode(node, "now")
            return TriedNode(node, self._prospects.of(node, wanted), is_full=True)
        except PoolInvalid:
            return TriedNode(node, "unknown")  # the node's report has the problem of the pool
        except AllocationFailed as error:
            finding = Finding("error", f"{node['metadata']['name']}: {error.what}", error.way_out)
            return TriedNode(node, "unknown", error=finding, gives_up=isinstance(error, Unanswered))

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
