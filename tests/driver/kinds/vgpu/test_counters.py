"""The counters of vGPUs allow what a host makes, and nothing else: any number of one profile."""

from collections import Counter
from collections.abc import Mapping
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from driver.devices.limits import MAX_COUNTERS
from driver.kinds.vgpu.kind import one_profile_at_a_time

Slot = tuple[str, int]

SLOTS = st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 6), min_size=1, max_size=4)
L40S = {"1": 32, "2": 24, "3": 16, "4": 12, "6": 8, "8": 6, "12": 4, "16": 3, "24": 2, "48": 1}


def planned(slots: Mapping[str, int]) -> tuple[dict[str, int], dict[Slot, dict[str, int]]]:
    found = one_profile_at_a_time(slots)
    assert found is not None
    return found


def fits(counters: Mapping[str, int], taken: list[Mapping[str, int]]) -> bool:
    total: Counter[str] = Counter()
    for one in taken:
        total.update(one)
    return all(amount <= counters[name] for name, amount in total.items())


@given(SLOTS)
def test_all_slots_of_one_profile_fit_together(slots: dict[str, int]) -> None:
    counters, taken = planned(slots)

    for profile, count in slots.items():
        assert fits(counters, [taken[profile, slot] for slot in range(count)])


@given(SLOTS)
def test_no_slot_of_one_profile_fits_beside_any_of_another(slots: dict[str, int]) -> None:
    counters, taken = planned(slots)

    for one, other in combinations(taken, 2):
        assert fits(counters, [taken[one], taken[other]]) == (one[0] == other[0])


@given(SLOTS)
def test_what_takes_all_counters_excludes_every_vgpu(slots: dict[str, int]) -> None:
    counters, taken = planned(slots)

    assert fits(counters, [counters])
    assert not any(fits(counters, [counters, one]) for one in taken.values())


def test_all_sizes_of_a_large_gpu_stay_within_the_counters_of_one_set() -> None:
    counters, taken = planned(L40S)

    assert len(counters) == 24 <= MAX_COUNTERS
    assert len(taken) == sum(L40S.values())
    assert max(counters.values()) < 2**63


def test_what_64_bits_cannot_say_is_not_said() -> None:
    assert one_profile_at_a_time({f"profile-{number}": 32 for number in range(20)}) is None
