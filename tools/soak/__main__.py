"""``python -m tools.soak`` compresses a day of claims into minutes on a real cluster (docs/lifecycle.md)."""

from __future__ import annotations

import secrets
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count
from queue import Queue

import click

from driver.nvml.pci_address import PciAddress
from envtest.real.build import DEFAULT_KUBERNETES
from envtest.real.startup import start_cluster
from tools.bench.kubelet_calls import make_namespace
from tools.soak.calls import Caller
from tools.soak.judgement import Mark, Sample, Snapshot, compared_memory, grown, left_over
from tools.soak.measures import Sampler, snapshot
from tools.soak.node import Node, small_disk
from tools.soak.plan import (
    CALL_KINDS,
    MOST_AT_ONCE,
    NAMESPACES,
    POD_GPUS,
    POD_KINDS,
    Call,
    Disturbance,
    Pod,
    plan,
)
from tools.soak.pods import ADMINS, PATIENCE_SECONDS, PodWatch, prepare_namespaces

MOST_PODS_OF_A_KIND = 10
"""Further ones of a kind whose devices are all taken are left out: they would wait, and nothing else came."""

SAMPLE_SECONDS, LOOK_SECONDS, TOLD_SECONDS = 2.0, 1.0, 30.0
SETTLED_SECONDS = 180.0
MEASURED = ("kubeletplugin", "controller")


class Soak:
    """One run on a node: its threads, and what they found wrong."""

    def __init__(self, node: Node, seed: int, seconds: float) -> None:
        self.node, self._plan, self._seconds = node, plan(seed, seconds), seconds
        self.marks: list[Mark] = []
        self.samples: list[Sample] = []
        self._errors: list[str] = []
        self._began = time.monotonic()
        self._over = threading.Event()
        self._numbers = count()
        self.watch = PodWatch(
            node.cluster.api, self.clock, self.marks, lambda: node.processes()["kubeletplugin"]
        )
        self.callers = [Caller(node, pci, self.clock, self.marks) for pci in node.gpus[POD_GPUS:]]

    def clock(self) -> float:
        """The seconds since the run began."""
        return time.monotonic() - self._began

    @property
    def claims(self) -> int:
        """How many claims were prepared so far."""
        return self.watch.ran.total() + sum(one.prepared for one in self.callers)

    @property
    def failures(self) -> list[str]:
        """What went wrong so far."""
        return [*self._errors, *self.watch.failures, *(told for one in self.callers for told in one.failures)]

    def run(self) -> None:
        """Do all that the plan says, and wait until each pod is done."""
        self._began = time.monotonic()
        queue: Queue[Call | None] = Queue()
        work: list[Callable[[], object]] = [self._create_pods, self._spoil, self._restart]
        work += [
            partial(self._pass_on, queue),
            *(partial(self._call, queue, caller) for caller in self.callers),
        ]
        threads = [self._thread(one) for one in work]
        background = [self._thread(one) for one in (self._look, self._sample)]
        for thread in threads:
            thread.join()
        self._wait_for_pods()
        self._over.set()
        for thread in background:
            thread.join()

    def burst(self) -> None:
        """Pods and calls of every kind at once: pools get their threads, and caches their content."""
        for kind in (*POD_KINDS, *POD_KINDS):
            namespace = ADMINS if kind == "admin" else NAMESPACES[0]
            self.watch.create(Pod(0, f"burst-{next(self._numbers)}", namespace, kind, 1, deleted=False))
        calls = [self._thread(partial(_call_each, one)) for one in self.callers]
        self._wait_for_pods(look=True)
        for thread in calls:
            thread.join()
        self.callers[0].crowd()

    def _thread(self, work: Callable[[], object]) -> threading.Thread:
        thread = threading.Thread(target=self._guarded, args=(work,), daemon=True)
        thread.start()
        return thread

    def _guarded(self, work: Callable[[], object]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - whatever ends a part of the run
            self._errors.append(f"the run itself: {''.join(traceback.format_exception(error)[-3:])}")

    def _wait_until(self, at: float) -> None:
        time.sleep(max(0.0, at - self.clock()))

    def _create_pods(self) -> None:
        for pod in self._plan.pods:
            self._wait_until(pod.at)
            if self.clock() > self._seconds:
                return
            if self.watch.unfinished(pod.kind) < MOST_PODS_OF_A_KIND:
                self.watch.create(pod)

    def _pass_on(self, queue: Queue[Call | None]) -> None:
        for call in self._plan.calls:
            self._wait_until(call.at)
            queue.put(call)
        for _ in self.callers:
            queue.put(None)

    def _call(self, queue: Queue[Call | None], caller: Caller) -> None:
        while (call := queue.get()) is not None:
            if self.clock() < self._seconds:
                caller.do(call)

    def _spoil(self) -> None:
        for one in self._plan.faults:
            pci = self.node.gpus[one.gpu or 0]
            self._disturb(one, str(pci), partial(self._fault, one, pci))

    def _fault(self, one: Disturbance, pci: PciAddress) -> None:
        self.node.spoil(one.what, pci)
        time.sleep(one.seconds)
        self.node.heal(one.what, pci)

    def _restart(self) -> None:
        for one in self._plan.restarts:
            self._disturb(one, None, partial(self.node.disturb, one.what, one.seconds))

    def _disturb(self, one: Disturbance, gpu: str | None, work: Callable[[], None]) -> None:
        self._wait_until(one.at)
        if self.clock() > self._seconds:
            return
        mark = Mark(one.what, gpu, self.clock())
        self.marks.append(mark)
        work()
        self.marks[self.marks.index(mark)] = replace(mark, ended=self.clock())

    def _look(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            self._guarded(self.watch.look)

    def _sample(self) -> None:
        sampler, told = Sampler(self.node), 0.0
        while not self._over.wait(SAMPLE_SECONDS):
            self.samples.append(sampler.sample(self.claims))
            if self.clock() - told > TOLD_SECONDS:
                told = self.clock()
                done = f"{self.claims} claims, {len(self.marks)} faults and restarts"
                failed = f"{self.watch.unfinished()} pods unfinished, {len(self.failures)} failures"
                print(f"{told:6.0f} s: {done}, {failed}", flush=True)
                for one in self.watch.waiting() if told > self._seconds else ():
                    print(f"           {one}", flush=True)

    def _wait_for_pods(self, *, look: bool = False) -> None:
        until = time.monotonic() + PATIENCE_SECONDS + 60
        while self.watch.unfinished() and time.monotonic() < until:
            time.sleep(LOOK_SECONDS)
            if look:
                self.watch.look()
        self.watch.give_up()


def _call_each(caller: Caller) -> None:
    for kind in CALL_KINDS:
        caller.do(Call(0, kind, 1 if kind in ("whole", "admin") else MOST_AT_ONCE))


def settled(node: Node, before: Snapshot) -> list[str]:
    """What is not as at the start, once it is or nothing more is to be expected."""
    until, told = time.monotonic() + SETTLED_SECONDS, time.monotonic()
    while (found := list(left_over(before, snapshot(node)))) and time.monotonic() < until:
        if time.monotonic() - told > TOLD_SECONDS:
            told = time.monotonic()
            print("not yet as at the start:", *found, sep="\n  ", flush=True)
        time.sleep(LOOK_SECONDS)
    return found


def report(soak: Soak, failures: list[str]) -> None:
    """Print what was done, and what is wrong."""
    pods = ", ".join(f"{count} {kind}" for kind, count in sorted(soak.watch.ran.items()))
    print(f"{soak.claims} claims with {len(soak.marks)} faults and restarts; claims of pods: {pods}")
    for name in MEASURED:
        memory = compared_memory(soak.samples, name)
        told = "not compared" if memory is None else f"{memory[0]:.1f} and {memory[1]:.1f} MiB"
        print(f"  {name} after its first 1,000 claims and at the end: {told}")
    for failure in failures:
        print(f"FAILED: {failure}")


@click.command()
@click.option("--minutes", default=20.0, show_default=True, help="How long claims come.")
@click.option("--seed", type=int, help="Repeats what happened in a run that printed it.")
@click.option("--kubernetes", default=DEFAULT_KUBERNETES, show_default=True, help="The minor version.")
def main(minutes: float, seed: int | None, kubernetes: str) -> None:
    """Soak the driver on a real cluster; exits 1 if something grew, was left over, or failed."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the disk and the cluster go
    seed = secrets.randbelow(10**6) if seed is None else seed
    print(f"seed {seed}, {minutes:g} minutes")
    with small_disk() as disk, start_cluster(kubernetes=kubernetes) as cluster:
        node = Node(cluster, disk)
        try:
            make_namespace(cluster)
            prepare_namespaces(cluster.api)
            soak = Soak(node, seed, minutes * 60)
            # With two plugins at a time, the controller has as many threads for them as it ever has.
            for _ in range(2):
                node.disturb("hand-over", 0)
            soak.burst()
            node.wait_unused()
            before = snapshot(node)
            node.renew_processes()
            soak.run()
            soak.burst()
            left = settled(node, before)
        finally:
            node.driver.end_mps()
    failures = [*soak.failures, *left, *grown(soak.samples, MEASURED)]
    report(soak, failures)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
