"""It evicts the right pods for the right pod, keeps the room, and stops where something is in the way."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from controller.preemptor import decisions
from controller.preemptor.kept import END_SECONDS
from controller.preemptor.pending import Exempt, named
from controller.preemptor.preemptor import REST, ROUND_SECONDS, SHORT_SECONDS, Behaviour
from controller.preemptor.steps_aside import Setting
from kubernetes_rules.preemption.victims import best_victims
from tests.controller.preemptor.played import Played
from tests.controller.preemptor.scene import CLAIMS, PODS, Scene
from tests.gpus import EventReason

MADE, LOST, REFUSED = EventReason.ROOM_MADE, EventReason.ROOM_LOST, EventReason.ROOM_REFUSED
UNJUDGED, PREEMPTED = EventReason.ROOM_NOT_JUDGED, EventReason.PREEMPTED_FOR_DEVICES
EVERYBODY, WITHOUT_BATCH = {"notebook", "batch", "urgent"}, {"notebook", "urgent"}
BUDGETS = "/apis/policy/v1/namespaces/team/poddisruptionbudgets"


@pytest.fixture
def full(scene: Scene) -> Scene:
    """A node whose two GPUs two notebooks have, the second of lower priority."""
    scene.node("node-a")
    scene.runs("notebook", 5, "node-a", "gpu-0")
    scene.runs("batch", 1, "node-a", "gpu-1")
    return scene


def acted(full: Scene, behaviour: Behaviour | None = None) -> Played:
    """The preemptor after its first round, in which there is an urgent pod."""
    full.waits("urgent", 10)
    played = Played(full, behaviour)
    played.round()
    return played


def budget(scene: Scene, name: str, allowed: int, **labels: str) -> None:
    spec = {"minAvailable": 1, "selector": {"matchLabels": labels}}
    stored = scene.server.create(BUDGETS, {"metadata": {"name": name}, "spec": spec})
    counts = {"currentHealthy": 1, "desiredHealthy": 1 - allowed, "expectedPods": 1}
    generation = stored["metadata"].get("generation", 1)
    scene.status(stored, {"disruptionsAllowed": allowed, "observedGeneration": generation, **counts}, BUDGETS)


def labelled(scene: Scene, name: str, **labels: str) -> None:
    scene.client.patch(f"{PODS}/{name}", {"metadata": {"labels": labels}}, "application/merge-patch+json")


def test_the_pod_of_the_lowest_priority_goes_and_everybody_is_told(full: Scene) -> None:
    played = acted(full)

    assert full.names() == WITHOUT_BATCH
    assert (played.told(MADE), played.told(PREEMPTED)) == ({"urgent"}, {"batch"})
    assert played.text(MADE) == "evicted team/batch on node node-a for the devices of this pod"
    assert "for the pod team/urgent of priority 10" in played.text(PREEMPTED)
    assert played.number("gpu_dra_preemptor_evictions_total", outcome="evicted") == 1


def test_the_room_is_not_taken_by_another_pod_when_its_own_pod_has_the_devices(full: Scene) -> None:
    pod = full.waits("urgent", 10)
    played = Played(full)
    played.round()
    full.ends("batch")
    # The scheduler writes the claim first, and gives the pod its node a moment later.
    full.allocate("urgent", "node-a", "gpu-1", user=pod)
    played.round()

    assert played.told(LOST) == set()


def test_an_event_names_no_pod_of_another_namespace() -> None:
    def pod_of(namespace: str, name: str) -> dict[str, Any]:
        return {"metadata": {"namespace": namespace, "name": name}}

    pods = [pod_of("team", "b"), pod_of("secret", "x"), pod_of("team", "a"), pod_of("other", "y")]
    assert named(pods, "team") == "team/a, team/b, 2 pods of other namespaces"
    assert named(pods[1:2], "team") == "1 pod of other namespaces"


def waits(full: Scene) -> None:
    full.waits("urgent", 10)


def never(full: Scene) -> None:
    never = {"metadata": {"name": "of-10"}, "value": 10, "preemptionPolicy": "Never"}
    full.server.create("/apis/scheduling.k8s.io/v1/priorityclasses", never)
    waits(full)


def fits(full: Scene) -> None:
    full.node("node-b")
    waits(full)


def unmade(full: Scene) -> None:
    waits(full)
    full.server.delete(f"{CLAIMS}/urgent")


NOBODY_GOES: dict[str, Callable[[Scene], object]] = {
    "its priority is the same": lambda full: full.waits("urgent", 1),
    "its priority is lower": lambda full: full.waits("urgent", 0),
    "it never preempts": never,
    "it fits now": fits,
    "its namespace is exempt": waits,
    "its class is exempt": waits,
    "its claim is not made": unmade,
    "the scheduler makes room": waits,
}
EXEMPT = {
    "its namespace is exempt": Exempt(namespaces=frozenset({"team"})),
    "its class is exempt": Exempt(priority_classes=frozenset({"of-10"})),
}


@pytest.mark.parametrize("why", NOBODY_GOES)
def test_nobody_goes(full: Scene, why: str) -> None:
    NOBODY_GOES[why](full)
    scheduler: Setting = "yes" if why == "the scheduler makes room" else "no"
    played = Played(full, Behaviour(EXEMPT.get(why, Exempt())), scheduler=scheduler)
    played.round()

    assert full.names() == EVERYBODY
    assert played.heard.posted == []


def test_a_pod_that_is_exempt_does_not_go(full: Scene) -> None:
    acted(full, Behaviour(Exempt(priority_classes=frozenset({"of-1"}))))

    assert full.names() == {"batch", "urgent"}


def test_nobody_goes_while_the_claim_of_a_pod_that_has_just_gone_is_being_freed(full: Scene) -> None:
    played = Played(full)
    played.round()
    full.waits("urgent", 10)
    full.ends("batch", freed=False)
    due = played.round()
    assert full.names() == WITHOUT_BATCH

    # Nobody frees it: somebody may have to go after all.
    assert due == pytest.approx(END_SECONDS)
    played.clock.now += due
    played.round()
    assert full.names() == {"urgent"}


@pytest.mark.parametrize(
    ("message", "left"),
    [
        ("node node-a: timed out trying to allocate devices", WITHOUT_BATCH),
        ("request gpu: the selector fails", EVERYBODY),
    ],
)
def test_a_pod_for_which_the_scheduler_ran_out_of_time_is_refused_as_well(
    message: str, left: set[str], full: Scene
) -> None:
    pod = full.waits("urgent", 10)
    failed = {"type": "PodScheduled", "status": "False", "reason": "SchedulerError", "message": message}
    full.status(pod, {**pod["status"], "conditions": [failed]})
    Played(full).round()

    assert full.names() == left


def test_a_pod_that_cannot_be_judged_evicts_nobody_and_an_event_says_why(full: Scene) -> None:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "db"}}}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    full.waits("picky", 10, affinity=affinity)
    full.waits("unimportant", 0, affinity=affinity)
    played = Played(full)
    played.round()
    played.round()

    assert full.names() == {"notebook", "batch", "picky", "unimportant"}
    [(name, _, text)] = played.heard.posted
    assert name == "picky"
    assert "affinity to pods" in text


def test_a_budget_that_protects_everybody_is_kept_until_it_allows_it(full: Scene) -> None:
    for name in ("batch", "notebook"):
        labelled(full, name, app="db")
    budget(full, "db", 0, app="db")
    played = acted(full)
    played.round()
    assert full.names() == EVERYBODY
    assert [(name, word) for name, word, _ in played.heard.posted] == [("urgent", "RoomRefused")]

    stored = full.client.get(f"{BUDGETS}/db")
    full.status(stored, {**stored["status"], "disruptionsAllowed": 1}, BUDGETS)
    played.round()
    assert full.names() == WITHOUT_BATCH


def test_an_eviction_that_the_api_server_refuses_is_tried_again_later(full: Scene) -> None:
    full.waits("urgent", 10)
    full.server.fail("create", "/eviction", code=429)
    played = Played(full)
    due = played.round()
    played.round()
    assert full.names() == EVERYBODY
    assert played.told(REFUSED) == {"urgent"}

    assert 0 < due <= 10
    played.clock.now += 10
    played.round()
    assert full.names() == WITHOUT_BATCH


def test_a_victim_that_does_not_end_makes_another_one_go(full: Scene) -> None:
    played = acted(full)
    played.clock.now += END_SECONDS
    due = played.round()
    assert "team/batch did not end on node node-a" in played.text(LOST)
    assert full.names() == WITHOUT_BATCH

    played.clock.now += due
    played.round()
    assert full.names() == {"urgent"}
    assert played.number("gpu_dra_preemptor_rooms_total", outcome="stuck") == 1


def test_evictions_are_limited_and_the_most_important_pod_comes_first(scene: Scene) -> None:
    scene.node("node-a", gpus=3)
    for number in range(3):
        scene.runs(f"batch-{number}", 1, "node-a", f"gpu-{number}")
    scene.waits("late", 10)
    scene.waits("first", 30)
    scene.waits("second", 20)
    played = Played(scene, per_minute=2)
    due = played.round()
    assert played.told(MADE) == {"first", "second"}
    assert due == pytest.approx(30)

    played.clock.now += due
    played.round()
    assert played.told(MADE) == {"first", "second", "late"}


def test_the_next_replica_does_not_evict_again_for_a_room_that_is_being_made(full: Scene) -> None:
    acted(full)
    full.server.delete("/apis/coordination.k8s.io/v1/namespaces/gpu-dra/leases/preemptor")
    Played(full, identity="other").round()

    assert full.names() == WITHOUT_BATCH


def test_it_waits_while_pods_end_that_the_scheduler_has_evicted_for_the_pod(full: Scene) -> None:
    pod = full.waits("urgent", 10)
    full.status(pod, {**pod["status"], "nominatedNodeName": "node-a"})
    told = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    beside = full.runs("beside", 1, "node-a", resourceClaims=[{"name": "gpu", "resourceClaimName": "none"}])
    full.status(beside, {**beside["status"], "conditions": [told]})
    full.server.delete(f"{PODS}/beside")
    Played(full).round()

    assert full.names() == EVERYBODY


def names_after(scene: Scene, played: Played, rounds: int) -> set[str]:
    for _ in range(rounds):
        played.clock.now += 1
        played.round()
    return scene.names()


def test_a_dry_run_evicts_nobody_and_names_whom_a_real_run_evicts(scene: Scene) -> None:
    scene.node("node-a", gpus=2)
    scene.node("node-b", gpus=2)
    for number, (node, device) in enumerate([("a", 0), ("a", 1), ("b", 0), ("b", 1)]):
        scene.runs(f"batch-{number}", number % 3, f"node-{node}", f"gpu-{device}")
    for name, priority, gpus in (("one", 10, 1), ("two", 9, 2), ("three", 8, 1), ("four", 0, 1)):
        scene.waits(name, priority, gpus)
    everybody = scene.names()
    dry = Played(scene, Behaviour(dry_run=True))
    assert names_after(scene, dry, 4) == everybody
    named = dry.told(EventReason.WOULD_BE_PREEMPTED)
    assert dry.number("gpu_dra_preemptor_evictions_total", outcome="evicted") == 0

    real = Played(scene)
    evicted = everybody - names_after(scene, real, 4)
    assert evicted == named
    assert len(evicted) >= 3
    assert dry.told(EventReason.ROOM_WOULD_BE_MADE) == real.told(MADE)


def test_with_nomination_the_pod_says_for_which_node_it_waits(full: Scene) -> None:
    played = acted(full, Behaviour(nominate=True))
    assert full.pod("urgent")["status"]["nominatedNodeName"] == "node-a"

    played.clock.now += END_SECONDS
    played.round()
    assert "nominatedNodeName" not in full.pod("urgent")["status"]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The pods about which something was really decided, in order."""
    names: list[str] = []

    def noted(cluster: Any, wanted: Any, may_go: Any) -> Any:
        names.append(wanted.pod["metadata"]["name"])
        return best_victims(cluster, wanted, may_go)

    monkeypatch.setattr(decisions, "best_victims", noted)
    return names


@pytest.mark.parametrize("of", ["a running pod", "waiting pods"])
def test_a_tenant_who_changes_labels_all_the_time_does_not_keep_others_of_its_priority_waiting(
    full: Scene, asked: list[str], of: str
) -> None:
    away = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"round": "none"}}}
    repels = {"requiredDuringSchedulingIgnoredDuringExecution": [away]}
    full.waits("repels", 5, affinity={"podAntiAffinity": repels})
    for number in range(4):
        full.waits(f"flaps-{number}", 10, gpus=3 + number)
    full.waits("late", 10, gpus=8)
    played = Played(full)
    played.cpu.step = 0.4 * ROUND_SECONDS
    for number in range(3):
        for flapping in range(4):
            labelled(full, f"flaps-{flapping}", round=str(number))
        played.round(changed=of == "a running pod")
        played.clock.now += REST * 4 * ROUND_SECONDS
    assert set(asked) == {"late", *(f"flaps-{number}" for number in range(4))}


def test_a_pod_whose_selectors_take_long_is_judged_in_steps_and_keeps_nobody_waiting(
    full: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Time passes with each look at it, twice for a selector.
    ticks = itertools.count(step=decisions.DECISION_SECONDS / 4)
    monkeypatch.setattr("kubernetes_rules.cel.selector.time.thread_time", lambda: next(ticks))
    costly = ["device.driver != 'other'", "device.driver != 'another'", "device.driver != 'nobody'"]
    full.waits("costly", 20, selectors=costly)
    played = acted(full)
    assert (played.told(MADE), played.told(UNJUDGED)) == ({"urgent"}, {"costly"})
    assert "most of it the selector \"device.driver != 'other'\"" in played.text(UNJUDGED)

    for _ in costly:
        played.clock.now += REST * ROUND_SECONDS
        played.round(changed=False)
    assert played.told(MADE) == {"urgent", "costly"}


def test_while_it_rests_it_decides_about_the_most_important_pods_and_new_ones(
    full: Scene, asked: list[str]
) -> None:
    for name, priority in (("first", 14), ("second", 13), ("third", 12)):
        full.waits(name, priority, gpus=priority)
    played = Played(full)
    played.cpu.step = SHORT_SECONDS / 5
    played.round()
    full.waits("new", 11, gpus=4)
    asked.clear()
    played.round()
    assert asked == ["first", "second", "new"]


def test_an_api_server_that_goes_away_between_two_evictions_ends_nobody_needlessly(full: Scene) -> None:
    full.waits("urgent", 10, gpus=2)
    for name in ("notebook", "batch"):
        full.server.fail("create", f"/pods/{name}/eviction", code=503)
    played = Played(full)
    for _ in range(2):
        played.round()
        played.clock.now += 60
    # Meanwhile the other pod has ended by itself, so nobody else has to.
    for name in ("notebook", "batch"):
        full.ends(name)
    full.node("node-b")
    full.runs("other", 1, "node-b", "gpu-0", "gpu-1")
    played.round()
    assert full.names() == {"urgent", "other"}
    assert played.number("gpu_dra_preemptor_evictions_total", outcome="failed") == 2
