"""Measures the allocator: single cases compared with the oracle, and filling a large cluster pod by pod."""

from __future__ import annotations

import itertools
import json
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import click

from envtest.real.assets import find_assets
from gpuctl.node.planned import plan_node
from gpuctl.simulate.cluster import load_classes, planned_cluster
from gpuctl.simulate.simulation import Simulation
from gpuctl.simulate.workload import PodGroup
from kubernetes_rules.allocator.allocate import AllocationFailed, Allocator
from tools.conformance.area import Case
from tools.conformance.oracle import read_vectors

NODES, PODS = 5_000, 40_000
PODS_SECONDS = 300.0
CASES, ROUNDS = 400, 5


def main(oracle: Path) -> bool:
    """Print a table; returns whether all limits are met."""
    cases = list(itertools.islice((case for case, _ in read_vectors("allocation")), CASES))
    theirs, ours = _oracle_microseconds(oracle, cases), _our_microseconds(cases)
    seconds = fill_seconds()
    print("| what | the oracle | ours | ratio | limit | met |")
    print("|---|---|---|---|---|---|")
    print(f"| one allocation, JSON included | {theirs:.0f} µs | {ours:.0f} µs | {ours / theirs:.2f} | | |")
    met = seconds <= PODS_SECONDS
    what = f"{PODS:,} pods with a GPU each on {NODES:,} nodes with 8"
    print(f"| {what} | | {seconds:.1f} s | | {PODS_SECONDS:g} s | {'yes' if met else 'NO'} |")
    return met


def fill_seconds() -> float:
    """The seconds in which one core places single-GPU pods on a cluster until it is full."""
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
    group = PodGroup("single", PODS, ({"devices": {"requests": [request]}},))
    cluster = planned_cluster([(NODES, plan_node("hgx-h100", "node", None).slices)], load_classes(()))
    simulation = Simulation(cluster, [group], 1)
    started = time.perf_counter()
    result = simulation.run(lambda _: None)
    seconds = time.perf_counter() - started
    assert result.groups[0].placed == PODS
    return seconds


def _our_microseconds(cases: list[Case]) -> float:
    lines = [json.dumps(case) for case in cases]
    return statistics.median(_timed(lambda: [_answer(line) for line in lines]) for _ in range(ROUNDS)) / len(
        cases
    )


def _answer(line: str) -> str:
    """Do what the oracle does with a line: read it, allocate, write the answer."""
    case = json.loads(line)
    try:
        allocator = Allocator(
            case.get("slices") or (), case.get("classes") or (), case.get("allocated") or ()
        )
        return json.dumps(allocator.allocate(case["node"], case["claims"]))
    except AllocationFailed as error:
        return json.dumps(str(error))


def _oracle_microseconds(oracle: Path, cases: list[Case]) -> float:
    """The same time for the oracle, without that of starting its process."""
    text = "".join(f"{json.dumps(case)}\n" for case in cases)

    def run(given: str) -> float:
        return _timed(
            lambda: subprocess.run([oracle], input=given, capture_output=True, text=True, check=True)
        )

    whole = statistics.median(run(text) for _ in range(ROUNDS))
    return (whole - statistics.median(run("") for _ in range(ROUNDS))) / len(cases)


def _timed(work: Callable[[], object]) -> float:
    """The microseconds that the work takes."""
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) * 1e6


@click.command()
@click.option("--kubernetes", default="1.37", show_default=True, help="The minor version of the oracle.")
def command(kubernetes: str) -> None:
    """Compare the allocator with Kubernetes' own; exits 1 if a limit is not met."""
    if not main(find_assets(kubernetes).binary("oracle")):
        raise SystemExit(1)


if __name__ == "__main__":
    command()
