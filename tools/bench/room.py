"""Measures the search for room: on full nodes, and for many pods that wait in a large cluster.

All times are of the processor, and of one core.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

import click

from kubernetes_rules.allocator.allocate import Allocator
from kubernetes_rules.preemption.choose import best_room
from kubernetes_rules.preemption.cluster import Cluster
from kubernetes_rules.preemption.preference import Budgets
from kubernetes_rules.preemption.room import smallest_room
from kubernetes_rules.preemption.units import Unit, units_of
from tools.conformance.allocation.objects import (
    NODE,
    claim,
    device_class,
    devices,
    exactly,
    held,
    node,
    published,
)
from tools.conformance.nodes import mig_nodes
from tools.conformance.nodes.mig_area import CLASSES, OWN
from tools.conformance.room.random_rooms import pod, used_by

Object = dict[str, Any]

MOST_MS = 100
"""How long a node may take."""
NODES, GPUS, PENDING = 1_000, 8, 5_000
_ROUNDS = 5
_GPU = f"{OWN}.type == 'gpu'"
_SHARES = "offer: whole, shared: [{strategy: TimeSlicing, shares: 25}]"


def full_nodes() -> Iterator[tuple[str, str, str, Object, Sequence[tuple[str, list[Object]]]]]:
    """What a node has, its machine and rule, the request that fills it, and what is asked for then."""
    one = exactly("r", _GPU)
    yield (
        "16 GPUs",
        "dgx2",
        "offer: whole",
        one,
        [
            ("one GPU", [claim(one)]),
            ("8 GPUs", [claim(exactly("r", _GPU, count=8))]),
            ("8 claims for a GPU", [claim(one, name=f"c{n}") for n in range(8)]),
        ],
    )
    small, large = (
        exactly("r", f"{OWN}.?profile.orValue('') == '{name}'") for name in ("1g.10gb", "3g.40gb")
    )
    ten = {**small, "exactly": {**small["exactly"], "count": 10}}
    asked = [("a partition", [claim(small)]), ("3g.40gb", [claim(large)]), ("10 partitions", [claim(ten)])]
    yield "56 partitions", "hgx-h100", "mig: dynamic", small, asked
    yield (
        "400 shares",
        "dgx2",
        _SHARES,
        _shares(1),
        [
            ("one share", [claim(_shares(1))]),
            ("10 of a GPU", [claim(_shares(10))]),
            ("5 of each of 3 GPUs", [claim(_shares(5, count=3))]),
        ],
    )


def _shares(number: int, **fields: Any) -> Object:
    return exactly("r", "true", capacity={"requests": {"shares": str(number)}}, **fields)


def main() -> bool:
    """Print a table; returns whether all limits are met."""
    print("| node | asked for | victims | time | limit | met |")
    print("|---|---|---|---|---|---|")
    met = [
        _measure(name, what, allocator, units, wanted)
        for name, machine, rule, filling, asked in full_nodes()
        for allocator, units in [_filled(machine, rule, filling)]
        for what, wanted in asked
    ]
    return all([*met, _many_pods()])


def _measure(name: str, what: str, allocator: Allocator, units: Sequence[Unit], wanted: list[Object]) -> bool:
    budgets = Budgets()
    found = smallest_room(allocator, node(), wanted, units, budgets)
    if found is None or not found.is_exact:
        raise SystemExit(f"{name}, {what}: no exact answer")
    ms = _milliseconds(lambda: smallest_room(allocator, node(), wanted, units, budgets))
    met = ms <= MOST_MS
    print(f"| {name} | {what} | {len(found.units)} | {ms:.1f} ms | {MOST_MS} ms | {'yes' if met else 'NO'} |")
    return met


def _filled(machine: str, rule: str, filling: Object) -> tuple[Allocator, Sequence[Unit]]:
    """A node that claims with this request fill, each used by a pod of its own."""
    rng = Random(1)  # noqa: S311 - no secret
    slices = mig_nodes.slices(mig_nodes.offers(machine, mig_nodes.one_rule(rule), "delivered"))
    allocator, pods, claims = Allocator(slices, CLASSES, []), list[Object](), list[Object]()
    while found := allocator.allocate(node(), [claim(filling)]):
        one = pod(f"p{len(pods)}", rng.choice((0, 0, 0, 1, 5, 1000)), rng.randint(1, 28))
        bare = {**claim(filling, name=f"c{len(pods)}"), "status": {"allocation": found[0]}}
        claims.append(used_by(bare, one))
        pods.append(one)
        allocator.assume(claims[-1])
    return allocator, units_of(pods, claims).on_node[NODE]


def _many_pods() -> bool:
    """What pods cost that all ask for a GPU of a full cluster: the first, one more, and a changed node."""
    rng = Random(1)  # noqa: S311 - no secret
    names = [f"node-{n}" for n in range(NODES)]
    running = [pod(f"p{name}-{gpu}", rng.randrange(50)) for name in names for gpu in range(GPUS)]
    for number, one in enumerate(running):
        one["spec"]["nodeName"] = names[number // GPUS]
    claims = [
        used_by(held(f"gpu-{n % GPUS}", pool=names[n // GPUS], name=f"c{n}"), one)
        for n, one in enumerate(running)
    ]
    pending = [pod(f"w{n}", 1000) for n in range(PENDING)]
    for number, one in enumerate(pending):
        one["spec"] = {
            "containers": [],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": f"w{number}"}],
        }
    claims += [claim(exactly(), name=f"w{n}") for n in range(PENDING)]
    slices = [published(devices(GPUS), name=name, pool=name, nodeName=name) for name in names]
    nodes, classes = [node(name) for name in names], [device_class()]
    cluster = Cluster(nodes, slices, classes, claims, [*running, *pending])

    def decide(some: Sequence[Object], known: Cluster) -> float:
        return _once(lambda: [_decided(known, one) for one in some])

    first, rest = decide(pending[:1], cluster), decide(pending, cluster)
    running[0] = dict(running[0])
    snapshots: list[Cluster] = []
    again = _once(
        lambda: snapshots.append(
            Cluster(nodes, slices, classes, claims, [*running, *pending], before=cluster)
        )
    )
    changed = decide(pending[:1], snapshots[0])
    print(f"\n{NODES:,} full nodes with {GPUS} GPUs, {PENDING:,} pods that wait for one:")
    print(
        f"the first decision {first:.0f} ms, all others {rest:.0f} ms together, "
        f"a new snapshot {again:.0f} ms, the decision after a change on one node {changed:.1f} ms"
    )
    return rest <= MOST_MS * 10


def _decided(cluster: Cluster, one: Object) -> str:
    asked = cluster.asked(one)
    return asked if isinstance(asked, str) else best_room(cluster, asked, _anybody).kind


def _anybody(_: Unit) -> bool:
    return True


def _once(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return (time.process_time() - started) * 1000


def _milliseconds(work: Callable[[], object]) -> float:
    return statistics.median(_once(work) for _ in range(_ROUNDS))


@click.command()
def command() -> None:
    """Measure how long it takes to find who has to go; exits 1 if a limit is not met."""
    if not main():
        raise SystemExit(1)


if __name__ == "__main__":
    command()
