"""Measures what a pod costs the scheduler of Kubernetes, for each way to offer GPUs.

The control plane is real. The nodes are only objects, with the slices that the driver would publish. The
scheduler starts once all pods and claims exist, so that only its own pace counts.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import click

from driver.devices.names import pool_name
from envtest.client import paths
from envtest.client.api import ApiClient
from envtest.real import commands, control_plane, nodes
from envtest.real.build import VERSIONS
from envtest.real.cluster import RealCluster
from envtest.real.startup import start_cluster
from gpuctl.plan.planned import plan_node
from gpuctl.simulate.cluster import load_classes
from tools.bench.process_use import cpu_seconds
from tools.bench.table import Spread, on_this_machine

Object = dict[str, Any]

MACHINE = "hgx-h100"
# Clients that create objects at once. More would only take processor time from the API server.
CLIENTS = 4
# A scheduler that binds no pod for so long has given up on the remaining ones.
_STALLED_SECONDS = 15.0
# Name of the mode -> at most how much processor time of whole GPUs a pod may take, with _LIMITED_KUBERNETES.
_LIMITS = {"layout": 1.6, "dynamic-1g-2g-3g": 4.2}
_LIMITED_KUBERNETES = "1.37"
# The size of a cluster at which all modes are measured.
_NODES_OF_ALL = 100

# Fewer than the eight GPUs of a node, so that whole GPUs do not run out.
_PODS_PER_NODE = 6
_MOST_PODS = 400
_READY = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "an object alone"}
_PLENTY = {"cpu": "1024", "memory": "4096Gi", "pods": "1000"}


@dataclass(frozen=True, slots=True)
class Mode:
    """A way in which the GPUs of a node are offered, and the class that the pods ask for.

    ``says`` describes it in the table. ``mig`` is what the node configuration says of MIG, empty without one.
    ``all_sizes`` is whether it is measured on clusters of all sizes.
    """

    name: str
    says: str
    device_class: str
    mig: str = ""
    all_sizes: bool = False


_LAYOUT, _ANY = "{layout: all-1g}", "mig.nvidia.com"
MODES = (
    Mode("whole", "whole GPUs", "gpu.nvidia.com", all_sizes=True),
    Mode("layout", "layout all-1g, any partition", _ANY, _LAYOUT, all_sizes=True),
    Mode("layout-by-need", "layout all-1g, mig-small", "mig-small", _LAYOUT),
    Mode("dynamic-1g", "dynamic, 1g alone", _ANY, "{dynamic: {profiles: [1g]}}"),
    Mode("dynamic-1g-2g-3g", "dynamic, 1g, 2g and 3g", _ANY, "{dynamic: {profiles: [1g, 2g, 3g]}}"),
    Mode("dynamic", "dynamic, 1g to 4g", _ANY, "dynamic", all_sizes=True),
)


def _node_names(count: int) -> list[str]:
    return [f"bench-{index:03d}" for index in range(count)]


def _create_all(api: ApiClient, objects: Iterable[Object]) -> None:
    """Create objects over several connections at once; raises the error of the first that fails."""
    with ThreadPoolExecutor(CLIENTS) as clients:
        list(clients.map(api.create, objects))


def _create_nodes(api: ApiClient, names: Iterable[str]) -> None:
    """Create nodes that are ready, without the not-ready taint that the API server gives to new nodes."""

    def create(name: str) -> None:
        api.create(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
                "status": {"capacity": _PLENTY, "allocatable": _PLENTY, "conditions": [_READY]},
            }
        )
        api.patch(paths.node(name), {"spec": {"taints": None}})

    with ThreadPoolExecutor(CLIENTS) as clients:
        list(clients.map(create, names))


def slices(mode: Mode, names: Iterable[str]) -> list[Object]:
    """The slices that the driver would publish on these nodes, all with the same machine."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        file = Path(folder) / "node.yaml"
        file.write_text(f"version: v1\nrules:\n  - mig: {mode.mig}\n")
        plan = plan_node(MACHINE, "node", file if mode.mig else None)
    return [
        {
            **one,
            "metadata": {"name": f"{name}-{index}"},
            "spec": {
                **one["spec"],
                "nodeName": name,
                "pool": {**one["spec"]["pool"], "name": pool_name(name)},
            },
        }
        for name in names
        for index, one in enumerate(plan.slices)
    ]


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast the scheduler was: ``bound`` pods in ``seconds``, counted from its first write to a claim.

    ``processor_seconds`` is the processor time that it used meanwhile. Other work on the machine hardly
    changes it, while it makes everything slower.
    """

    bound: int
    seconds: float
    processor_seconds: float


@contextmanager
def control_plane_alone(kubernetes: str) -> Iterator[RealCluster]:
    """etcd and the API server, with the shipped DeviceClasses; no scheduler, controller or kubelet runs.

    A controller manager would mark the nodes as unreachable, since no kubelet reports them.
    """
    with start_cluster(kubernetes=kubernetes) as cluster:
        (node,) = cluster.nodes
        for name in (
            *(control_plane.SCHEDULER, control_plane.CONTROLLER_MANAGER),
            *(nodes.kubelet_name(node), nodes.containerd_name(node)),
        ):
            cluster.processes.named(name).kill()
        cluster.api.delete(paths.node(node.name))
        cluster.api.apply(load_classes(()))
        yield cluster


def pods_with_claims(device_class: str, count: int) -> tuple[list[Object], list[Object]]:
    """Claims for one device each, and pods that name them; no controller has to make claims of templates."""
    exactly = {"deviceClassName": device_class}
    claims = [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": f"claim-{index}"},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
        }
        for index in range(count)
    ]
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"pod-{index}"},
            "spec": {
                "automountServiceAccountToken": False,
                "containers": [
                    {"name": "main", "image": "unused", "resources": {"claims": [{"name": "gpu"}]}}
                ],
                "resourceClaims": [{"name": "gpu", "resourceClaimName": f"claim-{index}"}],
            },
        }
        for index in range(count)
    ]
    return claims, pods


def measure(
    cluster: RealCluster, slices: Iterable[Object], device_class: str, count: int, limit: float
) -> Pace:
    """Let a new scheduler place ``count`` pods, for at most ``limit`` seconds, and delete them again.

    All objects exist before the scheduler starts, so that the clients which create them do not slow it down.
    Raises RuntimeError if it gives up on pods, TimeoutError if it never begins.
    """
    api = cluster.api
    claims, pods = pods_with_claims(device_class, count)
    _create_all(api, slices)
    _create_all(api, claims)
    _create_all(api, pods)
    try:
        return _work_off(cluster, count, limit)
    finally:
        _clear(cluster, claims)


def _work_off(cluster: RealCluster, count: int, limit: float) -> Pace:
    described = cluster.described
    arguments = commands.kube_scheduler(described.layout, described.slot)
    binary = described.assets.binary(control_plane.SCHEDULER)
    claims = _changes(cluster.api, paths.resource_claim())
    bound = _changes(cluster.api, paths.pod(), fieldSelector="spec.nodeName!=")
    scheduler = cluster.processes.start(control_plane.SCHEDULER, [binary, *arguments])
    try:
        next(claims)
        begun, used = time.perf_counter(), cpu_seconds(scheduler.host_pid)
        times = _times(bound, begun, count, limit)
        return Pace(len(times), max(times) - begun, cpu_seconds(scheduler.host_pid) - used)
    finally:
        scheduler.kill()
        claims.close()
        bound.close()


def _changes(api: ApiClient, path: str, **query: str) -> Generator[str]:
    """The names of the objects that change from now on; raises TimeoutError if none does for long."""

    def watched(version: str) -> Generator[str]:
        while True:
            # The API server ends a watch whose reader is too slow; the next one continues where it ended.
            since = {"watch": "true", "resourceVersion": version, **query}
            with api.stream("GET", path, query=since, timeout_seconds=_STALLED_SECONDS) as lines:
                for line in lines:
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        raise RuntimeError(f"the watch of {path} failed: {event['object']}")
                    version = event["object"]["metadata"]["resourceVersion"]
                    yield event["object"]["metadata"]["name"]

    return watched(api.get(path)["metadata"]["resourceVersion"])


def _times(bound: Iterable[str], begun: float, count: int, limit: float) -> list[float]:
    """When each pod was bound; later changes of a bound pod do not count."""
    times: dict[str, float] = {}
    try:
        for name in bound:
            now = time.perf_counter()
            times.setdefault(name, now)
            if len(times) == count or now - begun > limit:
                break
    except TimeoutError as error:
        raise RuntimeError(
            f"the scheduler bound {len(times)} of {count} pods, and then none for {_STALLED_SECONDS:g} s"
        ) from error
    return list(times.values())


def _clear(cluster: RealCluster, claims: Sequence[Object]) -> None:
    """Remove pods, claims and slices."""
    # The scheduler adds a finalizer to each claim that it allocates. A controller usually removes it once no
    # pod uses the claim, but none runs here.
    api = cluster.api
    api.request("DELETE", paths.pod(), {"gracePeriodSeconds": 0})

    def remove(claim: Object) -> None:
        path = paths.resource_claim(claim["metadata"]["name"])
        api.patch(path, {"metadata": {"finalizers": None}})
        api.delete(path)

    with ThreadPoolExecutor(CLIENTS) as clients:
        list(clients.map(remove, claims))
    api.request("DELETE", paths.resource_slice())


@dataclass(frozen=True, slots=True)
class Rounds:
    """Several rounds of one mode: the processor time of a pod, and the median of pods bound in a second."""

    processor_ms_per_pod: Spread
    pods_per_second: float

    @classmethod
    def of(cls, paces: Sequence[Pace]) -> Self:
        """What the rounds gave."""
        processor = Spread.of([1000 * pace.processor_seconds / pace.bound for pace in paces])
        return cls(processor, statistics.median(pace.bound / pace.seconds for pace in paces))


def _paces(cluster: RealCluster, count: int, rounds: int, seconds: float) -> dict[str, Rounds]:
    """Name of the mode -> the medians of several rounds, on ``count`` nodes.

    Each round begins with another mode, so that no mode is always the first on a fresh server, or the last.
    """
    names = _node_names(count)
    pods = min(count * _PODS_PER_NODE, _MOST_PODS)
    modes = [mode for mode in MODES if mode.all_sizes or count == _NODES_OF_ALL]
    found: dict[str, list[Pace]] = {mode.name: [] for mode in modes}
    for number in range(rounds):
        first = number % len(modes)
        for mode in (*modes[first:], *modes[:first]):
            pace = measure(cluster, slices(mode, names), mode.device_class, pods, seconds)
            found[mode.name].append(pace)
            click.echo(f"  {count} nodes, {mode.says}: {pace.bound} pods in {pace.seconds:.2f} s", err=True)
    return {name: Rounds.of(paces) for name, paces in found.items()}


def _of_whole(mode: str, by_mode: dict[str, Rounds]) -> float:
    """The processor time of a pod in this mode, compared with a pod that takes a whole GPU."""
    return by_mode[mode].processor_ms_per_pod.median / by_mode["whole"].processor_ms_per_pod.median


def broken(found: dict[int, dict[str, Rounds]]) -> list[str]:
    """A sentence for each limit that is not met, and each size of cluster at which it is not."""
    return [
        f"{mode} takes {ratio:.2f} of the processor time of whole GPUs on {count} nodes, more than {most:g}"
        for count, by_mode in found.items()
        for mode, most in _LIMITS.items()
        if mode in by_mode and (ratio := _of_whole(mode, by_mode)) > most
    ]


def print_table(found: dict[int, dict[str, Rounds]], kubernetes: str) -> None:
    """Print the processor time of a pod, its ratio to whole GPUs, and pods a second, as Markdown."""
    heads = ("Kubernetes " + kubernetes, *(f"{count} nodes" for count in found))
    print("| " + " | ".join(heads) + " |")
    print("|" + "---|" * len(heads))
    for mode in MODES:
        cells = [_cell(mode.name, by_mode) if mode.name in by_mode else "" for by_mode in found.values()]
        print("| " + " | ".join((mode.says, *cells)) + " |")
    print(
        "\nProcessor time of a pod in the scheduler (10th to 90th percentile; of whole GPUs), pods a second."
    )
    print(f"{MACHINE} with 8 GPUs on each node. {on_this_machine(kubernetes)}\n")


def _cell(mode: str, by_mode: dict[str, Rounds]) -> str:
    spread = by_mode[mode].processor_ms_per_pod
    range_of = f"{spread.low:.1f} to {spread.high:.1f}; {_of_whole(mode, by_mode):.2f}"
    return f"{spread.median:.1f} ms ({range_of}), {by_mode[mode].pods_per_second:.0f}/s"


@click.command()
@click.option(
    "--kubernetes",
    "versions",
    type=click.Choice(list(VERSIONS)),
    multiple=True,
    default=list(VERSIONS),
    show_default=True,
    help="The minor version; may be given several times.",
)
@click.option(
    "--nodes",
    type=click.IntRange(1),
    multiple=True,
    default=(10, 30, 100, 300),
    show_default=True,
    help="The size of the cluster; may be given several times.",
)
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True, help="Rounds per size.")
@click.option("--seconds", type=float, default=10.0, show_default=True, help="Limit of one measurement.")
def main(versions: tuple[str, ...], nodes: tuple[int, ...], rounds: int, seconds: float) -> None:
    """Measure the real scheduler (root); exits 1 when a pod takes more of its time than the limits allow."""
    problems: list[str] = []
    for kubernetes in versions:
        found: dict[int, dict[str, Rounds]] = {}
        with control_plane_alone(kubernetes) as cluster:
            made = 0
            for count in sorted(nodes):
                _create_nodes(cluster.api, _node_names(count)[made:])
                made = count
                found[count] = _paces(cluster, count, rounds, seconds)
        print_table(found, kubernetes)
        problems += broken(found) if kubernetes == _LIMITED_KUBERNETES else []
    for problem in problems:
        click.echo(problem, err=True)
    if problems:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
