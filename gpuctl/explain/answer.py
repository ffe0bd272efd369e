"""Puts an explanation together: what kind of waiting it is, what stands in the way, how devices fell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from gpuctl.explain.devices import falls
from gpuctl.explain.findings import Explanation, Fall, Finding, NodeReport, RequestReport, Verdict
from gpuctl.explain.nodes import closed
from gpuctl.explain.pod_claims import claims_of_pod
from gpuctl.explain.snapshot import Snapshot
from kubernetes_rules.allocator.allocate import AllocationFailed, Allocator, PoolInvalid
from kubernetes_rules.allocator.requests import MOST_DEVICES, Request, RequestedClaim, read_claim
from kubernetes_rules.device_taint_rules import tainted_slices
from kubernetes_rules.errors import RuleError

Object = dict[str, Any]

_ENDED = ("Running", "Succeeded", "Failed")
_NOT_PREPARED = "FailedPrepareDynamicResources"


def explain_pod(
    pod: Object, snapshot: Snapshot, templates: Mapping[str, Object | None], events: Sequence[Object]
) -> Explanation:
    """Why a pod waits; ``events`` are the pod's, ``templates`` those that it names."""
    metadata, phase = pod["metadata"], (pod.get("status") or {}).get("phase", "Pending")
    place = pod["spec"].get("nodeName")

    answer = _answering("pod", metadata, snapshot)
    if phase in _ENDED:
        return answer("runs", f"its phase is {phase}" + (f" on {place}" if place else ""))
    if place:
        told = [event for event in events if event.get("reason") == _NOT_PREPARED]
        if told:
            message = str(told[-1].get("message", ""))
            return answer(
                "fails",
                f"it is placed on {place}, which cannot prepare its claims",
                Finding("prepare", message),
            )
        return answer("runs", f"it is placed on {place} and starts")
    found = claims_of_pod(pod, snapshot, templates, events)
    findings = [*found.findings, *_gates_of(pod)]
    judged = _judge(snapshot, found.claims, pod)
    findings += judged.findings
    if findings or not judged.fits:
        return answer("waits", "it waits", *findings, reports=judged.reports)
    if not found.claims:
        return answer("fits", "it asks for no devices; something else keeps it waiting")
    where = ", ".join(judged.fits[:3]) + (" and others" if len(judged.fits) > 3 else "")
    summary = f"its devices are there on {where}; if it still waits, then for CPU, memory or the scheduler"
    return answer("fits", summary, reports=judged.reports)


def explain_claim(claim: Object, snapshot: Snapshot) -> Explanation:
    """Why a claim has no devices, or who has it."""
    metadata, status = claim["metadata"], claim.get("status") or {}

    answer = _answering("claim", metadata, snapshot)
    if status.get("allocation"):
        results = status["allocation"].get("devices", {}).get("results") or ()
        devices = ", ".join(f"{result['pool']}/{result['device']}" for result in results)
        users = ", ".join(str(user.get("name")) for user in status.get("reservedFor") or ()) or "nobody"
        return answer("allocated", f"it has {devices or 'no device'} and is used by {users}")
    judged = _judge(snapshot, (claim,), None)
    if judged.findings or not judged.fits:
        return answer("waits", "no node has what it asks for", *judged.findings, reports=judged.reports)
    idle = Finding(
        "unused", "a claim gets its devices when a pod that uses it is scheduled", "create such a pod"
    )
    return answer("fits", f"it would fit on {', '.join(judged.fits[:3])}", idle, reports=judged.reports)


class _Answer(Protocol):
    def __call__(
        self, verdict: Verdict, summary: str, *found: Finding, reports: Sequence[RequestReport] = ()
    ) -> Explanation: ...


def _answering(kind: Literal["pod", "claim"], metadata: Mapping[str, Any], snapshot: Snapshot) -> _Answer:
    """Makes explanations of one object."""

    def answer(
        verdict: Verdict, summary: str, *found: Finding, reports: Sequence[RequestReport] = ()
    ) -> Explanation:
        where = (metadata["namespace"], metadata["name"])
        return Explanation(kind, *where, verdict, summary, found, tuple(reports), snapshot.unread)

    return answer


@dataclass(frozen=True, slots=True)
class _Judged:
    fits: tuple[str, ...]
    findings: tuple[Finding, ...]
    reports: tuple[RequestReport, ...]


def _gates_of(pod: Object) -> list[Finding]:
    names = [str(gate["name"]) for gate in pod["spec"].get("schedulingGates") or ()]
    if not names:
        return []
    return [
        Finding("gate", f"the pod has scheduling gates: {', '.join(names)}", "whoever set them removes them")
    ]


def _judge(snapshot: Snapshot, claims: Sequence[Object], pod: Object | None) -> _Judged:
    """Look at every node for the claims that have no devices yet."""
    wanted = [claim for claim in claims if not (claim.get("status") or {}).get("allocation")]
    missing = _missing_classes(snapshot, wanted)
    if missing:
        return _Judged((), tuple(missing), ())
    allocated = [claim for claim in snapshot.claims if (claim.get("status") or {}).get("allocation")]
    try:
        slices = tainted_slices(snapshot.slices, snapshot.taint_rules)
        allocator = Allocator(slices, snapshot.classes, allocated)
        by_name = {one["metadata"]["name"]: one for one in snapshot.classes}
        read = [read_claim(claim, by_name) for claim in wanted]
    except AllocationFailed as error:
        return _Judged((), (Finding("error", error.what, error.way_out),), ())
    nodes = snapshot.nodes or _named_nodes(snapshot)
    reports = _reports(allocator, read, nodes, pod, claims)
    too_many = [_limit(claim) for claim in read]
    findings = [finding for finding in too_many if finding is not None] or _no_match(reports)
    fits, closed_everywhere = [], True
    for node in nodes:
        if closed(pod, node, claims) is not None:
            continue
        closed_everywhere = False
        name = node["metadata"]["name"]
        try:
            if allocator.allocate(node, wanted) is not None:
                fits.append(name)
            else:
                findings += _together(allocator, node, wanted, read, reports)
        except PoolInvalid:
            continue  # what is wrong with the pool is told beside the node
        except AllocationFailed as error:
            findings.append(Finding("error", f"{name}: {error.what}", error.way_out))
    if nodes and closed_everywhere:
        findings.append(Finding("node", "no node is open to this pod", "see the reasons beside the nodes"))
    if fits:
        return _Judged(tuple(fits), (), reports)
    findings += _remedies(reports)
    return _Judged((), tuple(dict.fromkeys(findings)), reports)


def _named_nodes(snapshot: Snapshot) -> tuple[Object, ...]:
    """The nodes that slices name, where nodes themselves may not be read."""
    names = {one["spec"].get("nodeName") for one in snapshot.slices} - {None}
    return tuple({"metadata": {"name": name}, "spec": {}} for name in sorted(names))


def _missing_classes(snapshot: Snapshot, claims: Sequence[Object]) -> list[Finding]:
    asked = [
        str(one["deviceClassName"])
        for claim in claims
        for request in claim["spec"].get("devices", {}).get("requests") or ()
        for one in ([request["exactly"]] if request.get("exactly") else request.get("firstAvailable") or ())
    ]
    return [
        Finding("class-missing", f"the DeviceClass {name} does not exist", "create it, or name another one")
        for name in dict.fromkeys(asked)
        if snapshot.device_class(name) is None
    ]


def _limit(claim: RequestedClaim) -> Finding | None:
    least = sum(
        min(0 if one.takes_all else one.count for one in alternatives) for alternatives in claim.requests
    )
    if least <= MOST_DEVICES:
        return None
    return Finding(
        "too-many",
        f"the claim {claim.name} asks for {least} devices, a claim can have {MOST_DEVICES}",
        "split it into several claims",
    )


def _reports(
    allocator: Allocator,
    read: Sequence[RequestedClaim],
    nodes: Sequence[Object],
    pod: Object | None,
    claims: Sequence[Object],
) -> tuple[RequestReport, ...]:
    found = []
    for claim in read:
        for request in (one for alternatives in claim.requests for one in alternatives):
            each = tuple(_node_report(allocator, request, claim, node, pod, claims) for node in nodes)
            found.append(RequestReport(claim.name, request.full_name, _wants(request), each))
    return tuple(found)


def _node_report(
    allocator: Allocator,
    request: Request,
    claim: RequestedClaim,
    node: Object,
    pod: Object | None,
    claims: Sequence[Object],
) -> NodeReport:
    name = node["metadata"]["name"]
    try:
        why = closed(pod, node, claims)
        view = allocator.view(node)
        pools = tuple(
            f"pool {pool.id} is incomplete: {pool.incomplete}"
            if pool.incomplete
            else f"pool {pool.id} is invalid: {pool.invalid}"
            for pool in view.pools
            if not pool.usable
        )
        return NodeReport(name, falls(allocator, view, request, claim.constraints), pools, why)
    except RuleError as error:
        return NodeReport(name, (), (), error.what)


def _wants(request: Request) -> str:
    number = (
        "all devices"
        if request.takes_all
        else f"{request.count} device" + ("s" if request.count != 1 else "")
    )
    extras = [f"{amount.quantity} {name}" for name, amount in sorted(request.capacity.items())]
    extras += ["admin access"] if request.admin_access else []
    more = f" with {', '.join(extras)}" if extras else ""
    return f"{number} of class {request.class_name}{more}"


def _no_match(reports: Sequence[RequestReport]) -> list[Finding]:
    """Requests whose selectors no device of any node passes."""
    found = []
    for report in reports:
        passed = any(fall.gate != "selector" for node in report.nodes for fall in node.falls)
        if not passed and not any(node.pools for node in report.nodes):
            found.append(
                Finding(
                    "no-match",
                    f"request {report.request} ({report.wants}) selects no device that a node could use",
                    "see that the driver runs and publishes; compare the selectors with its ResourceSlices",
                )
            )
    return found


def _together(
    allocator: Allocator,
    node: Object,
    claims: Sequence[Object],
    read: Sequence[RequestedClaim],
    reports: Sequence[RequestReport],
) -> list[Finding]:
    """Where the node has enough for each request alone: is it a constraint, or that they compete?"""
    name = node["metadata"]["name"]
    if not all(
        _enough(alternatives, claim.name, name, reports) for claim in read for alternatives in claim.requests
    ):
        return []
    attributes = sorted({one.attribute for claim in read for one in claim.constraints})
    bare = [_without_constraints(claim) for claim in claims]
    if attributes and allocator.allocate(node, bare) is not None:
        return [
            Finding(
                "constraint",
                f"{name} has enough devices, but none that meet the constraint on {', '.join(attributes)}",
                "loosen the constraint, or wait for other devices to be free",
            )
        ]
    names = ", ".join(claim.name for claim in read)
    return [
        Finding(
            "together",
            f"{name} has devices for each request of {names}, but not for all of them together",
            "ask for less, or wait for other devices to be free",
        )
    ]


def _enough(alternatives: Sequence[Request], claim: str, node: str, reports: Sequence[RequestReport]) -> bool:
    by_request = {
        (report.claim, report.request): one.fitting
        for report in reports
        for one in report.nodes
        if one.node == node
    }
    return any(
        by_request.get((claim, one.full_name), 0) >= (1 if one.takes_all else one.count)
        for one in alternatives
    )


def _without_constraints(claim: Object) -> Object:
    return {**claim, "spec": {**claim["spec"], "devices": {**claim["spec"]["devices"], "constraints": []}}}


def _excluded(node: str, fall: Fall) -> Finding:
    """Devices that fell because their GPUs are taken in another form."""
    message = f"{node}: {len(fall.devices)} of the devices in question cannot be had: {fall.reason}"
    return Finding("counters", message, f"frees when claim {', '.join(fall.claims)} ends")


def _remedies(reports: Sequence[RequestReport]) -> list[Finding]:
    """What would free devices: the claims that hold those which fell only because they are in use."""
    found = []
    for report in reports:
        for node in report.nodes:
            if node.closed is not None:
                continue
            found += [
                Finding("pool", f"{node.node}: {problem}", "see the driver's log there")
                for problem in node.pools
            ]
            for fall in node.falls:
                if fall.gate == "in-use":
                    holder = fall.reason.removeprefix("in use by ")
                    message = (
                        f"{node.node}: {len(fall.devices)} of the devices in question are in use by {holder}"
                    )
                    found.append(Finding("in-use", message, f"frees when {holder} ends"))
                if fall.gate == "counters" and fall.claims:
                    found.append(_excluded(node.node, fall))
            if node.fitting:
                message = f"{node.node} has {node.fitting} free for request {report.request}"
                found.append(Finding("too-few", f"{message}, which wants {report.wants}"))
    return found
