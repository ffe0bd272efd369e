"""Explains what has its devices: pods that have a node or have ended, and what is wrong with devices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from driver.devices.names import DRIVER_NAME
from driver.health.remedies import leading
from gpuctl.cli.cluster import Object
from gpuctl.explain.findings import SICK, Explanation, Finding, Verdict, explanation
from gpuctl.explain.pod.claims import unused_claims
from gpuctl.explain.pod.hidden import WAY_OUT, hidden_by_mps
from gpuctl.explain.snapshot import Snapshot
from gpuctl.fleet.devices import address_of, attribute, taints_of
from gpuctl.fleet.holders import Allocated, allocated, node_of_pool
from gpuctl.fleet.pods import NOT_PREPARED, container_statuses, not_prepared, stuck_containers
from kubernetes_rules.pod_claims import claim_entries, extended_claim
from kubernetes_rules.pool_generations import newest_slices


def explain_placed(pod: Object, snapshot: Snapshot) -> Explanation | None:
    """The state of a pod that has a node or has ended; None while it waits for a node."""
    # A pod that has a node keeps it: nothing on other nodes matters to it any more.
    status, node = pod.get("status") or {}, pod["spec"].get("nodeName")
    phase = status.get("phase", "Pending")
    where = f" on {node}" if node else ""
    verdict: Verdict = "runs"
    if phase in ("Succeeded", "Failed"):
        verdict, summary = (
            ("failed", "it has failed") if phase == "Failed" else ("succeeded", "it has ended well")
        )
        ends = _ends(status) if phase == "Failed" else ()
        return explanation("Pod", pod, verdict, f"{summary}{where}", (*ends, *unused_claims(pod)))
    if not node:
        return explanation("Pod", pod, "runs", f"its phase is {phase}") if phase == "Running" else None
    hidden = [Finding("hidden", one, WAY_OUT) for one in hidden_by_mps(pod, snapshot.claim)]
    stuck = [Finding("container", f"container {one}") for one in stuck_containers(pod)]
    sick = sick_devices(made_claims(pod, snapshot), snapshot)
    summary = f"it runs on {node}" if phase == "Running" else f"it is placed on {node}"
    failure = not_prepared(pod, snapshot.events(pod, NOT_PREPARED))
    if failure is not None:
        verdict, summary = "fails", f"it is placed on {node}, which cannot prepare its claims"
        stuck = [Finding("prepare", failure)]
    elif stuck and phase != "Running":
        verdict, summary = "fails", f"{summary}, and cannot start there"
    elif hidden:
        verdict, summary = "fails", f"{summary}, and MPS hides a device"
    elif phase != "Running":
        summary += " and starts"
    if sick:
        summary += ", but not all of its devices are well"
    return explanation("Pod", pod, verdict, summary, (*stuck, *sick, *hidden, *unused_claims(pod)))


def _ends(status: Object) -> Iterator[Finding]:
    """Why a pod failed: what its status says, then how its containers ended."""
    said = ": ".join(str(status[key]) for key in ("reason", "message") if status.get(key))
    if said:
        yield Finding("failed", said)
    for container in container_statuses(status):
        ended = (container.get("state") or {}).get("terminated") or {}
        if ended.get("exitCode"):
            reason = f" ({ended['reason']})" if ended.get("reason") else ""
            yield Finding(
                "failed", f"container {container['name']} ended with exit code {ended['exitCode']}{reason}"
            )


def made_claims(pod: Object, snapshot: Snapshot) -> list[Object]:
    """The claims of a pod that exist."""
    names = [entry.claim for entry in claim_entries(pod)] + [extended_claim(pod)]
    found = (snapshot.claim(pod["metadata"]["namespace"], name) for name in names if name)
    return [claim for claim in found if claim is not None]


def sick_devices(claims: Iterable[Object], snapshot: Snapshot) -> tuple[Finding, ...]:
    """What is wrong with the devices of this driver that these claims have: sick, or not published."""
    held = [one for claim in claims for one in allocated(claim)]
    if not held:
        return ()
    own = [one for one in snapshot.slices if one["spec"]["driver"] == DRIVER_NAME]
    devices = {
        (str(one["spec"]["pool"]["name"]), str(device["name"])): device
        for members in newest_slices(own).values()
        for one in members
        for device in one["spec"].get("devices") or ()
    }
    found = (_of_device(one, devices.get((one.pool, one.device))) for one in held)
    return tuple(dict.fromkeys(finding for findings in found for finding in findings))


def _of_device(held: Allocated, device: Object | None) -> Iterator[Finding]:
    node = node_of_pool(held.pool)
    if device is None:
        message = f"claim {held.claim} has {held.device} of {node}, which is not published any more"
        yield Finding(SICK, message, f"`gpuctl doctor {node}` looks for the reason")
        return
    taints = [one for one in taints_of(device) if one.effect != "None"]
    remedy = leading(taints)
    index, address = attribute(device, "index"), address_of(device)
    gpu = address if index is None else f"GPU {index} ({address})"
    if remedy is not None and remedy.action is not None:
        words = ", ".join(map(str, taints))
        message = f"claim {held.claim} has {held.device} on {gpu} of {node}: {remedy.meaning} ({words})"
        yield Finding(SICK, message, remedy.todo)
    elif held.trouble is not None:
        yield Finding(SICK, f"claim {held.claim} cannot use {held.device} on {gpu} of {node}: {held.trouble}")
