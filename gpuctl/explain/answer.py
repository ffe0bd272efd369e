"""Explains a pod, a claim or a PodGroup: whether it waits, what is in the way, and what would help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

from gpuctl.explain.findings import Explanation, Finding
from gpuctl.explain.judge import GIVES_UP, Judged, judge
from gpuctl.explain.pod.claims import claims_of_pod, made_claims, unused_claims
from gpuctl.explain.pod.hidden import WAY_OUT, hidden_by_mps
from gpuctl.explain.pod.placed import placed
from gpuctl.explain.requests import owners
from gpuctl.explain.room import Rooms
from gpuctl.explain.sick import sick_devices
from gpuctl.explain.snapshot import Object, Snapshot
from kubernetes_rules.cel.selector import TooCostly, selectors_within
from kubernetes_rules.errors import RuleError
from kubernetes_rules.preemption.asked import Asked
from kubernetes_rules.preemption.units import least_of

SELECTOR_SECONDS = 10.0
"""The processor time that the selectors of one answer may take; anybody who may create claims writes them."""

COSTLY = "costly"
"""The kind of the finding that the selectors took more time than that."""


def explain_pod(
    pod: Object, snapshot: Snapshot, templates: Mapping[str, Object | None], events: Sequence[Object]
) -> Explanation:
    """Why a pod waits; ``events`` are about the pod, ``templates`` are the claim templates that it names."""
    answer = _answering("pod", pod, snapshot)
    # A pod that has a node keeps it: nothing on other nodes matters to it any more.
    found = placed(pod, events)
    hidden = [Finding("hidden", one, WAY_OUT) for one in hidden_by_mps(pod, snapshot.claim)]
    if found is not None and hidden and found.verdict == "runs":
        found = replace(found, verdict="fails", summary=f"{found.summary}, and MPS hides a device")
    unused = (*hidden, *unused_claims(pod))
    if found is not None:
        ended = found.verdict in ("succeeded", "failed")
        sick = () if ended else sick_devices(made_claims(pod, snapshot), snapshot.slices)
        summary = f"{found.summary}, but not all of its devices are well" if sick else found.summary
        return answer(found.verdict, summary, (*found.findings, *sick, *unused))
    claims = claims_of_pod(pod, snapshot, templates, events)
    judged = _judged(snapshot, Asked(pod, claims.claims, claims.extended))
    if isinstance(judged, Finding):
        return answer("waits", _UNKNOWN, (*claims.findings, *_gates_of(pod), judged, *unused))
    findings = (*claims.findings, *_gates_of(pod), *judged.findings)
    if findings or not judged.fits:
        return answer("waits", _waiting("it waits", judged), (*findings, *unused), judged.reports)
    if not claims.claims and not (claims.extended and claims.extended.asks_devices):
        return answer("fits", "it asks for no devices; something else keeps it waiting")
    where = ", ".join(judged.fits[:3]) + (" and others" if len(judged.fits) > 3 else "")
    summary = f"its devices are free on {where}; if it still waits, it waits for CPU, memory or the scheduler"
    return answer("fits", summary, unused, judged.reports)


def explain_claim(claim: Object, snapshot: Snapshot) -> Explanation:
    """Why a claim has no devices; or which it has, and who uses it."""
    status = claim.get("status") or {}
    answer = _answering("claim", claim, snapshot)
    if status.get("allocation"):
        results = status["allocation"].get("devices", {}).get("results") or ()
        devices = ", ".join(f"{result['pool']}/{result['device']}" for result in results)
        users = ", ".join(str(user.get("name")) for user in status.get("reservedFor") or ()) or "nobody"
        summary = f"it has {devices or 'no device'} and is used by {users}"
        return answer("allocated", summary, sick_devices((claim,), snapshot.slices))
    judged = _judged(snapshot, Asked(None, (claim,)))
    if isinstance(judged, Finding):
        return answer("waits", _UNKNOWN, (judged,))
    if judged.findings or not judged.fits:
        given_up = any(one.kind == GIVES_UP for one in judged.findings)
        waits = "the scheduler gives it up" if given_up else "no node has the devices that it asks for"
        summary = _waiting(waits, judged)
        return answer("waits", summary, judged.findings, judged.reports)
    # The scheduler allocates a claim only together with a node for a pod that uses it.
    idle = Finding(
        "unused", "a claim gets its devices when a pod that uses it is scheduled", "create such a pod"
    )
    return answer("fits", f"it would fit on {', '.join(judged.fits[:3])}", (idle,), judged.reports)


def explain_group(group: Object, snapshot: Snapshot, rooms: Rooms) -> Explanation:
    """How far the pods of a PodGroup get together. Raises ApiError."""
    answer = _answering("podgroup", group, snapshot)
    if least_of(group) is None:
        return answer("fits", "its pods are scheduled one by one; explain them one by one, too")
    try:
        found, unread = rooms.gang((group["metadata"]["namespace"], group["metadata"]["name"]))
    except RuleError as error:
        return answer("waits", "it cannot be judged", (Finding("error", error.what, error.way_out),))
    except TooCostly as error:
        return answer("waits", _UNKNOWN, (Finding(COSTLY, str(error), "explain one of its pods"),))
    unread = tuple(dict.fromkeys((*snapshot.unread, *unread)))
    if found is None:
        return replace(answer("waits", "it cannot be judged without all pods and PodGroups"), unread=unread)
    return replace(answer(found.verdict, f"it {found.summary}", found.findings), unread=unread)


_UNKNOWN = "the reason for its waiting takes too long to work out"


def _judged(snapshot: Snapshot, asked: Asked) -> Judged | Finding:
    """Where the claims fit and why not, or the finding that this is too costly to work out."""
    try:
        with selectors_within(SELECTOR_SECONDS):
            return judge(snapshot, asked)
    except TooCostly as error:
        claims = [claim for node in snapshot.known_nodes() or ({},) for claim in asked.on(node)]
        whose = " and ".join(owners(error.expression, claims, snapshot))
        message = f"{error}, most of it the selector of {whose}: {error.expression[:200]!r}"
        return Finding(COSTLY, message, "write the selector with fewer nested all(), exists() or map()")


def _waiting(waits: str, judged: Judged) -> str:
    return f"{waits}, and no node can ever serve it as it is" if judged.never else waits


def _answering(
    kind: Literal["pod", "claim", "podgroup"], item: Object, snapshot: Snapshot
) -> partial[Explanation]:
    """Makes explanations of one object, from a verdict, a summary, findings and reports about requests."""
    metadata = item["metadata"]
    return partial(Explanation, kind, metadata["namespace"], metadata["name"], unread=snapshot.unread)


def _gates_of(pod: Object) -> list[Finding]:
    names = [str(gate["name"]) for gate in pod["spec"].get("schedulingGates") or ()]
    if not names:
        return []
    return [
        Finding(
            "gate",
            f"the pod has scheduling gates: {', '.join(names)}",
            "the controllers that set them have to remove them",
        )
    ]
