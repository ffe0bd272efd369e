"""A node on the page is what gpuctl status says of it, and more: what of each GPU is given, and to whom."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuctl.node.planned import plan_node
from gpuctl.status.cluster_state import views_of
from gpuctl.status.fleet import fleet
from gpuctl.web.seen.gpus import NodeView, node_view
from gpuctl.web.seen.published import published

Object = dict[str, Any]

EXAMPLES = Path(__file__).resolve().parents[4] / "deploy/examples/node-config"
CONFIGS = ("", "dynamic-mig", "all-tiers", "all-kinds", "memory-shares")


@cache
def _planned(config: str) -> str:
    return json.dumps(plan_node("hgx-h100", "node-a", EXAMPLES / f"{config}.yaml" if config else None).slices)


def slices(config: str) -> list[Object]:
    found: list[Object] = json.loads(_planned(config))
    for number, one in enumerate(found):
        one["metadata"]["name"] = f"slice-{number:03}"
    return found


def claim(name: str, device: str, *, share: dict[str, str] | None = None, admin: bool = False) -> Object:
    result: Object = {
        "request": "gpu",
        "driver": "gpu.nvidia.com",
        "pool": "node-a/gpu.nvidia.com",
        "device": device,
    }
    if share is not None:
        result |= {"shareID": f"share-{name}", "consumedCapacity": share}
    if admin:
        result["adminAccess"] = True
    exact = {"name": "gpu", "exactly": {"deviceClassName": "large"}}
    return {
        "metadata": {"namespace": "team", "name": name},
        "spec": {"devices": {"requests": [exact]}},
        "status": {
            "allocation": {"devices": {"results": [result]}},
            "reservedFor": [{"resource": "pods", "name": f"{name}-pod", "uid": name}],
        },
    }


def seen(config: str, *claims: Object) -> NodeView:
    return node_view(published("node-a", slices(config)), claims, None)


def gpu(view: NodeView, address: str) -> tuple[str, float, int]:
    """Its use, the percentage that is given, and the number of claims."""
    found = next(one for one in view.gpus if one.gpu == address)
    return found.use, round(found.given * 100), found.claims


DEVICES = {
    config: [str(one["name"]) for item in slices(config) for one in item["spec"].get("devices") or ()]
    for config in CONFIGS
}


@pytest.mark.parametrize("config", CONFIGS)
@given(data=st.data())
def test_the_tiers_of_a_node_are_those_of_gpuctl_status(config: str, data: st.DataObject) -> None:
    held = data.draw(st.lists(st.sampled_from(DEVICES[config]), max_size=8))
    tainted = data.draw(st.sets(st.sampled_from(DEVICES[config]), max_size=4))
    published_slices = slices(config)
    for device in (one for item in published_slices for one in item["spec"].get("devices") or ()):
        if device["name"] in tainted:
            device["taints"] = [{"key": "gpu.nvidia.com/xid", "value": "79", "effect": "NoSchedule"}]
    claims = [
        claim(f"c{number}", name, share={"shares": "1"} if "-ts-" in name or "-mps-" in name else None)
        for number, name in enumerate(held)
    ]

    view = node_view(published("node-a", published_slices), claims, None)

    (state,) = fleet(published_slices, claims)
    ours = {one.tier: one for one in view.tiers}
    assert ours.keys() == state.tiers.keys()
    for name, theirs in state.tiers.items():
        one = ours[name]
        assert (one.devices, one.held, one.free, one.excluded, one.unavailable, one.claims) == (
            theirs.devices,
            theirs.allocated,
            theirs.free,
            theirs.excluded,
            theirs.unavailable,
            theirs.claims,
        )
    assert sum(one.tainted for one in view.gpus) == len(tainted)
    assert all(0 <= one.given <= 1 for one in view.gpus)


def test_what_is_given_of_a_gpu_is_counted_by_its_form() -> None:
    view = seen(
        "all-tiers",
        claim("whole", "gpu-0000-df-00-0"),
        claim("half", "gpu-0000-1b-00-0-mig-3g-40gb-4"),
        claim("eighth", "gpu-0000-1b-00-0-mig-1g-10gb-0"),
        claim("share", "gpu-0000-43-00-0-ts-4", share={"shares": "1"}),
        claim("other", "gpu-0000-43-00-0-ts-4", share={"shares": "1"}),
        claim("looks", "gpu-0000-52-00-0", admin=True),
    )

    assert gpu(view, "0000:df:00.0") == ("whole", 100, 1)
    assert gpu(view, "0000:1b:00.0") == ("partitions", 62, 2)
    assert gpu(view, "0000:43:00.0") == ("shares", 50, 2)
    assert gpu(view, "0000:52:00.0") == ("free", 0, 0)
    assert sorted(one.claim for one in view.holdings if one.looks_on) == ["team/looks"]


@pytest.mark.parametrize("config", CONFIGS)
def test_a_partition_takes_as_much_of_its_gpu_as_gpuctl_status_says(config: str) -> None:
    for name in (
        one for one in DEVICES[config] if "-mig-" in one and "-ts-" not in one and "-mps-" not in one
    ):
        held = [claim("one", name)]
        (view,) = views_of(slices(config), held)
        (of_status,) = [holding.part for found in view.gpus for holding in found.holdings]

        (of_page,) = [found.given for found in seen(config, *held).gpus if found.claims]

        assert of_page == of_status
        if name.endswith("mig-3g-40gb-4"):
            assert of_page == 0.5


def test_a_gpu_for_a_machine_is_told_apart() -> None:
    vfio = next(name for name in DEVICES["all-kinds"] if "vfio" in name)

    view = seen("all-kinds", claim("vm", vfio))

    assert [one.use for one in view.gpus].count("machine") == 1


def test_static_partitions_without_counters_are_weighed_by_their_memory() -> None:
    (one,) = json.loads(json.dumps(plan_node("a30-quad", "node-a", None).slices))
    whole = one["spec"]["devices"][0]
    parts = [
        {
            "name": f"part-{number}",
            "attributes": {
                "type": {"string": "mig"},
                "profile": {"string": profile},
                "resource.kubernetes.io/pciBusID": {"string": "0000:01:00.0"},
            },
            "capacity": {"memory": {"value": memory}},
        }
        for number, (profile, memory) in enumerate((("1g", "5Gi"), ("3g", "15Gi")))
    ]
    one["spec"]["devices"] = [whole, *parts]
    one["metadata"]["name"] = "slice"

    view = node_view(published("node-a", [one]), [claim("train", "part-1")], None)

    assert gpu(view, "0000:01:00.0") == ("partitions", 75, 1)


def test_what_the_status_of_a_claim_says_of_its_device_is_told() -> None:
    held = claim("train", "gpu-0000-1b-00-0")
    (result,) = held["status"]["allocation"]["devices"]["results"]
    sick = {"type": "Ready", "status": "False", "reason": "Xid", "message": "Xid 79: it fell off the bus"}
    held["status"]["devices"] = [{**result, "conditions": [sick]}]

    view = seen("", held)

    assert view.not_ready == (("team/train", "gpu-0000-1b-00-0: Xid 79: it fell off the bus"),)
    assert view.is_sick


def test_a_node_that_is_cordoned_or_not_ready_says_so() -> None:
    node = {
        "metadata": {"name": "node-a"},
        "spec": {"unschedulable": True},
        "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]},
    }

    assert node_view(published("node-a", slices("")), (), node).remarks == ("cordoned", "not ready")


def test_a_pool_that_is_not_complete_gives_nothing() -> None:
    cut = slices("dynamic-mig")[:-1]

    view = node_view(published("node-a", cut), (), None)

    assert view.problem is not None
    assert all(one.blocked for one in view.gpus)
    assert not view.free
