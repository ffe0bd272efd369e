"""Evictions are limited, and stop as soon as something is otherwise than it was decided for."""

import pytest

from controller.preemptor.evict import Allowance, Carried, Evictor
from tests.clock import Clock
from tests.clusters import Object
from tests.controller.preemptor.scene import CLAIMS, Scene


@pytest.fixture
def full(scene: Scene) -> Scene:
    scene.node("node-a")
    scene.runs("one", 1, "node-a", "gpu-0")
    scene.runs("two", 1, "node-a", "gpu-1")
    scene.waits("urgent", 10, gpus=2)
    return scene


def carry_out(scene: Scene, *victims: Object, may_act: bool = True) -> Carried:
    evictor = Evictor(scene.client, lambda: may_act, Allowance(30))
    pod, claim = scene.pod("urgent"), scene.client.get(f"{CLAIMS}/urgent")
    return evictor.carry_out(pod, [claim], [*victims] or [scene.pod("one"), scene.pod("two")])


def test_nobody_is_evicted_without_the_lease(full: Scene) -> None:
    assert carry_out(full, may_act=False).evicted == []
    assert full.names() == {"one", "two", "urgent"}


def test_an_api_server_that_goes_away_stops_it_half_way(full: Scene) -> None:
    full.server.fail("create", "/pods/two/eviction", code=503)

    done = carry_out(full)

    assert [one["metadata"]["name"] for one in done.evicted] == ["one"]
    assert done.error is not None
    assert full.names() == {"two", "urgent"}


def test_nobody_is_evicted_for_a_pod_that_was_placed_meanwhile(full: Scene) -> None:
    pod, claim = full.pod("urgent"), full.client.get(f"{CLAIMS}/urgent")
    full.node("node-b")
    full.places("urgent", "node-b", "gpu-0", "gpu-1")
    done = Evictor(full.client, lambda: True, Allowance(30)).carry_out(pod, [claim], [full.pod("one")])

    assert (done.evicted, done.stopped) == ([], "the pod has a node now")


def test_a_pod_of_the_same_name_is_not_the_one_that_was_decided_about(full: Scene) -> None:
    victim = full.pod("one")
    full.ends("one")
    full.server.delete(f"{CLAIMS}/one")
    full.runs("one", 1, "node-a", "gpu-0")
    done = carry_out(full, victim)

    assert (done.evicted, done.stopped) == ([], "the pod team/one is another one now")
    assert "one" in full.names()


def test_so_many_pods_may_be_evicted_within_a_minute_and_no_more() -> None:
    clock = Clock()
    allowance = Allowance(6, clock)
    for _ in range(6):
        assert allowance.wait_seconds(1) == 0
        allowance.take()

    assert allowance.wait_seconds(1) == pytest.approx(10)
    clock.now += 10
    assert allowance.wait_seconds(1) == 0
    assert allowance.wait_seconds(2) == pytest.approx(10)


def test_a_set_that_is_larger_than_the_limit_waits_for_a_quiet_minute() -> None:
    clock = Clock()
    allowance = Allowance(6, clock)
    allowance.take()

    assert allowance.wait_seconds(8) == pytest.approx(10)
    clock.now += 10
    assert allowance.wait_seconds(8) == 0
    for _ in range(8):
        allowance.take()
    assert allowance.wait_seconds(1) == pytest.approx(30)
