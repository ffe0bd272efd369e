"""Measures the allocator: single cases compared with the oracle, and filling large clusters pod by pod.

Placing a pod is compared with what the oracle takes for a single case, so that a slow machine changes little.
All times are of the processor, and of one core.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import resource
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import click

from envtest.real.assets import find_assets
from gpuctl.simulate.placing import simulate
from kubernetes_rules.allocator.allocate import AllocationFailed, Allocator
from tools.bench.mixed_cluster import mixed_cluster, mixed_pods
from tools.conformance.area import Case
from tools.conformance.oracle import read_vectors

NODES, PODS = 5_000, 40_000
MOST_CASES_A_POD = 2.0
"""How long a pod of a mixed cluster may take, in cases of the oracle; 1.5 is about 10 s for all pods."""
MOST_MIB = 1024
CASES, ROUNDS = 400, 5


def main(oracle: Path) -> bool:
    """Print a table; returns whether all limits are met."""
    cases = list(itertools.islice((case for case, _ in read_vectors("allocation")), CASES))
    theirs, ours = _oracle_microseconds(oracle, cases), _our_microseconds(cases)
    print("| what | the oracle | ours | ratio | limit | met |")
    print("|---|---|---|---|---|---|")
    print(f"| one allocation, JSON included | {theirs:.0f} µs | {ours:.0f} µs | {ours / theirs:.2f} | | |")
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        seconds, mebibytes = pool.apply(mixed_seconds_and_mib)
    ratio = seconds * 1e6 / PODS / theirs
    fast, small = ratio <= MOST_CASES_A_POD, mebibytes <= MOST_MIB
    what, limit = f"{PODS:,} mixed pods on {NODES:,} nodes with all forms", f"{MOST_CASES_A_POD:g}"
    print(f"| {what} | | {seconds:.1f} s | {ratio:.2f} | {limit} | {_yes(fast)} |")
    print(f"| memory for that | | {mebibytes:.0f} MiB | | {MOST_MIB} MiB | {_yes(small)} |")
    return fast and small


def _yes(met: bool) -> str:
    return "yes" if met else "NO"


def mixed_seconds_and_mib() -> tuple[float, float]:
    """The seconds in which one core reads a mixed cluster, places mixed pods, and says why others wait.

    It runs in a process of its own; the second number is the most memory of the process, in MiB.
    """
    cluster, groups = mixed_cluster(NODES), mixed_pods(PODS)
    started = time.process_time()
    result = simulate(cluster, groups, 1)
    seconds = time.process_time() - started
    assert sum(one.placed for one in result.groups) > 0.9 * PODS
    return seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


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

    one_core = {**os.environ, "GOMAXPROCS": "1"}

    def run(given: str) -> float:
        return _timed(
            lambda: subprocess.run(
                [oracle], input=given, capture_output=True, text=True, check=True, env=one_core
            )
        )

    whole = statistics.median(run(text) for _ in range(ROUNDS))
    return (whole - statistics.median(run("") for _ in range(ROUNDS))) / len(cases)


def _timed(work: Callable[[], object]) -> float:
    """The microseconds of processor time that the work takes, in this process and in ended ones."""
    started = _processor_seconds()
    work()
    return (_processor_seconds() - started) * 1e6


def _processor_seconds() -> float:
    used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


@click.command()
@click.option("--kubernetes", default="1.37", show_default=True, help="The minor version of the oracle.")
def command(kubernetes: str) -> None:
    """Compare the allocator with Kubernetes' own; exits 1 if a limit is not met."""
    if not main(find_assets(kubernetes).binary("oracle")):
        raise SystemExit(1)


if __name__ == "__main__":
    command()
