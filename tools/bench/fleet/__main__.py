"""Runs the driver's publishing and watching parts for many nodes against a real API server and etcd.

The nodes are only objects. Everything happens to all of them in the same moment, which is harder than in a
real cluster, and their parts share the processor cores with the control plane.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from driver.devices.names import DRIVER_NAME, gpu_device_name
from driver.kube.client import KubeClient
from envtest.client import paths
from envtest.real.build import DEFAULT_KUBERNETES
from envtest.real.cluster import RealCluster
from fakegpu.machine.fake_machine import FakeMachine
from gpuctl.demo.driver_node import DRIVER_NAMESPACE, apply_manifests
from gpuctl.plan.planned import plan_node
from tools.bench.fleet.control_plane import Figures, read_figures
from tools.bench.fleet.nodes import Member
from tools.bench.fleet.observed import LIMIT_SECONDS, Object, ObservedSlices
from tools.bench.scheduler import CLIENTS, control_plane_alone, pods_with_claims
from tools.bench.table import on_this_machine

MACHINE = "hgx-h100"
BEFORE = "version: v1\nrules: []\n"
AFTER = "version: v1\nrules:\n  - mig: {layout: all-balanced}\n"
MODELLED_NODES = 5_000
FAULTY = 10
"""Every tenth node has a fault."""

_WATCHES = 3
"""Of a node: the controller's of the Node and of its slices, and the plugin's of the same slices."""

_PROCESSES = 4
_SETTLE_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Event:
    """What happened to all nodes, the seconds until everything was right, and what it took.

    ``before`` is None if the API server was started meanwhile, with which its counters begin.
    """

    what: str
    seconds: float
    before: Figures | None
    after: Figures

    @property
    def control_plane_seconds(self) -> float:
        """The processor time of API server and etcd."""
        return self.after.seconds_since(self.before) if self.before else self.after.api_server_seconds


class Fleet:
    """The nodes' processes, the control plane and the slices in it."""

    def __init__(
        self, cluster: RealCluster, members: Sequence[Member], configuration: Path, observed: ObservedSlices
    ) -> None:
        self.cluster, self.members, self.observed = cluster, members, observed
        self._configuration = configuration
        self._gpu = gpu_device_name(min(FakeMachine.open(MACHINE).state.gpus))
        self.events: list[Event] = []
        self._configure(BEFORE)
        parts = [members[number::_PROCESSES] for number in range(min(_PROCESSES, len(members)))]
        self._processes = [_start(part, configuration) for part in parts]
        self._wait_done()

    def _configure(self, text: str) -> None:
        self._configuration.write_text(text)
        self._specs = [one["spec"] for one in plan_node(MACHINE, "node", self._configuration).slices]

    def expect(self, *, faults: bool = False, written_again: bool = False) -> None:
        """Expect what the configuration says, with taints on one GPU of each faulty node if ``faults``."""
        names = {device["name"] for spec in self._specs for device in spec.get("devices", ())}
        sick = frozenset(name for name in names if name.startswith(self._gpu))
        tainted = {member.name: sick for member in self.members if faults and member.is_faulty}
        self.observed.expect(self._specs, tainted, written_again=written_again)

    def tell(self, word: str) -> None:
        """Send all processes a word, and wait until they have obeyed."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(f"{word}\n")
            process.stdin.flush()
        self._wait_done()

    def _wait_done(self) -> None:
        for process in self._processes:
            assert process.stdout is not None
            if process.stdout.readline() != "done\n":
                raise RuntimeError("a process of the nodes has ended, see its messages above")

    @contextmanager
    def event(self, what: str, *, restarts: bool = False) -> Iterator[None]:
        """Let the block happen to all nodes, and wait until all slices are right."""
        before = read_figures(self.cluster)
        began = time.monotonic()
        yield
        seconds = self.observed.seconds_until_right(began)
        after = read_figures(self.cluster)
        self.events.append(Event(what, seconds, None if restarts else before, after))
        click.echo(f"  {what}: {seconds:.1f} s", err=True)

    def change_configuration(self) -> None:
        """Change the configuration of all nodes."""
        self._configure(AFTER)
        self.expect()
        self.tell("check")

    def delete_slices(self) -> None:
        """Delete the slices of all nodes, as their kubelets do when they start."""
        self.expect(written_again=True)

        def delete(member: Member) -> None:
            query = {"fieldSelector": f"spec.nodeName={member.name}"}
            self.cluster.api.request("DELETE", paths.resource_slice(), query=query)

        with ThreadPoolExecutor(CLIENTS) as clients:
            list(clients.map(delete, self.members))

    def restart_api_server(self) -> None:
        """Kill the API server and start it again; returns when all watches are open again."""
        self.cluster.stop_api_server()
        self.cluster.start_api_server()
        while (missing := self.missing_watches()) > 0:
            click.echo(f"  {missing} watches are missing", err=True)
            time.sleep(1)

    def missing_watches(self) -> int:
        """How many watches of the nodes are not open; those of the API server itself count as theirs."""
        return _WATCHES * len(self.members) - read_figures(self.cluster).watches

    def close(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.kill()
            process.wait()


def _start(members: Sequence[Member], configuration: Path) -> subprocess.Popen[str]:
    command = (sys.executable, "-m", "tools.bench.fleet.nodes")
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    given = {"machine": MACHINE, "configuration": str(configuration), "members": list(map(asdict, members))}
    process.stdin.write(json.dumps(given) + "\n")
    process.stdin.flush()
    return process


def make_members(cluster: RealCluster, count: int) -> list[Member]:
    """Nodes without a kubelet, each with its own tokens for the driver's two processes."""

    def make(index: int) -> Member:
        name = f"fleet-{index:04d}"
        cluster.api.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        controller, plugin = (
            str(cluster.service_account_kubeconfig(DRIVER_NAMESPACE, account, name))
            for account in ("gpu-dra-controller", "gpu-dra-kubeletplugin")
        )
        return Member(name, controller, plugin, index % FAULTY == 0)

    with ThreadPoolExecutor(CLIENTS) as clients:
        return list(clients.map(make, range(count)))


def make_claims(cluster: RealCluster, count: int) -> None:
    """Claims that have a GPU of nodes which are not simulated."""

    def make(index: int, claim: Object) -> None:
        result = {"request": "gpu", "driver": DRIVER_NAME, "pool": f"other-{index}", "device": "gpu-0"}
        status = {"allocation": {"devices": {"results": [result]}}}
        path = paths.resource_claim(claim["metadata"]["name"])
        cluster.api.replace(f"{path}/status", {**cluster.api.create(claim), "status": status})

    claims, _ = pods_with_claims("gpu.nvidia.com", count)
    with ThreadPoolExecutor(CLIENTS) as clients:
        list(clients.map(make, range(count), claims))


def measure(fleet: Fleet, rest_seconds: float) -> tuple[Figures, Figures, Figures]:
    """Let everything happen to the nodes; the figures before the start, and before and after the rest."""
    empty = read_figures(fleet.cluster)
    fleet.expect()
    with fleet.event("cold start"):
        fleet.tell("start")
    time.sleep(_SETTLE_SECONDS)
    awake = read_figures(fleet.cluster)
    time.sleep(rest_seconds)
    rested = read_figures(fleet.cluster)
    with fleet.event("restart of the API server", restarts=True):
        fleet.restart_api_server()
    with fleet.event("restart of all kubelets"):
        fleet.delete_slices()
    with fleet.event("configuration change everywhere"):
        fleet.change_configuration()
    with fleet.event(f"a fault on every {FAULTY}th node"):
        fleet.expect(faults=True)
        fleet.tell("fault")
    return empty, awake, rested


@dataclass(frozen=True, slots=True)
class Cost:
    """A line of the table. ``grows`` is whether it grows with the number of nodes."""

    what: str
    value: float
    unit: str = ""
    limit: float | None = None
    grows: bool = True
    base: float = 0.0

    def cells(self, factor: float) -> tuple[str, ...]:
        """The measured value, its limit, whether that holds, and the value for ``factor`` times the nodes."""
        limit = "" if self.limit is None else f"{self.limit:g} {self.unit}"
        met = "" if self.limit is None else "yes" if self.holds else "NO"
        modelled = f"{self.base + (self.value - self.base) * factor:,.0f} {self.unit}" if self.grows else ""
        return self.what, f"{self.value:,.1f} {self.unit}", limit, met, modelled

    @property
    def holds(self) -> bool:
        """Whether the limit is met."""
        return self.limit is None or self.value <= self.limit


def costs_at_rest(empty: Figures, awake: Figures, rested: Figures, seconds: float) -> list[Cost]:
    """What the nodes cost while nothing happens; ``empty`` is from before they were started."""
    others, watches = (rested.requests_since(awake, watches=one) * 60 / seconds for one in (False, True))
    return [
        Cost("at rest: requests other than watches in a minute", others, limit=0.0),
        Cost("at rest: watches that end and begin again in a minute", watches),
        Cost("at rest: API server and etcd", rested.seconds_since(awake) / seconds * 100, "% of a core"),
        Cost("open watches", rested.watches - empty.watches),
        Cost("slices in etcd", (rested.etcd_bytes - empty.etcd_bytes) / 2**20, "MiB"),
        Cost("memory of the API server", rested.api_server_mib, "MiB", base=empty.api_server_mib),
    ]


def costs_of(event: Event, count: int) -> list[Cost]:
    """What an event cost, and how soon all slices of ``count`` nodes were right again."""
    sent = event.after.requests - (event.before.requests if event.before else Counter())
    others = sum(number for (verb, _), number in sent.items() if verb != "WATCH")
    rejected = event.after.rejected - (event.before.rejected if event.before else 0.0)
    return [
        Cost(f"{event.what}: all right after", event.seconds, "s", LIMIT_SECONDS, grows=False),
        Cost("… requests of a node", others / count, grows=False),
        Cost("… refused with 429", rejected, grows=False),
        Cost("… API server and etcd", event.control_plane_seconds, "core seconds"),
    ]


def print_table(costs: Sequence[Cost], count: int) -> None:
    """Print the costs as Markdown, with the model for more nodes."""
    print(f"| what | {count:,} nodes | limit | met | {MODELLED_NODES:,} nodes |\n|---|---|---|---|---|")
    for cost in costs:
        print("| " + " | ".join(cost.cells(MODELLED_NODES / count)) + " |")


@click.command()
@click.option("--kubernetes", default=DEFAULT_KUBERNETES, show_default=True, help="The minor version.")
@click.option("--nodes", type=click.IntRange(1), default=1000, show_default=True, help="How many nodes.")
@click.option("--rest-seconds", default=600.0, show_default=True, help="By default, each watch ends once.")
@click.option("--claims", type=click.IntRange(0), default=1000, show_default=True, help="Allocated claims.")
def main(kubernetes: str, nodes: int, claims: int, rest_seconds: float) -> None:
    """Measure what many nodes cost the control plane (root); exits 1 if a limit is not met."""
    stop = threading.Event()
    with control_plane_alone(kubernetes) as cluster, tempfile.TemporaryDirectory() as folder:
        apply_manifests(cluster)
        began = time.monotonic()
        members = make_members(cluster, nodes)
        make_claims(cluster, claims)
        click.echo(f"  nodes, tokens and claims made in {time.monotonic() - began:.0f} s", err=True)
        client = KubeClient.connect(cluster.admin, user_agent="bench-fleet")
        observed = ObservedSlices(client, (member.name for member in members), stop)
        watching = threading.Thread(target=observed.reflector.run, daemon=True)
        watching.start()
        observed.reflector.synced.wait()
        fleet = Fleet(cluster, members, Path(folder) / "node.yaml", observed)
        try:
            costs = costs_at_rest(*measure(fleet, rest_seconds), rest_seconds)
        finally:
            fleet.close()
            stop.set()
            observed.reflector.wake()
            client.close()
    costs += [cost for event in fleet.events for cost in costs_of(event, nodes)]
    print_table(costs, nodes)
    print(f"\n{claims} claims. {on_this_machine(kubernetes)}")
    sys.exit(0 if all(cost.holds for cost in costs) else 1)


if __name__ == "__main__":
    main()
