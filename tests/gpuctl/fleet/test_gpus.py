"""GPUs are told one by one: their forms, who holds how much of them, their taints."""

from pathlib import Path

import pytest

from gpuctl.fleet.gpus import GpuState
from tests.clusters import Object, plan_node, views_of
from tests.gpuctl.fleet.published import THIRD, claim, devices, published


def gpus(slices: list[Object], *claims: Object) -> tuple[GpuState, ...]:
    (view,) = views_of(slices, claims)
    return view.gpus


@pytest.mark.parametrize("domain", ["", "gpu.nvidia.com/"])
@pytest.mark.parametrize(("amount", "bytes_"), [("0", None), ("5Gi", 5 * 2**30)])
def test_the_memory_of_a_share_is_told_only_where_the_scheduler_counts_it(
    tmp_path: Path, amount: str, bytes_: int | None, domain: str
) -> None:
    """A scheduler may write the names of capacities with the driver's domain."""
    share = next(one["name"] for one in devices(published(tmp_path), THIRD) if "mps" in one["name"])
    amounts = {f"{domain}shares": "1", f"{domain}memory": amount}
    allocated = claim("lab-0", share, consumedCapacity=amounts, shareID="s-1")

    (view,) = views_of(published(tmp_path), [allocated])
    (lab,) = view.gpus[2].holdings

    assert (lab.memory_bytes, lab.part) == (bytes_, 0.25)
    assert lab.taken == ("shares 1" if bytes_ is None else "shares 1, memory 5Gi")
    shared = view.state.tiers["shared, mps"]
    assert (shared.claims, shared.claims_left) == (1, 3)


@pytest.mark.parametrize(
    ("profile", "slices", "size"),
    [("1g.10gb", 0, 1), ("3g.40gb", 0, 4), ("7g.80gb", 0, 8), (None, 0, 1), ("1g.20gb", 2, 2)],
)
def test_a_partition_without_counters_has_the_slices_that_it_publishes_or_those_of_its_profile(
    profile: str | None, slices: int, size: int
) -> None:
    (item,) = plan_node("a30-quad", "node-a", None).slices
    attributes = {"type": {"string": "mig"}, **({"profile": {"string": profile}} if profile else {})}
    capacity = {f"memorySlice{number}": {"value": "1"} for number in range(slices)}
    part = {"name": "gpu-0000-17-00-0-static-3g-40gb-4", "attributes": attributes, "capacity": capacity}
    item["spec"]["devices"] = [part]

    (gpu,) = gpus([item])

    assert gpu.forms[0].places == ((4, size),)
    assert gpu.memory_slices == 4 + size
