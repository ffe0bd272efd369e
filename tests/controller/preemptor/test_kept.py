"""Room is kept for its pod until that has it; a pod that does not get it waits longer each time."""

from typing import Any

import pytest

from controller.preemptor.kept import TAKEN_SECONDS, UNUSED_SECONDS, Fits, Kept, Placed, Rooms, end_seconds
from controller.preemptor.pending import Waiting
from tests.clusters import Object


def pod(name: str, **metadata: Any) -> Object:
    about = {"namespace": "team", "name": name, "uid": name, **metadata}
    return {"metadata": about, "spec": {"priority": 1}, "status": {"phase": "Running"}}


ENDING = pod("victim", deletionTimestamp="2026-11-01T00:00:00Z")
FREED: Object = {
    "metadata": {"namespace": "team", "name": "freed", "uid": "freed"},
    "spec": {},
    "status": {"allocation": {"devices": {}}, "reservedFor": [{"uid": "victim"}]},
}
CLAIM: Object = {"metadata": {"namespace": "team", "name": "urgent", "uid": "claim"}, "spec": {}}


def kept(*, dry_run: bool = False) -> Rooms:
    rooms = Rooms(dry_run=dry_run)
    waiting = Waiting(pod("urgent"), (CLAIM,), "")
    placed = Placed(pod("urgent"), "node-a", (CLAIM,))
    rooms.keep(Kept(waiting, placed, (pod("victim"),), (FREED,), until=100.0))
    return rooms


def judged(
    rooms: Rooms, *pods: Object, claims: tuple[Object, ...] = (), now: float = 0.0, fits: Fits = "now"
) -> str | None:
    [room] = rooms.all()
    there, held = ({one["metadata"]["uid"]: one for one in some} for some in (pods, claims))
    return rooms.judge(room, there, room.left(there, held), now, lambda: fits)


def test_its_victims_count_as_ending_before_the_watch_shows_it() -> None:
    [seen, other] = kept().overlaid([pod("victim"), pod("other")])
    assert "deletionTimestamp" in seen["metadata"]
    assert other == pod("other")


def test_in_a_dry_run_the_victims_count_as_ending_only_as_long_as_the_room_is_kept() -> None:
    rooms = kept(dry_run=True)
    rooms.drop("urgent")
    assert rooms.overlaid([pod("victim")]) == [pod("victim")]


def test_it_is_open_while_a_victim_ends_and_lost_if_it_does_not() -> None:
    assert judged(kept(), pod("urgent"), ENDING, now=99) is None
    assert judged(kept(), pod("urgent"), ENDING, now=100) == "stuck"


def test_a_victim_that_does_not_end_counts_as_staying() -> None:
    rooms = kept()
    rooms.give_up_on([ENDING])

    assert rooms.overlaid([ENDING]) == [pod("victim")]
    assert rooms.stuck() == {"victim"}
    rooms.forget({"urgent"})
    assert not rooms.stuck()


@pytest.mark.parametrize(("fits", "outcome"), [("now", None), ("soon", None), ("no", "taken")])
def test_once_the_victims_have_ended_the_devices_tell_whether_another_pod_took_them(
    fits: Fits, outcome: str | None
) -> None:
    rooms = kept()
    assert judged(rooms, pod("urgent"), fits=fits) is None
    assert judged(rooms, pod("urgent"), now=TAKEN_SECONDS, fits=fits) == outcome


def test_a_moment_in_which_the_pod_does_not_fit_means_nothing() -> None:
    rooms = kept()
    moments: tuple[Fits, ...] = ("no", "now", "no", "now")
    for number, fits in enumerate(moments):
        assert judged(rooms, pod("urgent"), now=number * TAKEN_SECONDS, fits=fits) is None


def test_a_pod_that_the_scheduler_does_not_place_leaves_its_room_unused() -> None:
    rooms = kept()
    assert judged(rooms, pod("urgent"), now=50) is None
    assert judged(rooms, pod("urgent"), now=50 + UNUSED_SECONDS - 1) is None
    assert judged(rooms, pod("urgent"), now=50 + UNUSED_SECONDS) == "unused"


def test_it_is_used_when_its_pod_has_a_node_and_over_when_the_pod_is_gone() -> None:
    placed = pod("urgent")
    placed["spec"] = {"nodeName": "node-a"}
    assert judged(kept(), placed) == "used"
    assert judged(kept()) == "gone"


def test_each_try_waits_twice_as_long_up_to_ten_minutes() -> None:
    rooms = Rooms()
    assert [rooms.lose("urgent", 0.0) for _ in range(8)] == [10, 20, 40, 80, 160, 320, 600, 600]
    assert rooms.wait_until("urgent") == 600
    rooms.forget(set())
    assert rooms.wait_until("urgent") == 0


def test_a_victim_that_has_ended_is_not_left() -> None:
    [room] = kept().all()
    ended = pod("victim") | {"status": {"phase": "Failed"}}
    assert room.left({"victim": ended}, {}) == []


def test_it_is_open_until_the_claims_of_the_victims_are_free_too() -> None:
    [room] = kept().all()
    assert room.left({}, {"freed": FREED}) == [FREED]
    assert room.left({}, {"freed": {**FREED, "status": {}}}) == []
    used_again = {**FREED, "status": {**FREED["status"], "reservedFor": [{"uid": "other"}]}}
    assert room.left({}, {"freed": used_again}) == []


@pytest.mark.parametrize(
    ("grace", "seconds"),
    [(None, 90), (0, 60), (120, 180), (10**9, 300)],
    ids=["default", "0", "120", "years"],
)
def test_pods_may_take_their_grace_period_and_a_minute_but_no_longer_than_five(
    grace: int | None, seconds: float
) -> None:
    asks = {**pod("one"), "spec": {} if grace is None else {"terminationGracePeriodSeconds": grace}}
    deleted = pod("one", deletionTimestamp="2100-01-01T00:00:00Z", deletionGracePeriodSeconds=grace or 0)
    assert end_seconds([pod("other"), asks]) == max(90, seconds)
    assert end_seconds([asks]) == seconds
    assert end_seconds([deleted]) == (60 if grace is None else seconds)


def test_a_pod_that_somebody_deleted_and_that_does_not_end_is_expected_no_longer() -> None:
    rooms = Rooms()
    ending = pod("ending", deletionTimestamp="2100-01-01T00:00:00Z", deletionGracePeriodSeconds=10**9)
    rooms.see({"ending": ending}, (), now=0.0)
    assert rooms.next_due(0.0) == 300.0
    assert rooms.overlaid([ending]) == [ending]

    rooms.see({"ending": ending}, (), now=300.0)
    assert rooms.stuck() == {"ending"}
    [seen] = rooms.overlaid([ending])
    assert "deletionTimestamp" not in seen["metadata"], "its devices count as taken"
    rooms.forget(set())
    assert rooms.next_due(300.0) == float("inf")
