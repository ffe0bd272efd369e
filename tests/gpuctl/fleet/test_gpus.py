"""GPUs are told one by one: their forms, who holds how much of them, their taints."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuctl.fleet.cluster import Fleet, views_of
from gpuctl.fleet.gpus import GpuState
from gpuctl.fleet.holders import request_classes
from gpuctl.plan.planned import plan_node
from tests.gpuctl.fleet.published import FIRST, SECOND, THIRD, XID, Object, claim, devices, published


def gpus(slices: list[Object], *claims: Object) -> tuple[GpuState, ...]:
    (view,) = views_of(slices, claims)
    return view.gpus


def test_a_node_has_its_gpus_in_the_order_of_their_addresses_with_their_forms(tmp_path: Path) -> None:
    found = gpus(published(tmp_path))

    assert [gpu.index for gpu in found] == list(range(8))
    assert (found[0].memory_slices, found[1].memory_slices) == (8, 0)
    cut = {form.tier: (form.devices, form.places) for form in found[0].forms}
    assert cut["whole"] == (1, ())
    assert cut["mig 2g.20gb"] == (3, ((0, 2), (2, 2), (4, 2)))
    assert [form.tier for form in found[2].forms] == ["shared, mps"]
    assert found[0].uuid is not None
    assert found[0].uuid.startswith("GPU-")


def test_holders_have_a_part_of_the_gpu_and_a_place(tmp_path: Path) -> None:
    share = next(one["name"] for one in devices(published(tmp_path), THIRD) if "mps" in one["name"])
    consumed: Object = {"consumedCapacity": {"shares": "1"}, "shareID": "s-1"}

    found = gpus(
        published(tmp_path),
        claim("tuning", f"{FIRST}-mig-3g-40gb-4", pods=("tune-0",)),
        claim("ci", f"{FIRST}-mig-1g-10gb-0"),
        claim("train", SECOND),
        claim("lab-0", share, **consumed),
        claim("monitor", SECOND, adminAccess=True),
    )

    places = {one.claim: (one.start, one.size, one.part, one.kind) for one in found[0].holdings}
    assert places == {
        "team/tuning": (4, 4, 0.5, "partition"),
        "team/ci": (0, 1, 0.125, "partition"),
    }
    assert found[0].used == 0.625
    assert {(one.claim, one.admin_access, one.part) for one in found[1].holdings} == {
        ("team/train", False, 1.0),
        ("team/monitor", True, 0.0),
    }
    (lab,) = found[2].holdings
    assert (lab.kind, lab.part, lab.taken, lab.share_id) == ("shared", 0.25, "shares 1", "s-1")
    assert found[0].holdings[0].device_class == "large"
    assert {one.pods for one in found[0].holdings} == {("tune-0",), ()}


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


def test_taints_are_counted_over_the_devices_of_the_gpu(tmp_path: Path) -> None:
    slices = published(tmp_path)
    forms = devices(slices, FIRST)
    for one in forms[:2]:
        one["taints"] = [XID, {"key": "gpu.nvidia.com/unmonitored", "effect": "None"}]
    devices(slices, SECOND)[0]["taints"] = [{"key": "gpu.nvidia.com/unmonitored", "effect": "None"}]

    sick, told, well = gpus(slices)[:3]

    assert [(str(one.taint), one.devices, one.of_gpu, one.since) for one in sick.taints] == [
        ("gpu.nvidia.com/unmonitored:None", 2, len(forms), None),
        ("gpu.nvidia.com/xid=79:NoSchedule", 2, len(forms), XID["timeAdded"]),
    ]
    assert (sick.is_sick, told.is_sick, well.is_sick) == (True, False, False)


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
