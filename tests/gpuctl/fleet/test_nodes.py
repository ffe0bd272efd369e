"""A node with its claims: its devices by how they are, and how much of each GPU claims have."""

import json
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuctl.fleet.nodes import NodeView
from tests.clusters import Object, plan_node, views_of
from tests.gpuctl.fleet.published import claim

EXAMPLES = Path(__file__).resolve().parents[3] / "deploy/examples/node-config"
CONFIGS = ("", "dynamic-mig", "all-tiers", "all-kinds", "memory-shares")


@cache
def _planned(config: str) -> str:
    return json.dumps(plan_node("hgx-h100", "node-a", EXAMPLES / f"{config}.yaml" if config else None).slices)


def slices(config: str) -> list[Object]:
    found: list[Object] = json.loads(_planned(config))
    for number, one in enumerate(found):
        one["metadata"]["name"] = f"slice-{number:03}"
    return found


def gpu(view: NodeView, address: str) -> tuple[str, float, int]:
    """Its use, the percentage that is given, and the number of claims."""
    found = next(one for one in view.gpus if one.pci == address)
    return found.use, round(found.used * 100), found.claims


DEVICES = {
    config: [str(one["name"]) for item in slices(config) for one in item["spec"].get("devices") or ()]
    for config in CONFIGS
}


@pytest.mark.parametrize("config", CONFIGS)
@given(data=st.data())
def test_every_device_of_a_tier_is_counted_once(config: str, data: st.DataObject) -> None:
    held = data.draw(st.lists(st.sampled_from(DEVICES[config]), max_size=8))
    tainted = data.draw(st.sets(st.sampled_from(DEVICES[config]), max_size=4))
    published_slices = slices(config)
    for device in (one for item in published_slices for one in item["spec"].get("devices") or ()):
        if device["name"] in tainted:
            device["taints"] = [{"key": "gpu.nvidia.com/xid", "value": "79", "effect": "NoSchedule"}]
    share: Object = {"shareID": "s", "consumedCapacity": {"shares": "1"}}
    claims = [
        claim(f"c{number}", name, **(share if "-ts-" in name or "-mps-" in name else {}))
        for number, name in enumerate(held)
    ]

    (view,) = views_of(published_slices, claims)

    tiers = view.state.tiers.values()
    assert sum(one.devices for one in tiers) == len(DEVICES[config])
    assert sum(one.claims for one in tiers) == len(held)
    assert sum(one.allocated for one in tiers) == len(view.held) == len(set(held))
    assert sum(one.unavailable for one in tiers) == len(view.unavailable) == len(tainted)
    assert sum(one.free for one in tiers) == len(view.free)
    for one in tiers:
        if one.claims_left is None:
            taken = one.devices - one.free - one.excluded
            assert max(one.allocated, one.unavailable) <= taken <= one.allocated + one.unavailable
        assert one.at_once <= one.free
    assert sum(gpu.tainted for gpu in view.gpus) >= len(tainted)
    assert all(0 <= gpu.used <= 1 for gpu in view.gpus)


@pytest.mark.parametrize(("profile", "percent"), [("a30-6c-3", 25), ("a30-12c-1", 50), ("a30-24c-0", 100)])
def test_a_vgpu_takes_as_much_of_its_gpu_as_fit_beside_each_other(profile: str, percent: int) -> None:
    published = list(plan_node("vgpu-and-passthrough", "node-a", EXAMPLES / "vgpu-host.yaml").slices)

    (view,) = views_of(published, [claim("vm", f"gpu-0000-e2-00-0-vgpu-{profile}")])

    assert gpu(view, "0000:e2:00.0") == ("machine", percent, 1)
