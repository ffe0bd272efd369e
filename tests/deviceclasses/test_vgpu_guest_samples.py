"""The samples for vGPU guests get what they say there, and wait elsewhere."""

from pathlib import Path

import pytest

from tests.clusters import Allocator, Object
from tests.deviceclasses.published_nodes import devices, plan
from tests.deviceclasses.sample_claims import NODE_OBJECT, claim_of
from tests.deviceclasses.shipped_classes import ALL, ROOT, objects
from tests.fakegpu.guests import UNLICENSED, VGPU_GUESTS
from tests.gpus import TAINT_UNLICENSED

FILES = {path.stem: path for path in sorted((ROOT / "deploy/examples/vgpu").glob("guest-*.yaml"))}
OTHERS = ("a30-passthrough-guest", "hgx-h100", "t4")
ON_GUESTS: dict[str, set[str]] = {
    "guest-any": set(VGPU_GUESTS - UNLICENSED),
    "guest-class": {"a30-vgpu-guest"},
    "guest-unlicensed": set(VGPU_GUESTS),
}


def given(file: Path, machine: str) -> Object | None:
    """The device that the pod of a sample gets on an empty node; None where it waits."""
    planned = plan(machine)
    own = [one for one in objects(file) if one["kind"] == "DeviceClass"]
    allocations = Allocator(planned.slices, [*ALL.values(), *own], ()).allocate(NODE_OBJECT, [claim_of(file)])
    if allocations is None:
        return None
    [result] = allocations[0]["devices"]["results"]
    return next(device for device in devices(planned) if device["name"] == result["device"])


def test_every_sample_is_expected_somewhere() -> None:
    assert set(FILES) == set(ON_GUESTS)


@pytest.mark.parametrize("machine", [*sorted(VGPU_GUESTS), *OTHERS])
@pytest.mark.parametrize("sample", sorted(ON_GUESTS))
def test_a_sample_gets_a_vgpu_where_it_says_and_waits_elsewhere(sample: str, machine: str) -> None:
    device = given(FILES[sample], machine)

    assert (device is not None) == (machine in ON_GUESTS[sample])
    if device is not None:
        assert device["attributes"]["virtualization"] == {"string": "vgpu"}
        keys = [taint["key"] for taint in device.get("taints", ())]
        assert keys == ([TAINT_UNLICENSED] if machine in UNLICENSED else [])
