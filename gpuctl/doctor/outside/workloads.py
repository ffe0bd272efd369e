"""Checks the driver's own pods: workloads, images, restarts, and the warnings that they reported."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime

from driver.event_reasons import EventReason
from gpuctl.cli.cluster import Object, event_time
from gpuctl.cli.unread import Listed, Unread, items_of
from gpuctl.doctor.check import Finding, check, counted, fail, ok, require, warn
from gpuctl.doctor.outside.programs import ours, programs_of, workload_programs
from gpuctl.doctor.outside.publishing import own_slices, publishing_nodes
from gpuctl.doctor.outside.seen import ClusterSeen, name_of, namespace_of
from gpuctl.fleet.pods import stuck_containers

RECENT_SECONDS = 3600.0
_SHOWN_CHARACTERS = 200
_OF_PREPARE = ("PrepareWaits", "PrepareFailed")


def is_installed(seen: ClusterSeen) -> bool:
    """Whether the cluster has anything of the driver, or may have it where it cannot be read."""
    listed = (seen.daemon_sets, seen.deployments, seen.pods, seen.slices)
    if any(isinstance(one, Unread) for one in listed):
        return True
    workloads = (*items_of(seen.daemon_sets), *items_of(seen.deployments))
    return any(map(workload_programs, workloads)) or bool(ours(items_of(seen.pods))) or any(own_slices(seen))


@check
def workloads(seen: ClusterSeen) -> Finding:
    """The DaemonSets and Deployments that run the driver's programs.

    Fails if there are none and nothing is published, if they are in several namespaces, or if some of their
    pods are not ready.
    """
    daemon_sets, deployments = require(seen.daemon_sets), require(seen.deployments)
    own = [one for one in (*daemon_sets, *deployments) if workload_programs(one)]
    running = {program for one in own for program in workload_programs(one)}
    missing = [f"gpu-dra-{name}" for name in ("controller", "kubeletplugin") if name not in running]
    if missing and not is_installed(seen):
        return fail("the driver is not installed", "docs/install.md says how to install it")
    spaces = {namespace_of(one) for one in daemon_sets if workload_programs(one)}
    if len(spaces) > 1:
        return fail(
            f"the driver is installed in {len(spaces)} namespaces, but a node can have it only once",
            "uninstall all but one",
            sorted(f"{namespace_of(one)}/{name_of(one)}" for one in daemon_sets if workload_programs(one)),
        )
    pods = [one for one in ours(items_of(seen.pods)) if "kubeletplugin" in programs_of(one["spec"])]
    if not own and pods:
        # Pods of a DaemonSet end with it, so these were made one by one, as `gpuctl demo` does.
        return ok(f"no DaemonSet, but pods of their own: {', '.join(sorted(map(name_of, pods)))}")
    if missing:
        what = f"no DaemonSet runs {' and '.join(missing)}"
        if publishing_nodes(seen):
            return warn(what, "nothing, if the driver runs outside of pods; else install it again")
        return fail(what, "install it again")
    lines = [line for one in own for line in _behind(one)]
    if lines:
        return fail(
            f"{counted(len(lines), 'workload')} of the driver not ready",
            "kubectl describe their pods; this passes while they start or are updated",
            lines,
        )
    return ok(f"ready in {spaces.pop()}: {', '.join(sorted(name_of(one) for one in own))}")


def _behind(workload: Object) -> Iterator[str]:
    """How many pods of a DaemonSet or a Deployment are not ready; nothing if all are."""
    status, name = workload.get("status") or {}, f"{namespace_of(workload)}/{name_of(workload)}"
    if workload.get("kind") == "DaemonSet":
        wanted, ready = status.get("desiredNumberScheduled", 0), status.get("numberReady", 0)
    else:
        wanted, ready = workload["spec"].get("replicas", 1), status.get("readyReplicas", 0)
    if ready < wanted:
        yield f"{name}: {ready} of {wanted} pods are ready"


@check
def _driver_pods(seen: ClusterSeen) -> Finding:
    """The driver's pods: their images, and their containers that wait to run or ended within the last hour.

    Fails if one cannot run; warns about those that restarted, and if there are several images.
    """
    pods = require(ours(require(seen.pods)), "no pods of the driver were found")
    stuck, restarted = [], []
    images: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for pod in pods:
        name = f"{namespace_of(pod)}/{name_of(pod)} on {pod['spec'].get('nodeName', 'no node')}"
        waiting = [f"{name}: {one}" for one in stuck_containers(pod)]
        stuck += waiting
        restarted += [
            f"{name}: {status['name']}: {ended}"
            for status in (pod.get("status") or {}).get("containerStatuses") or ()
            if not waiting and (ended := _ended_lately(status, seen.now))
        ]
        for program, container in programs_of(pod["spec"]).items():
            images[str(container.get("image"))][program] += 1
    if stuck:
        return fail(
            f"{counted(len(stuck), 'container')} of the driver cannot run",
            "correct an image that cannot be pulled, and delete pods that keep the former one; "
            "`kubectl logs --previous` says why others ended",
            stuck,
        )
    if restarted:
        return warn(
            f"{counted(len(restarted), 'container')} of the driver restarted within the last hour",
            "`kubectl logs --previous` of these pods says why",
            restarted,
        )
    if len(images) > 1:
        return warn(
            f"the driver's pods run {len(images)} images",
            "this passes with an update; with OnDelete delete them, those of MPS once no pod has a share",
            [
                f"{image}: {', '.join(f'{number} x {program}' for program, number in sorted(found.items()))}"
                for image, found in sorted(images.items())
            ],
        )
    return ok(f"all pods of the driver run {next(iter(images))}, and none restarted within the last hour")


def _ended_lately(status: Object, now: float) -> str:
    """How a container ended within the last hour; empty if it did not."""
    # restartCount alone does not say when; lastState is how the run before this one ended.
    ended = (status.get("lastState") or {}).get("terminated") or {}
    finished = _seconds(str(ended.get("finishedAt") or ""))
    if not status.get("restartCount") or finished is None or now - finished > RECENT_SECONDS:
        return ""
    return (
        f"{ended.get('reason', 'ended')}, exit code {ended.get('exitCode')}, {status['restartCount']} times"
    )


@check
def _warnings(seen: ClusterSeen) -> Finding:
    """Warning events of the driver's processes within the last hour.

    Never fails; warns about each, but not about a fault or a prepare that is over, an object that is gone, or
    a claim that nobody waits for.
    """
    listed = require(seen.events)
    ends = [one for one in listed if one.get("reason") == EventReason.GPU_WELL.word]
    listable = {"Pod": seen.pods, "ResourceClaim": seen.claims}
    there = {kind: _uids(one) for kind, one in listable.items() if not isinstance(one, Unread)}
    newest: dict[tuple[str, str], str] = {}
    for one in sorted(listed, key=event_time, reverse=True):
        when = _seconds(event_time(one))
        if one.get("type") != "Warning" or when is None or seen.now - when > RECENT_SECONDS:
            continue
        is_over = one.get("reason") == EventReason.GPU_SICK.word and _is_over(one, ends)
        kind, _, _, uid = _about(one)
        if is_over or _is_past(one, seen) or (kind in there and uid not in there[kind]):
            continue
        about = one.get("involvedObject") or {}
        place = "/".join(filter(None, (about.get("namespace"), about.get("name"))))
        words = " ".join(str(one.get("message") or "").split())[:_SHOWN_CHARACTERS]
        newest.setdefault((str(one.get("reason")), place), f"{place}: {one.get('reason')}: {words}")
    if not newest:
        return ok("the driver's processes reported nothing within the last hour that is not over")
    return warn(
        f"the driver's processes have warned of {counted(len(newest), 'thing')} within the last hour",
        "the messages say what to do; docs/errors-and-events.md lists all events",
        list(newest.values()),
    )


def _is_past(event: Object, seen: ClusterSeen) -> bool:
    """Whether the event is about preparing a claim that has gone, or whose pods have all started since."""
    if event.get("reason") not in _OF_PREPARE or not isinstance(seen.pods, tuple):
        return False
    uid = (event.get("involvedObject") or {}).get("uid")
    users = {
        user.get("uid")
        for claim in items_of(seen.claims)
        if claim["metadata"].get("uid") == uid
        for user in (claim.get("status") or {}).get("reservedFor") or ()
    }
    waiting = (one for one in seen.pods if (one.get("status") or {}).get("phase", "Pending") == "Pending")
    return isinstance(seen.claims, tuple) and not any(one["metadata"].get("uid") in users for one in waiting)


def _uids(objects: Listed) -> set[str | None]:
    """The UIDs of these objects, and None, which an event has that does not say what it is about."""
    return {None, *(one["metadata"].get("uid") for one in items_of(objects))}


def _about(event: Object) -> tuple[str | None, ...]:
    about = event.get("involvedObject") or {}
    return tuple(about.get(name) for name in ("kind", "namespace", "name", "uid"))


def _is_over(sick: Object, ends: Iterable[Object]) -> bool:
    """Whether the faults that an event GpuSick tells of are over, as later events about its object say."""
    said = str(sick.get("message"))
    ended = [
        str(one.get("message"))
        for one in ends
        if _about(one) == _about(sick) and event_time(one) > event_time(sick)
    ]
    # On a Node: `GPU PCI: FAULT; ...`, then `GPU PCI: no longer true: FAULT`.
    faults = [text.replace("no longer true: ", "", 1) for text in ended]
    if said.startswith(tuple(f"{fault}{end}" for fault in faults for end in ":;")):
        return True
    # On a claim or a pod: `DEVICE: FAULT; DEVICE: FAULT`, then `DEVICE is healthy again`.
    well = {part.removesuffix(" is healthy again") for text in ended for part in text.split("; ")}
    # A fault may contain a semicolon, the name of a device no blank.
    devices = {name for part in said.split("; ") if " " not in (name := part.partition(": ")[0])}
    return bool(devices) and devices <= well


def _seconds(time: str) -> float | None:
    """A time of the API in seconds since 1970; None for an empty text, or one that is not a time."""
    try:
        return datetime.fromisoformat(time).timestamp()
    except ValueError:
        return None


WORKLOAD_CHECKS = (workloads, _driver_pods, _warnings)
