"""Tiers say for how many claims shared GPUs have room, and which forms exclude each other."""

from pathlib import Path

import pytest

from tests.clusters import Object, views_of
from tests.gpuctl.fleet.published import claim
from tests.gpuctl.plan.test_node_gpus import planned

FIRST = "gpu-0000-17-00-0"
SLICED = "shared: {strategy: TimeSlicing, shares: 4}"
BOTH = f"offer: whole, mig: off, {SLICED}"
PASSED = "mig: off, passthrough: true"
IN_STEPS = "shared: {strategy: MPS, shares: 8, memory: {step: 1Gi}}"
TRAIN = claim("train", FIRST)


def shares(count: int, device: str = f"{FIRST}-ts-4", memory: str = "0") -> list[Object]:
    consumed = {"shares": "1", "memory": memory}
    return [
        claim(f"pod-{number}", device, shareID=str(number), consumedCapacity=consumed)
        for number in range(count)
    ]


@pytest.mark.parametrize(
    ("rule", "claims", "tier", "counts"),
    [
        (SLICED, shares(3), "shared, time-slicing", (1, 4, 0, 13)),
        (SLICED, shares(4), "shared, time-slicing", (1, 3, 0, 12)),
        (IN_STEPS, shares(1, f"{FIRST}-mps-8-mem", "16Gi"), "shared, mps", (1, 4, 0, 3 * 8 + 3)),
        (BOTH, shares(1), "whole", (0, 3, 1, None)),
        (BOTH, shares(1), "shared, time-slicing", (1, 4, 0, 15)),
        (BOTH, [TRAIN], "shared, time-slicing", (0, 3, 1, 12)),
        (PASSED, [TRAIN], "passthrough", (0, 3, 1, None)),
    ],
)
def test_the_room_of_a_tier(
    tmp_path: Path, rule: str, claims: list[Object], tier: str, counts: tuple[int | None, ...]
) -> None:
    """The counts are of devices allocated, free and excluded, and of claims that have room."""
    [view] = views_of(planned(tmp_path, "a30-quad", rule), claims)

    count = view.state.tiers[tier]
    assert (count.allocated, count.free, count.excluded, count.claims_left) == counts
