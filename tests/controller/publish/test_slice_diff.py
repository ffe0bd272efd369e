"""Which slices are deleted, updated and created, and what becomes of the pool's generation."""

import copy
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.publish.slice_diff import SyncPlan, generate_name, index_of, plan_sync
from driver.slices.specs import taint_times
from tests.clusters import Object

POOL = "node-a/gpu.nvidia.com"


def spec(*devices: str, count: int = 1) -> Object:
    return {
        "driver": "gpu.nvidia.com",
        "nodeName": "node-a",
        "pool": {"name": POOL, "resourceSliceCount": count},
        "devices": [{"name": name} for name in devices],
    }


def stored(name: str, of: Object, generation: int = 1, pool: str = POOL, **extra: Any) -> Object:
    inside = copy.deepcopy(of)
    inside["pool"] = {**inside["pool"], "generation": generation, "name": pool}
    return {"metadata": {"name": name, "uid": f"uid-{name}"}, "spec": inside, **extra}


def plan(specs: list[Object], *items: Object) -> SyncPlan:
    times = taint_times(specs, (item["spec"] for item in items), {})
    return plan_sync(specs, items, times)


LAST = 2**63 - 1
A, AB, ABC = ([spec(name, count=len(names)) for name in names] for names in ("a", "ab", "abc"))
OLD, OLDER = spec("old", count=2), spec("older", count=3)
OBSOLETE = {
    "an index that is taken": stored("00000-y", spec("a"), generation=2),
    "a name without an index": stored("no-index", spec("a"), generation=2),
    "an older generation": stored("00000-old", spec("a"), generation=1),
    "another pool": stored("00000-foreign", spec("a"), generation=9, pool="node-a"),
}


@pytest.mark.parametrize(
    ("wanted", "there", "deleted", "updated", "created", "generation"),
    [
        pytest.param(AB, [], [], [], [0, 1], 1, id="the first slices are of generation 1"),
        pytest.param(A, [stored("00000-x", A[0], 7)], [], [], [], None, id="what is right is not touched"),
        pytest.param(
            *(AB, [stored("00000-x", AB[0], 3), stored("00001-x", OLD, 3)]),
            *([], [1], [], 3),
            id="one changed slice stays within its generation",
        ),
        pytest.param(
            *(ABC, [stored("00000-x", ABC[0], 3), stored("00001-x", OLDER, 3), stored("00002-x", OLDER, 3)]),
            *([], [0, 1, 2], [], 4),
            id="two changed slices are a new generation of all",
        ),
        pytest.param(
            *(AB, [stored("00000-x", AB[0], LAST), stored("00001-x", OLD, LAST)]),
            *([], [1], [], LAST),
            id="at the last generation one write is enough",
        ),
        pytest.param(
            *(AB, [stored("00000-x", AB[0], LAST), stored("00001-y", spec("b"), 3)]),
            *(["00001-y", "00000-x"], [], [0, 1], 1),
            id="a pool whose generation cannot rise begins anew",
        ),
        pytest.param(
            *(AB, [stored("00001-x", AB[1], 5)]),
            *([], [1], [0], 6),
            id="a missing slice is a new generation of all",
        ),
        pytest.param(
            *(A, [stored("00000-x", AB[0], 2), stored("00001-x", AB[1], 2)]),
            *(["00001-x"], [0], [], 2),
            id="a slice too many is deleted",
        ),
        pytest.param(
            *(A, [stored("gpu-slice-without-index", A[0], 4)]),
            *(["gpu-slice-without-index"], [], [0], 5),
            id="an old name is replaced under a higher generation",
        ),
        *(
            pytest.param(
                A, [one, stored("00000-x", A[0], 2)], [one["metadata"]["name"]], [], [], None, id=why
            )
            for why, one in OBSOLETE.items()
        ),
    ],
)
def test_slices_become_what_is_wanted_with_few_writes(
    wanted: list[Object],
    there: list[Object],
    deleted: list[str],
    updated: list[int],
    created: list[int],
    generation: int | None,
) -> None:
    made = plan(wanted, *there)

    assert [item["metadata"]["name"] for item in made.deletes] == deleted
    assert [update.index for update in made.updates] == updated
    assert [create.index for create in made.creates] == created
    specs = [update.spec for update in made.updates] + [create.spec for create in made.creates]
    assert {one["pool"]["generation"] for one in specs} == ({generation} - {None})
    assert made.empty == (not (deleted or updated or created))


def test_a_taint_keeps_its_time_where_its_device_comes_into_another_slice() -> None:
    taint = {"key": "k", "effect": "NoSchedule"}
    first, second = spec("a"), spec("b")
    second["devices"][0]["taints"] = [{**taint, "timeAdded": "2026-01-01T00:00:00Z"}]
    wanted = [copy.deepcopy(second), copy.deepcopy(first)]
    wanted[0]["devices"][0]["taints"] = [dict(taint)]

    made = plan(wanted, stored("00000-x", first), stored("00001-x", second))

    assert made.updates[0].spec["devices"][0]["taints"][0]["timeAdded"] == "2026-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("name", "index"),
    [("00000-a", 0), ("0001f-gpu.nvidia.com-n-abcde", 31), ("123456-a", 0x123456)]
    + [(name, None) for name in ("0000-a", "0000G-a", "a", "00000", "-00000-a", "0000A-a")],
)
def test_the_index_is_read_from_the_name(name: str, index: int | None) -> None:
    assert index_of(name) == index


def test_a_name_begins_with_the_index_that_is_read_from_it() -> None:
    assert generate_name(31, "gpu.nvidia.com", "node-a") == "0001f-gpu.nvidia.com-node-a-"
    assert index_of(generate_name(2**22, "d", "n")) == 2**22


@pytest.mark.parametrize("node", ["n" * 63, "n" * 38 + "." + "m" * 60, "n" * 37 + "-." + "m" * 60])
def test_a_long_name_begins_with_what_the_server_keeps_of_it(node: str) -> None:
    name = generate_name(31, "gpu.nvidia.com", node)

    assert len(name) <= 58
    assert name.startswith("0001f-gpu.nvidia.com-nnnn")
    assert re.fullmatch(r".*n-", name)


def usable(items: dict[str, Object]) -> list[str] | None:
    """The contents that a scheduler uses: those of the highest generation when it is complete."""
    pools = [item["spec"]["pool"] for item in items.values()]
    newest = max((pool["generation"] for pool in pools), default=0)
    current = [item["spec"] for item in items.values() if item["spec"]["pool"]["generation"] == newest]
    counts = {one["pool"]["resourceSliceCount"] for one in current}
    if counts != {len(current)}:
        return None
    return sorted(content(one) for one in current)


def content(of: Object) -> str:
    """The name of the one device or counter set of a slice."""
    return str((of.get("devices") or of["sharedCounters"])[0]["name"])


def pool_of(counters: str, devices: str) -> list[Object]:
    """Slices with one counter set or one device each, the counters first."""
    count = len(counters) + len(devices)
    sets = [spec(count=count) | {"sharedCounters": [{"name": name}], "devices": []} for name in counters]
    return [*sets, *(spec(name, count=count) for name in devices)]


LETTERS = st.text("abc", max_size=3).map(lambda text: "".join(sorted(set(text))))
POOLS = st.tuples(LETTERS.map(str.upper), LETTERS).filter(any)


@given(st.lists(POOLS, min_size=2, max_size=5), st.lists(st.integers(0, 9), min_size=5, max_size=5))
def test_after_each_single_write_the_pool_is_the_old_one_the_new_one_or_unusable(
    pools: list[tuple[str, str]], cut_offs: list[int]
) -> None:
    """Some controllers die between two writes; the next wants another pool."""
    there: dict[str, Object] = {}
    serial = 0
    for wanted, cut_off in zip(pools, cut_offs, strict=False):
        specs = pool_of(*wanted)
        allowed = (usable(there) if there else None, sorted(map(content, specs)), None)
        made = plan(specs, *there.values())
        writes: list[tuple[str, Object | None]] = [(item["metadata"]["name"], None) for item in made.deletes]
        writes += [(update.stored["metadata"]["name"], update.spec) for update in made.updates]
        for create in made.creates:
            serial += 1
            writes.append((f"{create.index:05x}-{serial}", create.spec))
        for name, inside in writes if cut_off == 0 else writes[:-cut_off]:
            if inside is None:
                del there[name]
            else:
                there[name] = {"metadata": {"name": name, "uid": name}, "spec": inside}
            assert usable(there) in allowed
        if cut_off == 0:
            assert usable(there) == sorted(map(content, specs))
