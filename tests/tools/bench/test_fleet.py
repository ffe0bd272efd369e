"""The bench of many nodes publishes with the controller's own parts, and sees which nodes are right."""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from driver.devices.names import gpu_device_name
from driver.kube.bounded import Answer, DirectPool
from driver.kube.client import KubeClient
from driver.process.service import Service
from envtest.embedded.server import EmbeddedApiServer
from fakegpu.machine.fake_machine import FakeMachine
from gpuctl.node.planned import plan_node
from tests.eventually import eventually
from tools.bench.fleet.__main__ import AFTER, BEFORE, MACHINE, Cost
from tools.bench.fleet.control_plane import Figures
from tools.bench.fleet.nodes import Member, run
from tools.bench.fleet.observed import ObservedSlices

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

SLICES = "/apis/resource.k8s.io/v1/resourceslices"
NAMES = ("fleet-0", "fleet-1")
REFUSED_AFTER_SECONDS = 15
"""How long an overloaded API server lets a request wait."""


@pytest.fixture
def server() -> Iterator[EmbeddedApiServer]:
    with EmbeddedApiServer() as one:
        yield one


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, float]]:
    """The paths of all whole requests so far, with the seconds that each may take."""
    found: list[tuple[str, float]] = []
    exchange = DirectPool.exchange

    def noted(
        pool: DirectPool,
        verb: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes | None,
        seconds: float,
    ) -> Answer:
        found.append((target, seconds))
        return exchange(pool, verb, target, headers, body, seconds)

    monkeypatch.setattr(DirectPool, "exchange", noted)
    return found


def test_nodes_are_right_after_each_event_and_no_claim_is_listed(
    server: EmbeddedApiServer, tmp_path: Path, asked: list[tuple[str, float]]
) -> None:
    kubeconfig, rules = server.write_kubeconfig(tmp_path / "kubeconfig"), tmp_path / "node.yaml"
    rules.write_text(BEFORE)
    for name in NAMES:
        server.create("/api/v1/nodes", {"metadata": {"name": name}})
    members = [Member(name, str(kubeconfig), str(kubeconfig), name == NAMES[0]) for name in NAMES]
    words: list[str] = []
    stop, service = threading.Event(), Service()
    with closing(KubeClient.connect(kubeconfig)) as client:
        observed = ObservedSlices(client, NAMES, stop)
        watching = threading.Thread(target=observed.reflector.run)
        watching.start()
        # The list grows while the generator waits for its next word.
        steps = run(service, members, MACHINE, rules, words)
        next(steps)

        def happens(word: str, tainted: frozenset[str] = frozenset()) -> None:
            specs = [one["spec"] for one in plan_node(MACHINE, "node", rules).slices]
            observed.expect(specs, {NAMES[0]: tainted})
            words.append(word)
            next(steps)
            assert observed.seconds_until_right(time.monotonic()) < 60

        happens("start")
        rules.write_text(AFTER)
        happens("check")
        gpu = gpu_device_name(min(FakeMachine.open(MACHINE).state.gpus))
        (spec,) = [one["spec"] for one in plan_node(MACHINE, "node", rules).slices]
        happens("fault", frozenset(one["name"] for one in spec["devices"] if one["name"].startswith(gpu)))
        service.stop()
        stop.set()
        observed.reflector.wake()
        watching.join(10)
    assert server.count("list", "resourceclaims") == 0
    assert server.count("list", "pods") >= len(NAMES)
    patient = [seconds for target, seconds in asked if "resourceslices" in target or "pods" in target]
    assert patient
    assert min(patient) >= REFUSED_AFTER_SECONDS


def test_slices_from_before_do_not_count_once_all_have_to_be_written_again(
    server: EmbeddedApiServer, tmp_path: Path
) -> None:
    specs = [one["spec"] for one in plan_node(MACHINE, "fleet-0", None).slices]
    body = {"metadata": {"generateName": "a-"}, "spec": specs[0]}
    stored = server.create(SLICES, body)
    stop = threading.Event()
    with closing(KubeClient.connect(server.write_kubeconfig(tmp_path / "kubeconfig"))) as client:
        observed = ObservedSlices(client, ["fleet-0"], stop)
        watching = threading.Thread(target=observed.reflector.run)
        watching.start()
        observed.reflector.synced.wait()
        observed.expect(specs, {})
        assert observed.seconds_until_right(time.monotonic()) < 60

        observed.expect(specs, {}, written_again=True)
        assert observed.seconds_until_right(float("-inf")) == float("inf")
        server.delete(f"{SLICES}/{stored['metadata']['name']}")
        server.create(SLICES, body)
        eventually("it is right", lambda: observed.seconds_until_right(time.monotonic()), lambda s: s < 60)
        stop.set()
        observed.reflector.wake()
        watching.join(10)


def test_the_model_grows_from_what_is_there_without_nodes() -> None:
    assert Cost("memory", 700.0, "MiB", base=200.0).cells(5)[-1] == "2,700 MiB"
    assert Cost("seconds", 61.0, "s", limit=60.0, grows=False).cells(5)[1:] == ("61.0 s", "60 s", "NO", "")


def test_watches_that_end_are_counted_apart() -> None:
    def figures(**requests: int) -> Figures:
        counted = Counter({(verb, "nodes"): count for verb, count in requests.items()})
        return Figures(counted, 0, 0.0, 2.0, 0.0, 1.0, 0.0)

    before, after = figures(LIST=3, WATCH=1), figures(LIST=3, WATCH=5, GET=2)

    assert (after.requests_since(before, watches=True), after.requests_since(before, watches=False)) == (4, 2)
    assert after.seconds_since(before) == 0
