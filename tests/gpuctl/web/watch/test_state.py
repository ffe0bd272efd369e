"""What the page shows follows from the objects that watches report, in whatever order they came."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gpuctl.fleet.cluster import views_of
from gpuctl.web.seen.history import MOST_CHANGES
from gpuctl.web.seen.view import PARTS, View
from gpuctl.web.watch.state import ClusterState, Kind
from tests.gpuctl.fleet.test_nodes import DEVICES, claim, slices

Object = dict[str, Any]
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def refreshed(state: ClusterState, now: datetime = NOW, *, has_time: bool = True) -> View:
    return state.refresh(now, synced=True, failing=(), has_time=lambda: has_time)


def take(
    state: ClusterState,
    kind: Kind,
    *items: Object,
    gone: bool = False,
    news: bool = True,
    now: datetime = NOW,
) -> None:
    for item in items:
        state.update(kind, item, now, gone=gone, news=news)


def texts(view: View) -> list[str]:
    return [f"{one.about}: {one.text}" for one in view.history]


def test_what_was_there_before_anybody_looked_is_no_history() -> None:
    state = ClusterState()
    take(state, "slice", *slices(""), news=False)
    take(state, "claim", claim("train", DEVICES[""][0]), news=False)

    view = refreshed(state)

    assert view.history == ()
    assert (view.summary.gpus, view.summary.free, view.summary.used) == (8, 7, 1.0)
    assert view.since == "2026-01-02T03:04:05Z"


def test_a_view_without_news_is_the_same_one() -> None:
    state = ClusterState()
    take(state, "slice", *slices(""))
    view = refreshed(state)

    assert refreshed(state) is view
    take(state, "node", {"metadata": {"name": "node-a", "resourceVersion": "2"}})
    before = refreshed(state)
    take(state, "node", {"metadata": {"name": "node-a", "resourceVersion": "3"}})
    assert refreshed(state) is before


def test_only_the_parts_that_changed_have_another_version() -> None:
    state = ClusterState()
    take(state, "slice", *slices(""))
    before = refreshed(state)
    take(
        state,
        "event",
        {"type": "Warning", "reason": "GpuWithheld", "involvedObject": {"kind": "Node", "name": "node-a"}},
    )

    after = refreshed(state)

    assert [part for part in PARTS if before.parts[part] != after.parts[part]] == ["history"]
    assert texts(after)[0] == "node-a: GpuWithheld: "


def failure(message: str, name: str = "train") -> Object:
    about = {"kind": "Pod", "namespace": "team", "name": name}
    return {"type": "Warning", "reason": "PrepareFailed", "message": message, "involvedObject": about}


def test_a_failure_that_is_repeated_is_one_change_with_its_number_and_first_time() -> None:
    state = ClusterState()
    take(state, "event", failure("the GPU hangs"))
    take(state, "event", failure("the GPU hangs", "other"), now=NOW + timedelta(seconds=30))
    for minute in range(1, 5):
        take(state, "event", failure("the GPU hangs"), now=NOW + timedelta(minutes=minute))

    view = refreshed(state, NOW + timedelta(minutes=5))

    assert texts(view) == [
        "team/train: PrepareFailed: the GPU hangs",
        "team/other: PrepareFailed: the GPU hangs",
    ]
    assert [(one.times, one.first, one.at) for one in view.history] == [
        (5, "2026-01-02T03:04:05Z", "2026-01-02T03:08:05Z"),
        (1, "", "2026-01-02T03:04:35Z"),
    ]
    assert len(refreshed(state, NOW + timedelta(minutes=63)).history) == 1


def test_a_claim_that_gets_the_same_device_twice_changed_twice() -> None:
    state, held = ClusterState(), claim("train", DEVICES[""][0])
    for gone in (False, True, False):
        take(state, "claim", held, gone=gone)

    assert [one.text.split()[0] for one in refreshed(state).history] == ["got", "released", "got"]


def test_a_pod_that_asks_by_limits_shows_the_resource_and_its_class_even_if_the_class_comes_later() -> None:
    state = ClusterState()
    container = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": "2", "cpu": "4"}}}
    pod = {"metadata": {"namespace": "team", "name": "old"}, "spec": {"containers": [container]}}
    take(state, "pod", pod)
    assert [one.asks for one in refreshed(state).waiting] == [("nvidia.com/gpu: 2",)]

    spec = {"extendedResourceName": "nvidia.com/gpu", "selectors": []}
    take(state, "class", {"metadata": {"name": "whole"}, "spec": spec})

    view = refreshed(state)
    assert [one.asks for one in view.waiting] == [("whole", "nvidia.com/gpu: 2")]
    assert [(one.name, one.waiting) for one in view.tiers] == [("whole", 1)]
    assert texts(view)[-1] == "team/old: asks for nvidia.com/gpu: 2"


def test_every_gpu_is_free_in_use_or_unavailable() -> None:
    state = ClusterState()
    (item,) = slices("")
    for number in (0, 1):
        item["spec"]["devices"][number]["taints"] = [{"key": "example.com/sick", "effect": "NoSchedule"}]
    take(state, "slice", item)
    take(state, "claim", claim("train", DEVICES[""][0]))

    found = refreshed(state).summary

    assert (found.gpus, found.free, found.in_use, found.unavailable, found.sick) == (8, 6, 1, 1, 2)


def test_a_claim_that_is_deleted_gives_its_device_back() -> None:
    state, held = ClusterState(), claim("train", DEVICES[""][0])
    take(state, "slice", *slices(""))
    take(state, "claim", held)
    assert refreshed(state).summary.free == 7

    take(state, "claim", held, gone=True)

    view = refreshed(state)
    assert view.summary.free == 8
    assert texts(view)[0] == f"team/train: released node-a/gpu.nvidia.com/{DEVICES[''][0]}"


def test_a_node_without_slices_is_gone() -> None:
    state = ClusterState()
    take(state, "slice", *slices(""))
    refreshed(state)

    take(state, "slice", *slices(""), gone=True)

    view = refreshed(state)
    assert view.nodes == {}
    assert texts(view)[0] == "node-a: no longer publishes GPUs"


def test_slices_of_other_drivers_are_none_of_ours() -> None:
    state = ClusterState()
    (other,) = slices("")
    other["spec"]["driver"] = "nic.example.com"
    take(state, "slice", other)

    view = refreshed(state)

    assert view.nodes == {}
    assert len(view.objects.slices) == 1


def test_a_malformed_slice_is_told_and_the_other_nodes_are_shown() -> None:
    state = ClusterState()
    (bad,) = slices("")
    bad["metadata"]["name"] = "bad"
    bad["spec"] |= {"nodeName": "node-b", "pool": {**bad["spec"]["pool"], "name": "node-b"}}
    bad["spec"]["devices"][0]["capacity"] = {"memory": {"value": "much"}}
    take(state, "slice", *slices(""), bad)

    view = refreshed(state)

    assert view.order == ("node-b", "node-a")
    assert view.nodes["node-b"].state.pool_problem
    assert view.nodes["node-a"].state.pool_problem is None


def test_history_ends_after_an_hour_and_is_never_too_long() -> None:
    state, held = ClusterState(), claim("train", DEVICES[""][0])
    take(state, "slice", *slices(""), news=False)
    for number in range(MOST_CHANGES):
        take(state, "claim", held, gone=bool(number % 2))
    take(state, "claim", claim("other", DEVICES[""][1]), now=NOW + timedelta(minutes=30))

    assert len(refreshed(state, NOW + timedelta(minutes=30)).history) == MOST_CHANGES
    assert len(refreshed(state, NOW + timedelta(minutes=61)).history) == 1


def test_what_there_is_no_time_for_is_asked_later() -> None:
    state = ClusterState()
    expression = "device.driver == 'gpu.nvidia.com'"
    made = {"metadata": {"name": "all"}, "spec": {"selectors": [{"cel": {"expression": expression}}]}}
    take(state, "slice", *slices(""))
    take(state, "class", made)

    first = refreshed(state, has_time=False)
    assert (first.classes_of, first.tiers[0].count.devices, state.has_more) == (0, 0, True)

    second = refreshed(state)
    assert (second.classes_of, second.tiers[0].count.devices, state.has_more) == (1, 8, False)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 7), st.booleans()), max_size=20), st.data())
def test_whenever_it_is_looked_at_the_view_is_that_of_the_objects(
    steps: list[tuple[int, int, bool]], data: st.DataObject
) -> None:
    state = ClusterState()
    take(state, "slice", *slices(""))
    claims: dict[int, Object] = {}
    for number, device, gone in steps:
        item = claim(f"c{number}", DEVICES[""][device])
        if gone:
            claims.pop(number, None)
        else:
            claims[number] = item
        take(state, "claim", item, gone=gone)
        if data.draw(st.booleans()):
            refreshed(state)
    fresh = ClusterState()
    take(fresh, "slice", *slices(""))
    take(fresh, "claim", *claims.values())

    view, expected = refreshed(state), refreshed(fresh)

    assert (view.nodes, view.summary, view.sick, view.tiers) == (
        expected.nodes,
        expected.summary,
        expected.sick,
        expected.tiers,
    )
    assert tuple(view.nodes.values()) == views_of(slices(""), [claims[number] for number in sorted(claims)])


def test_a_node_that_is_cordoned_or_not_ready_says_so() -> None:
    state = ClusterState()
    take(state, "slice", *slices(""))
    conditions = [{"type": "Ready", "status": "Unknown"}]
    cordoned = {"metadata": {"name": "node-a"}, "spec": {"unschedulable": True}}

    take(state, "node", {**cordoned, "status": {"conditions": conditions}})

    assert refreshed(state).nodes["node-a"].remarks == ("cordoned", "not ready")


def test_what_classes_select_counts_until_it_was_asked_again() -> None:
    state = ClusterState()
    made = {"metadata": {"name": "all"}, "spec": {"selectors": [{"cel": {"expression": "true"}}]}}
    take(state, "slice", *slices(""))
    take(state, "class", made)
    refreshed(state)
    (item,) = slices("")
    item["spec"]["devices"] = item["spec"]["devices"][:3]

    take(state, "slice", item)

    between = refreshed(state, has_time=False)
    assert (between.classes_of, between.tiers[0].count.devices) == (0, 8)
    assert refreshed(state).tiers[0].count.devices == 3
    take(state, "slice", item, gone=True)
    assert refreshed(state).tiers[0].count.devices == 0
