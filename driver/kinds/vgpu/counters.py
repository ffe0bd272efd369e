"""Counters that let a GPU have vGPUs of one profile at a time, any number of them up to what it takes.

A host refuses a vGPU beside those of another profile. A counter of which all vGPUs of a profile take the same
cannot say that: if two of each profile fit, one of each does, too. So the slots differ. In counter ``n`` the
vGPU in slot ``n`` takes nearly all, the others of its profile share the little that is left, and every vGPU
of a later profile takes more than that: whoever of a profile is there, another profile lacks something.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

COUNTER = "vgpu-"
"""Before the number of a counter."""

_MOST = 2**63 - 1


def one_profile_at_a_time(
    slots: Mapping[str, int],
) -> tuple[dict[str, int], dict[tuple[str, int], dict[str, int]]] | None:
    """The counters, and what the vGPU of each profile in each slot takes of them.

    ``slots`` maps profiles to how many vGPUs of them fit. There are as many counters as slots of the profile
    with the second most, and fewer cannot do: of one counter only one vGPU of a profile can take more than
    half. None where the amounts would not fit into 64 bits.
    """
    order = sorted(slots, key=lambda profile: (slots[profile], profile))
    if len(order) < 2:
        return _only_one(slots)
    light = _light_amounts(order, slots)
    capacity = 2 * max(slots[profile] * light[profile] for profile in order) + 1
    if capacity > _MOST:
        return None
    counters = [f"{COUNTER}{number}" for number in range(slots[order[-2]])]
    taken = {}
    for profile in order:
        near_all = capacity - (slots[profile] - 1) * light[profile]
        for slot in range(slots[profile]):
            heavy = {counters[slot]: near_all} if profile != order[-1] else {}
            taken[profile, slot] = dict.fromkeys(counters, light[profile]) | heavy
    return dict.fromkeys(counters, capacity), taken


def _only_one(
    slots: Mapping[str, int],
) -> tuple[dict[str, int], dict[tuple[str, int], dict[str, int]]]:
    """One counter of slots, by which what takes all of the GPU excludes them."""
    name = f"{COUNTER}0"
    taken = {(profile, slot): {name: 1} for profile, count in slots.items() for slot in range(count)}
    return {name: len(taken)}, taken


def _light_amounts(order: list[str], slots: Mapping[str, int]) -> dict[str, int]:
    """What a vGPU takes of the counters of other slots: more than all that earlier profiles leave there."""
    light: dict[str, int] = {}
    left = 0
    for profile in order:
        light[profile] = left + 1
        left = max(left, (slots[profile] - 1) * light[profile])
    return light
