"""Tries claims on every node: where they fit, where they could fit, and what rules out each device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from driver.devices.memory_limits import MEMORY_LIMITS
from driver.devices.names import CHANNELS_DRIVER_NAME, CLIQUE_LABEL, DRIVER_NAME
from driver.devices.taints import TAINT_CHANGING
from gpuctl.cli.cluster import Object
from gpuctl.cli.output import some_of
from gpuctl.explain.devices import Unselected, outcomes
from gpuctl.explain.findings import Finding, NodeReport, RequestReport
from gpuctl.explain.remedies import Prospects, Trial, TriedNode, findings_of
from gpuctl.explain.requests import looking_on, missing_classes, too_many, wants
from gpuctl.explain.snapshot import Snapshot
from gpuctl.fleet.devices import address_of, attribute
from gpuctl.fleet.holders import allocated
from gpuctl.fleet.seen import said_lines
from gpuctl.plan.share_words import why_not_limited
from kubernetes_rules.allocator.allocate import AllocationFailed, Allocator, PoolInvalid
from kubernetes_rules.allocator.requests import Request, RequestedClaim, Unanswered, read_claim
from kubernetes_rules.errors import RuleError
from kubernetes_rules.preemption.cluster import Asked, closed, is_allocated

GIVES_UP = "gives-up"
"""The kind of the finding that the scheduler gives up at a device, although other nodes have room."""

_ASKED_LIMITS = ("memoryIsolation", MEMORY_LIMITS)
_MOST_NODES = 3
"""How many nodes with the same reason are named."""


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
    more = [*dict.fromkeys(looking_on(claims, judged.findings)), *_without_memory_limits(slices, claims)]
    more += _gang(snapshot, asked.claims)
    if "no-match" in kinds:
        more += (*_changing(slices, snapshot.claims), *_withheld(slices))
    if kinds & {"no-match", "never"}:
        more += _not_offered(slices, snapshot.said)
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


def _gang(snapshot: Snapshot, claims: Iterable[Object]) -> Iterator[Finding]:
    """The clique that the pod's gang has chosen with its channel: its pods can go nowhere else."""
    for claim in filter(is_allocated, claims):
        for result in claim["status"]["allocation"]["devices"]["results"]:
            if result["driver"] != CHANNELS_DRIVER_NAME:
                continue
            labels = (node["metadata"].get("labels") or {} for node in snapshot.known_nodes())
            nodes = sum(one.get(CLIQUE_LABEL) == result["pool"] for one in labels)
            placed, name = len(claim["status"].get("reservedFor") or ()), claim["metadata"]["name"]
            yield Finding(
                "gang",
                f"claim {name} has {result['device']} of the NVLink clique {result['pool']}, so its pods can "
                f"run on nodes of that clique only. Nodes there: {nodes}. Pods that have a place: {placed}",
                "wait for GPUs there; or begin again, perhaps in another clique: delete the gang's pods, "
                f"then claim {name}, and create them anew",
            )


def _withheld(slices: Iterable[Object]) -> tuple[Finding, ...]:
    """The GPUs that say why they are not offered in partitions, by node and reason."""
    found: dict[tuple[str, str], list[str]] = {}
    for spec, device in _own_devices(slices):
        if reason := attribute(device, "migWithheld"):
            found.setdefault((str(spec.get("nodeName")), str(reason)), []).append(str(device["name"]))
    return tuple(
        Finding(
            "withheld",
            f"{node}: partitions of {', '.join(dict.fromkeys(names))} are withheld: {reason}",
            "end what uses the GPU, or change the node configuration",
        )
        for (node, reason), names in sorted(found.items())
    )


def _not_offered(slices: Iterable[Object], said: Iterable[Object]) -> tuple[Finding, ...]:
    """What controllers have said about GPUs that their nodes do not publish."""
    published: dict[str, set[str]] = {}
    for spec, device in _own_devices(slices):
        published.setdefault(str(spec.get("nodeName")), set()).add(address_of(device))
    return tuple(
        Finding("said", line, "do what the driver says there") for line in said_lines(said, published)
    )


def _changing(slices: Iterable[Object], claims: Iterable[Object]) -> tuple[Finding, ...]:
    """The devices that disappear when their claims end: their GPUs get another form then."""
    holders: dict[tuple[str, str], list[str]] = {}
    for one in (one for claim in claims for one in allocated(claim)):
        holders.setdefault((one.pool, one.device), []).append(one.claim)
    found: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for spec, device in _own_devices(slices):
        held_by = tuple(dict.fromkeys(holders.get((str(spec["pool"]["name"]), str(device["name"])), ())))
        if held_by and any(taint["key"] == TAINT_CHANGING for taint in device.get("taints") or ()):
            found.setdefault((str(spec.get("nodeName")), held_by), []).append(str(device["name"]))
    return tuple(
        Finding(
            "changing",
            f"{node} is about to offer other devices: {', '.join(names)} "
            f"{'disappear' if len(names) > 1 else 'disappears'} when {_ended(held_by)}",
            "try again then: the devices of the node configuration are published within seconds",
        )
        for (node, held_by), names in sorted(found.items())
    )


def _ended(claims: Sequence[str]) -> str:
    return f"claim {claims[0]} ends" if len(claims) == 1 else f"claims {', '.join(claims)} end"


def _without_memory_limits(slices: Iterable[Object], claims: Iterable[RequestedClaim]) -> tuple[Finding, ...]:
    """The shared devices without memory limits, by the reason; only if a request asks for such limits."""
    expressions = (
        expression
        for claim in claims
        for alternatives in claim.requests
        for request in alternatives
        for expression in request.selectors
    )
    if not any(word in expression for expression in expressions for word in _ASKED_LIMITS):
        return ()
    found: dict[str, dict[str, None]] = {}
    for spec, device in _own_devices(slices):
        reason = why_not_limited(device) if _lacks_memory_limits(device) else None
        if reason is not None:
            found.setdefault(reason, {})[str(spec.get("nodeName"))] = None
    return tuple(
        Finding(
            "withheld",
            f"{some_of(sorted(nodes), _MOST_NODES)}: memory limits of shares are not enforced "
            f"there: {reason}",
            "use a node that enforces them, a share by MPS, or a class that does not require them",
        )
        for reason, nodes in sorted(found.items())
    )


def _lacks_memory_limits(device: Object) -> bool:
    isolation = attribute(device, "memoryIsolation")
    return bool(device.get("allowMultipleAllocations")) and isolation in (None, "none")


def _own_devices(slices: Iterable[Object]) -> Iterator[tuple[Object, Object]]:
    """The devices of this driver, each with the spec of its slice."""
    for spec in (one["spec"] for one in slices):
        if spec["driver"] == DRIVER_NAME:
            yield from ((spec, device) for device in spec.get("devices") or ())
