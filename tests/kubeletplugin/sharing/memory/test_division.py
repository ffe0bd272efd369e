"""What containers get is divided so that nothing is ever given twice."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kubeletplugin.claims.journal.entry import MemoryRecord
from kubeletplugin.kubelet.wire.containers import ContainerName
from kubeletplugin.sharing.memory.division import (
    MIB,
    Portion,
    admitted,
    expected_containers,
    extras,
    lowered,
    portions,
    raised,
)

GIB = 1 << 30
AMOUNTS = st.integers(0, 64 * GIB)
NAMES = st.sampled_from("abcdef")


def name(container: str, pod: str = "pod") -> ContainerName:
    return ContainerName("team", pod, container)


def test_amounts_are_whole_mib_rounded_down() -> None:
    memory = MemoryRecord(10 * GIB, 10 * GIB)
    third = 10 * GIB // 3 // MIB * MIB
    assert portions(memory, 10 * GIB, {1: "a", 2: "b"}, ("c",)) == {
        1: Portion(third, third),
        2: Portion(third, third),
    }


def test_a_named_part_is_kept_for_a_container_that_is_to_come() -> None:
    memory = MemoryRecord(10 * GIB, 10 * GIB, parts={"large": 6 * GIB})
    assert portions(memory, 10 * GIB, {1: "a"}, ("large",)) == {1: Portion(4 * GIB, 4 * GIB)}
    assert portions(memory, 10 * GIB, {1: "a"}, ()) == {1: Portion(10 * GIB, 10 * GIB)}


def test_named_parts_that_leave_nothing_leave_nothing() -> None:
    memory = MemoryRecord(10 * GIB, 10 * GIB, parts={"large": 10 * GIB})
    assert portions(memory, 10 * GIB, {1: "a", 2: "large"}, ()) == {
        1: Portion(),
        2: Portion(10 * GIB, 10 * GIB),
    }


@given(
    AMOUNTS,
    st.integers(1, 4),
    st.dictionaries(st.integers(), NAMES, max_size=6),
    st.lists(NAMES, max_size=6),
    st.dictionaries(NAMES, AMOUNTS, max_size=3),
    AMOUNTS,
)
def test_all_portions_fit_into_the_claim_where_the_named_ones_do(
    guaranteed: int,
    factor: int,
    present: dict[int, str],
    to_come: list[str],
    parts: dict[str, int],
    each: int,
) -> None:
    memory = MemoryRecord(guaranteed, guaranteed * factor, each_bytes=each, parts=parts)
    found = portions(memory, memory.most_bytes, present, tuple(to_come))
    assert found.keys() == present.keys()
    named = sum(parts[one] for one in (*present.values(), *to_come) if one in parts)
    if named <= guaranteed:
        assert sum(one.soft_bytes for one in found.values()) <= guaranteed
        assert sum(one.hard_bytes for one in found.values()) <= memory.most_bytes
    assert all(one.soft_bytes <= one.hard_bytes for one in found.values())


@given(AMOUNTS, st.dictionaries(st.integers(), AMOUNTS, max_size=6))
def test_what_is_free_is_given_once(free: int, wanted: dict[int, int]) -> None:
    found = extras(free, wanted)
    assert found.keys() == wanted.keys()
    assert sum(found.values()) <= free
    assert all(found[key] <= wanted[key] for key in wanted)
    if sum(wanted.values()) <= free:
        assert found == wanted


@given(AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS)
def test_nobody_comes_down_below_what_they_use_nor_goes_up(
    now: int, soft: int, target: int, used: int
) -> None:
    found = lowered(Portion(min(soft, now), now), Portion(min(soft, target), target), used)
    assert found.hard_bytes <= now
    assert found.hard_bytes >= min(now, used)
    assert found.soft_bytes <= found.hard_bytes


@given(st.lists(st.tuples(AMOUNTS, AMOUNTS), max_size=4), AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS)
def test_who_is_admitted_fits_beside_the_others(
    others: list[tuple[int, int]], soft: int, more: int, most: int, room: int, gpu_room: int
) -> None:
    held = [Portion(min(one), max(one)) for one in others]
    memory = MemoryRecord(most // 2, most)
    found = admitted(Portion(soft, soft + more), memory, held, room, gpu_room)
    if found != Portion():
        assert sum(one.hard_bytes for one in held) + found.hard_bytes <= most
        assert sum(one.soft_bytes for one in held) + found.soft_bytes <= most // 2
        assert found.hard_bytes <= gpu_room
        assert found.soft_bytes == soft


@given(st.dictionaries(st.integers(), st.tuples(AMOUNTS, AMOUNTS), max_size=4), AMOUNTS, AMOUNTS, AMOUNTS)
def test_who_is_raised_stays_within_the_room(
    now: dict[int, tuple[int, int]], target: int, most: int, room: int
) -> None:
    held = {key: Portion(min(one), max(one)) for key, one in now.items()}
    memory = MemoryRecord(most // 2, most)
    found = raised(held, dict.fromkeys(held, Portion(target // 2, target)), memory, room)
    before, after = held, {**held, **found}
    more = sum(one.hard_bytes for one in after.values()) - sum(one.hard_bytes for one in before.values())
    assert 0 <= more <= room
    assert all(after[key].hard_bytes >= before[key].hard_bytes for key in before)
    if found:
        assert sum(one.soft_bytes for one in after.values()) <= max(
            most // 2, sum(one.soft_bytes for one in before.values())
        )


def test_those_that_the_kubelet_lists_are_waited_for() -> None:
    listed = frozenset({name("a"), name("b")})
    assert expected_containers(listed, [name("a")], 1, name("a")) == ("b",)
    assert expected_containers(listed, [name("a"), name("b")], 1) == ()
    assert expected_containers(frozenset(), [name("a")], 1) == ()


def test_an_init_container_waits_for_nobody_of_its_pod() -> None:
    listed = frozenset({name("a"), name("b", pod="other")})
    assert expected_containers(listed, [name("init")], 1, name("init")) == ("b",)


def test_a_container_without_a_name_waits_for_all_that_are_listed() -> None:
    nameless = ContainerName("", "", "")
    assert expected_containers(frozenset({name("a")}), [nameless], 1, nameless) == ("a",)


def test_several_requests_are_used_by_as_many_containers_each() -> None:
    listed = frozenset({name("a"), name("b"), name("c")})
    assert expected_containers(listed, [name("a")], 3) == ()
    assert expected_containers(listed, [name("a")], 2) == ("",)
    assert expected_containers(listed, [name("a"), name("b"), name("c")], 2) == ()
