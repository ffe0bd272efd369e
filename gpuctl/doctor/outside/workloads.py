"""Checks the driver's own pods: workloads, images, restarts, and the warnings that they reported."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import datetime

from gpuctl.cli.cluster import Object, event_time
from gpuctl.doctor.check import Finding, check, counted, fail, ok, require, skipped, warn
from gpuctl.doctor.outside.programs import ours, programs_of, workload_programs
from gpuctl.doctor.outside.publishing import publishing_nodes
from gpuctl.doctor.outside.seen import ClusterSeen, name_of, namespace_of
from gpuctl.fleet.pods import stuck_containers

RECENT_SECONDS = 3600.0
_SHOWN_CHARACTERS = 200


@check(
    "workloads",
    "DaemonSets and Deployments that run the driver's programs",
    "there are none and nothing is published, or some of their pods are not ready",
)
def _workloads(seen: ClusterSeen) -> Finding:
    workloads = (*require(seen.daemon_sets), *require(seen.deployments))
    own = [one for one in workloads if workload_programs(one)]
    running = {program for one in own for program in workload_programs(one)}
    missing = [name for name in ("controller", "kubeletplugin") if name not in running]
    if missing:
        what = f"no DaemonSet runs {' and '.join(f'gpu-dra-{name}' for name in missing)}"
        if publishing_nodes(seen):
            return warn(what, "nothing, if the driver runs outside of pods; else install it again")
        return fail(what, "install the driver")
    lines = [line for one in own for line in _behind(one)]
    if lines:
        return fail(
            f"{counted(len(lines), 'workload')} of the driver not ready",
            "kubectl describe their pods; this passes while they start or are updated",
            lines,
        )
    return ok(f"ready: {', '.join(sorted(name_of(one) for one in own))}")


def _behind(workload: Object) -> Iterator[str]:
    """How many pods of a DaemonSet or a Deployment are not ready; nothing if all are."""
    status, name = workload.get("status") or {}, f"{namespace_of(workload)}/{name_of(workload)}"
    if workload.get("kind") == "DaemonSet":
        wanted, ready = status.get("desiredNumberScheduled", 0), status.get("numberReady", 0)
    else:
        wanted, ready = workload["spec"].get("replicas", 1), status.get("readyReplicas", 0)
    if ready < wanted:
        yield f"{name}: {ready} of {wanted} pods are ready"


@check(
    "images",
    "the images of the driver's pods",
    "never; warns if there are several",
)
def _images(seen: ClusterSeen) -> Finding:
    images: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for pod in ours(require(seen.pods)):
        for program, container in programs_of(pod["spec"]).items():
            images[str(container.get("image"))][program] += 1
    if not images:
        return skipped("no pods of the driver were found")
    lines = [
        f"{image}: {', '.join(f'{number} x {program}' for program, number in sorted(found.items()))}"
        for image, found in sorted(images.items())
    ]
    if len(images) > 1:
        return warn(
            f"the driver's pods run {len(images)} images",
            "this passes with a rolling update; pods with the update strategy OnDelete have to "
            "be deleted by you, those of MPS once no pod has a share",
            lines,
        )
    return ok(f"all pods of the driver run {next(iter(images))}")


@check(
    "restarts",
    "the driver's containers that wait to run, or ended within the last hour",
    "one cannot run; warns about those that restarted",
)
def _restarts(seen: ClusterSeen) -> Finding:
    pods = ours(require(seen.pods))
    if not pods:
        return skipped("no pods of the driver were found")
    stuck, restarted = [], []
    for pod in pods:
        name = f"{namespace_of(pod)}/{name_of(pod)} on {pod['spec'].get('nodeName', 'no node')}"
        waiting = [f"{name}: {one}" for one in stuck_containers(pod)]
        stuck += waiting
        restarted += [
            f"{name}: {status['name']}: {ended}"
            for status in (pod.get("status") or {}).get("containerStatuses") or ()
            if not waiting and (ended := _ended_lately(status, seen.now))
        ]
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
    return ok("no container of the driver restarted within the last hour")


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


@check(
    "warnings",
    "Warning events of the driver's processes within the last hour",
    "never; warns about each",
)
def _warnings(seen: ClusterSeen) -> Finding:
    recent = [
        one
        for one in sorted(require(seen.events), key=event_time)
        if (when := _seconds(event_time(one))) is not None and seen.now - when <= RECENT_SECONDS
    ]
    if not recent:
        return ok("the driver's processes reported no warning within the last hour")
    # Sorted by time: a later event about the same thing replaces an earlier one.
    newest: dict[tuple[str, str], str] = {}
    for one in recent:
        about = one.get("involvedObject") or {}
        place = "/".join(filter(None, (about.get("namespace"), about.get("name"))))
        words = " ".join(str(one.get("message") or "").split())[:_SHOWN_CHARACTERS]
        newest[str(one.get("reason")), place] = f"{place}: {one.get('reason')}: {words}"
    return warn(
        f"the driver's processes have warned of {counted(len(newest), 'thing')} within the last hour",
        "the messages say what to do; docs/errors-and-events.md lists all events",
        list(newest.values()),
    )


@check(
    "releases",
    "the namespaces in which the driver is installed",
    "there are several",
)
def _releases(seen: ClusterSeen) -> Finding:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for one in require(seen.daemon_sets):
        for program in workload_programs(one):
            found[program].append(f"{namespace_of(one)}/{name_of(one)}: {program}")
    spaces = {line.partition("/")[0] for lines in found.values() for line in lines}
    if not spaces:
        return skipped("no DaemonSet of the driver was found")
    if len(spaces) > 1:
        return fail(
            f"the driver is installed in {len(spaces)} namespaces, but a node can have it only once",
            "uninstall all but one",
            [line for lines in found.values() for line in sorted(lines)],
        )
    return ok(f"the driver is installed once, in the namespace {spaces.pop()}")


def _seconds(time: str) -> float | None:
    """A time of the API in seconds since 1970; None for an empty text, or one that is not a time."""
    try:
        return datetime.fromisoformat(time).timestamp()
    except ValueError:
        return None


WORKLOAD_CHECKS = (_workloads, _releases, _images, _restarts, _warnings)
