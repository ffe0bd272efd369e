"""Explains a pod or a claim: whether it waits, what is in the way, and what would help."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from gpuctl.cli.cluster import Object
from gpuctl.explain.devices import MISSES
from gpuctl.explain.findings import COSTLY, Explanation, Finding, explanation
from gpuctl.explain.judge import GIVES_UP, Judged, judge
from gpuctl.explain.pod.claims import CLAIM_NOT_MADE, claims_of_pod, unused_claims
from gpuctl.explain.pod.placed import explain_placed, sick_devices
from gpuctl.explain.requests import owners
from gpuctl.explain.snapshot import Snapshot
from gpuctl.explain.victims import HELD, Policy, find_victims
from kubernetes_rules.cel.selector import TooCostly, selectors_within
from kubernetes_rules.errors import RuleError
from kubernetes_rules.preemption.cluster import Asked
from kubernetes_rules.preemption.units import group_of

SELECTOR_SECONDS = 10.0
"""The processor time that the selectors of one answer may take; anybody who may create claims writes them."""

_UNKNOWN = "the reason for its waiting takes too long to work out"
_FIELD = re.compile(r"""device\.(?:attributes|capacity)\[['"][^'"]+['"]\]\.""")
_MOST_CHARACTERS = 200


def explain_pod(
    pod: Object, snapshot: Snapshot, policies: Sequence[Policy] = (Policy.LOWER_PRIORITY,)
) -> Explanation:
    """Why a pod waits, and whose end would let it have its devices under these policies. Raises ApiError."""
    told = explain_placed(pod, snapshot)
    if told is None:
        asked, wrong = claims_of_pod(pod, snapshot)
        told = _explain_waiting(pod, snapshot, asked, wrong)
        try:
            with selectors_within(SELECTOR_SECONDS):
                told = _with_others(told, pod, snapshot, asked, wrong, policies)
        except (RuleError, TooCostly):
            pass  # the explanation names what is malformed, or too costly, already
    return replace(told, unread=tuple(snapshot.unread))


def _explain_waiting(pod: Object, snapshot: Snapshot, asked: Asked, wrong: Sequence[Finding]) -> Explanation:
    """What its claims and the devices say of a pod, without other pods."""
    judged = _judged(snapshot, asked)
    gates = [str(gate["name"]) for gate in pod["spec"].get("schedulingGates") or ()]
    if gates:
        message = f"the pod has scheduling gates: {', '.join(gates)}"
        gate = Finding("gate", message, "the controllers that set them have to remove them")
        wrong = (*wrong, gate)
    notes, exists = unused_claims(pod), bool(pod["metadata"].get("uid"))
    group = group_of(pod)
    if group is not None:
        together = "the scheduler may place its pods only together, which is not judged here"
        notes = (*notes, Finding("group", f"the pod belongs to the PodGroup {group}: {together}"))
    if wrong or judged.findings or not judged.fits:
        findings = (*wrong, *judged.findings, *notes)
        waits = _waiting("it waits" if exists else "it would wait", judged)
        return explanation("Pod", pod, "waits", waits, findings, judged.reports)
    if not asked.claims and not (asked.extended and asked.extended.asks_devices):
        idle = "it asks for no devices; something else keeps it waiting"
        return explanation("Pod", pod, "fits", idle, notes)
    where = ", ".join(judged.fits[:3]) + (" and others" if len(judged.fits) > 3 else "")
    summary = f"its devices are free on {where}"
    summary += "; if it still waits, it waits for CPU, memory or the scheduler" if exists else ""
    return explanation("Pod", pod, "fits", summary, notes, judged.reports)


def _with_others(
    told: Explanation,
    pod: Object,
    snapshot: Snapshot,
    asked: Asked,
    wrong: Sequence[Finding],
    policies: Sequence[Policy],
) -> Explanation:
    """The explanation with those who would have to end for it."""
    if not any(one.kind in HELD for one in told.findings):
        return told
    if any(one.kind != CLAIM_NOT_MADE for one in wrong):
        return told
    first, found = find_victims(asked, pod, snapshot, policies)
    return replace(told, findings=(*first, *told.findings), policies=found)


def explain_claim(claim: Object, snapshot: Snapshot) -> Explanation:
    """Why a claim has no devices; or which it has, and who uses it."""
    told = _explain_claim(claim, snapshot)
    return replace(told, unread=tuple(snapshot.unread))


def _explain_claim(claim: Object, snapshot: Snapshot) -> Explanation:
    status, told = claim.get("status") or {}, partial(explanation, "ResourceClaim", claim)
    if status.get("allocation"):
        results = status["allocation"].get("devices", {}).get("results") or ()
        devices = ", ".join(f"{result['pool']}/{result['device']}" for result in results)
        users = ", ".join(str(user.get("name")) for user in status.get("reservedFor") or ()) or "nobody"
        summary = f"it has {devices or 'no device'} and is used by {users}"
        return told("allocated", summary, sick_devices((claim,), snapshot))
    judged = _judged(snapshot, Asked(None, (claim,)))
    if judged.findings or not judged.fits:
        given_up = any(one.kind == GIVES_UP for one in judged.findings)
        waits = "the scheduler gives it up" if given_up else "no node has the devices that it asks for"
        return told("waits", _waiting(waits, judged), judged.findings, judged.reports)
    # The scheduler allocates a claim only together with a node for a pod that uses it.
    message = "a claim gets its devices when a pod that uses it is scheduled"
    idle = Finding("unused", message, "create such a pod")
    summary = f"it would fit on {', '.join(judged.fits[:3])}"
    return told("fits", summary, (idle,), judged.reports)


def _judged(snapshot: Snapshot, asked: Asked) -> Judged:
    """Where the claims fit and why not, or that this is too costly to work out."""
    try:
        with selectors_within(SELECTOR_SECONDS):
            return judge(snapshot, asked)
    except TooCostly as error:
        claims = [claim for node in snapshot.known_nodes() or ({},) for claim in asked.on(node)]
        whose = " and ".join(owners(error.expression, claims, snapshot))
        message = f"{error}, most of it the selector of {whose}: {error.expression[:200]!r}"
        remedy = "write the selector with fewer nested all(), exists() or map()"
        return Judged((), (Finding(COSTLY, message, remedy),))


def _waiting(waits: str, judged: Judged) -> str:
    """The headline: that it waits, whether it would wait for ever, and which selector nearly selects."""
    if any(one.kind == COSTLY for one in judged.findings):
        return _UNKNOWN
    if judged.never:
        return f"{waits}, and no node can ever serve it as it is"
    missed = _nearest_miss(judged) if any(one.kind == "no-match" for one in judged.findings) else ""
    return f"{waits}; nearest miss: {missed}" if missed else waits


def _nearest_miss(judged: Judged) -> str:
    """What is not true of most of the devices that are nearest to what is asked; empty without devices."""
    missed: Counter[str] = Counter()
    for one in (one for report in judged.reports for node in report.nodes for one in node.outcomes):
        if one.reason.startswith(MISSES) and not one.other_form:
            missed[one.reason.removeprefix(MISSES)] += len(one.devices)
    text = missed.most_common(1)[0][0] if missed else ""
    return _FIELD.sub("", text).replace("; ", ", but ", 1)[:_MOST_CHARACTERS]
