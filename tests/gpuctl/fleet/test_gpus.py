"""GPUs are told one by one: their forms, who holds how much of them, their taints."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuctl.fleet.cluster import Fleet, views_of
from gpuctl.fleet.gpus import GpuState
from gpuctl.fleet.holders import request_classes
from gpuctl.plan.planned import plan_node
from tests.gpuctl.fleet.published import SECOND, THIRD, Object, claim, devices, published


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


def test_each_gpu_of_a_device_of_several_has_its_part_of_the_memory(tmp_path: Path) -> None:
    config = tmp_path / "node.yaml"
    config.write_text("version: v1\nrules: [{offer: passthrough}]\n")
    slices = list(plan_node("passthrough-quad", "node-a", config).slices)
    pair = "gpu-0000-ca-00-0-0000-cb-00-0-vfio"
    (device,) = (
        one for stored in slices for one in stored["spec"].get("devices") or () if one["name"] == pair
    )
    device["capacity"]["memory"] = {"value": "90Gi"}

    def shown() -> list[int | None]:
        found = [one for one in gpus(slices, claim("vm", pair)) if one.holdings]
        assert len(found) == 2
        return [amount for gpu in found for amount in (gpu.memory_bytes, gpu.holdings[0].memory_bytes)]

    assert shown() == [45 * 2**30] * 4
    device["capacity"]["memory"] = {"value": "9" * 70}
    assert shown() == [None] * 4, "of no GPU"
    device["capacity"]["memory"] = {"value": "90Gi"}
    del device["attributes"]["productName"]
    assert shown() == [None] * 4, "GPUs of unlike products"


@pytest.mark.parametrize(
    ("profile", "size"), [("1g.10gb", 1), ("2g.20gb", 2), ("3g.40gb", 4), ("7g.80gb", 8), (None, 1)]
)
def test_a_partition_without_counters_is_as_large_as_its_profile(profile: str | None, size: int) -> None:
    (item,) = plan_node("a30-quad", "node-a", None).slices
    attributes = {"type": {"string": "mig"}, **({"profile": {"string": profile}} if profile else {})}
    item["spec"]["devices"] = [
        {"name": "gpu-0000-17-00-0-static-3g-40gb-4", "attributes": attributes},
    ]

    (gpu,) = gpus([item])

    assert gpu.forms[0].places == ((4, size),)
    assert gpu.memory_slices == 4 + size


@pytest.mark.parametrize(
    ("status", "told"), [("False", "Xid: XID 79"), ("Unknown", "Xid: XID 79"), ("True", None)]
)
def test_why_a_device_is_not_ready_is_told(tmp_path: Path, status: str, told: str | None) -> None:
    held = claim("train", SECOND)
    condition = {"type": "Ready", "status": status, "reason": "Xid", "message": "XID 79"}
    entry = {"driver": "gpu.nvidia.com", "pool": "node-a/gpu.nvidia.com", "device": SECOND}
    held["status"]["devices"] = [{**entry, "conditions": [condition]}]

    (holding,) = gpus(published(tmp_path), held)[1].holdings

    assert holding.trouble == told


def test_the_class_of_an_alternative_is_its_own() -> None:
    alternatives = [{"name": "a", "deviceClassName": "large"}, {"name": "b", "deviceClassName": "small"}]
    asked = {"spec": {"devices": {"requests": [{"name": "gpus", "firstAvailable": alternatives}]}}}

    assert dict(request_classes(asked)) == {"gpus/a": "large", "gpus/b": "small"}


def test_only_nodes_of_which_something_changed_are_looked_at_anew(tmp_path: Path) -> None:
    first, second = (published(tmp_path, name) for name in ("node-a", "node-b"))
    for number, item in enumerate((*first, *second)):
        item["metadata"] |= {"uid": f"u-{number}", "resourceVersion": "1"}
    state = Fleet()

    before = state.read([*first, *second], ())
    again = state.read([dict(one) for one in (*first, *second)], ())
    held = state.read([*first, *second], [claim("train", SECOND, node="node-b")])
    gone = state.read(first, ())

    assert [one is other for one, other in zip(before, again, strict=True)] == [True, True]
    assert [one is other for one, other in zip(before, held, strict=True)] == [True, False]
    assert held[1].gpus[1].used == 1
    assert [view.name for view in gone] == ["node-a"]
