"""``gpuctl explain`` says which part of a GPU is taken, and by whom, where forms of it exclude each other."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from gpuctl.explain.answer import explain_claim
from gpuctl.explain.findings import Explanation
from gpuctl.explain.picture import picture
from gpuctl.explain.snapshot import Snapshot
from gpuctl.plan.planned import plan_node

GPU = "gpu-0000-1b-00-0"
OURS = 'device.attributes["gpu.nvidia.com"]'
CLASSES = tuple(
    {"metadata": {"name": name}, "spec": {"selectors": [{"cel": {"expression": expression}}]}}
    for name, expression in (
        ("whole", f'{OURS}.type == "gpu"'),
        ("small", f'{OURS}.type == "mig" && {OURS}.profile == "1g.10gb"'),
        ("half", f'{OURS}.type == "mig" && {OURS}.profile == "3g.40gb"'),
        ("every", "true"),
        ("media", f'{OURS}.type == "mig" && {OURS}.profile == "1g.10gb+me"'),
    )
)


@pytest.fixture
def slices(tmp_path: Path) -> tuple[dict[str, Any], ...]:
    """One GPU of a node is offered in all forms, the others are hidden."""
    config = tmp_path / "node.yaml"
    config.write_text(
        "version: v1\nrules:\n- when: gpu.index == 0\n"
        "  mig: {dynamic: {profiles: [1g, 1g+me, 3g]}}\n- offer: hidden\n"
    )
    return plan_node("hgx-h100", "node-a", config).slices


def claim(name: str, device_class: str, *held: str) -> dict[str, Any]:
    results = [
        {"request": "gpu", "driver": "gpu.nvidia.com", "pool": "node-a/gpu.nvidia.com", "device": device}
        for device in held
    ]
    exactly = {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": 1}
    return {
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
        **({"status": {"allocation": {"devices": {"results": results}}}} if held else {}),
    }


def explained(
    slices: tuple[dict[str, Any], ...], wanted: str, *held: dict[str, Any], **exactly: Any
) -> Explanation:
    """Why a claim of this class waits; ``exactly`` has more fields of its request."""
    node = {"metadata": {"name": "node-a"}, "spec": {}}
    state = Snapshot((node,), slices, CLASSES, held)
    mine = claim("mine", wanted)
    mine["spec"]["devices"]["requests"][0]["exactly"] |= exactly
    return explain_claim(mine, state)


def by_counters(told: Explanation) -> list[tuple[str, int]]:
    found = told.requests[0].nodes[0].outcomes
    return [(one.reason, len(one.devices)) for one in found if one.gate == "counters"]


def test_a_whole_gpu_that_is_cut_names_the_memory_slices_and_their_holders(
    slices: tuple[dict[str, Any], ...],
) -> None:
    holders = (
        claim("b", "small", f"{GPU}-mig-1g-10gb-0"),
        claim("a", "small", f"{GPU}-mig-3g-40gb-4"),
    )

    told = explained(slices, "whole", *holders)

    [(reason, count)] = by_counters(told)
    assert count == 1
    assert f"memory slice 0 is held by claim default/b ({GPU}-mig-1g-10gb-0)" in reason
    assert f"memory slices 4-7 are held by claim default/a ({GPU}-mig-3g-40gb-4)" in reason
    (finding,) = [one for one in told.findings if one.kind == "counters"]
    assert "1 matching device cannot be allocated: its GPU is cut" in finding.message
    assert finding.remedy == "wait until claims default/a, default/b end"


def test_partitions_of_a_gpu_that_is_held_as_a_whole_say_so(slices: tuple[dict[str, Any], ...]) -> None:
    told = explained(slices, "small", claim("all", "whole", GPU))

    assert by_counters(told) == [(f"its GPU is held as a whole by claim default/all ({GPU})", 7)]
    file = io.StringIO()
    Console(file=file, width=200).print(picture(told))
    assert "what helps: wait until claim default/all ends" in file.getvalue()


def test_a_claim_that_looks_on_is_told_that_it_wants_room_like_any_other(
    slices: tuple[dict[str, Any], ...],
) -> None:
    def rule(*held: dict[str, Any], admin: bool = True) -> list[str]:
        told = explained(slices, "whole", *held, adminAccess=admin)
        return [one.message for one in told.findings if one.kind == "admin-access"]

    cut = claim("a", "small", f"{GPU}-mig-1g-10gb-0")
    (message,) = rule(cut)
    assert "request gpu has admin access" in message
    assert "free counters" in message
    assert rule(cut, admin=False) == []
    assert rule(claim("all", "whole", GPU)) == [message]  # the GPU has counters, which its holder has
    assert rule() == []


def test_a_claim_that_looks_on_at_all_forms_of_a_gpu_at_once_is_told_so_too(
    slices: tuple[dict[str, Any], ...],
) -> None:
    told = explained(slices, "every", adminAccess=True, allocationMode="All")

    assert [one.kind for one in told.findings] == ["all", "admin-access"]


def test_partitions_of_a_gpu_that_is_shared_name_all_who_have_a_share(tmp_path: Path) -> None:
    config = tmp_path / "shared.yaml"
    config.write_text(
        "version: v1\nrules:\n- when: gpu.index == 0\n  mig: {dynamic: {profiles: [3g]}}\n"
        "  shared: {strategy: TimeSlicing, shares: 2}\n- offer: hidden\n"
    )
    shared = plan_node("hgx-h100", "node-a", config).slices
    holders = [claim(name, "whole", f"{GPU}-ts-2") for name in ("a", "b")]
    for number, one in enumerate(holders):
        (result,) = one["status"]["allocation"]["devices"]["results"]
        result |= {"shareID": str(number), "consumedCapacity": {"memory": "0", "shares": "1"}}

    told = explained(shared, "half", *holders)

    both = "claims default/a, default/b"
    part = f"its GPU is shared by time-slicing, and shares are held by {both} ({GPU}-ts-2)"
    assert by_counters(told) == [(part, 2)]
    (finding,) = [one for one in told.findings if one.kind == "counters"]
    assert finding.remedy == "wait until claims default/a, default/b end"


def test_devices_that_one_partition_excludes_are_told_together(slices: tuple[dict[str, Any], ...]) -> None:
    holders = [claim(f"c{start}", "small", f"{GPU}-mig-1g-10gb-{start}") for start in range(4)]

    told = explained(slices, "small", *holders, claim("big", "small", f"{GPU}-mig-3g-40gb-4"))

    part = f"its GPU is cut: memory slices 4-7 are held by claim default/big ({GPU}-mig-3g-40gb-4)"
    assert by_counters(told) == [(part, 3)]


def test_an_engine_that_ran_out_is_named_where_the_memory_slices_are_free(
    slices: tuple[dict[str, Any], ...],
) -> None:
    told = explained(slices, "media", claim("video", "media", f"{GPU}-mig-1g-10gb-me-0"))

    reasons = dict(by_counters(told))
    part = f"its GPU is cut: ofa engines are held by claim default/video ({GPU}-mig-1g-10gb-me-0)"
    assert reasons[part] == 6


def test_counters_of_another_driver_are_told_as_the_allocator_names_them() -> None:
    counters = {"memory": {"value": "1"}}
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 2}
    base = {"driver": "other.example.com", "nodeName": "node-a", "pool": pool}
    consumes = [{"counterSet": "set", "counters": counters}]
    devices = [{"name": name, "consumesCounters": consumes} for name in ("one", "two")]
    slices = (
        {
            "metadata": {"name": "a"},
            "spec": {**base, "sharedCounters": [{"name": "set", "counters": counters}]},
        },
        {"metadata": {"name": "b"}, "spec": {**base, "devices": devices}},
    )
    holder = claim("theirs", "any", "one")
    holder["status"]["allocation"]["devices"]["results"][0] |= {"driver": "other.example.com", "pool": "p"}
    node = {"metadata": {"name": "node-a"}, "spec": {}}
    classes = ({"metadata": {"name": "any"}, "spec": {}},)

    told = explain_claim(claim("mine", "any"), Snapshot((node,), slices, classes, (holder,)))

    [(reason, count)] = by_counters(told)
    assert (reason, count) == (
        "1 of counter memory of set is needed, 0 of 1 is left; used by claims: default/theirs",
        1,
    )
