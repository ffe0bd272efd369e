"""What ``gpuctl plan`` prints serves the cluster autoscaler as the slices of a node that is not there yet.

The autoscaler makes a node out of a template: node, pool and slices get other names, and the rules of the
scheduler allocate. It counts how full a node is from its counters, as its documentation of DRA says.
"""

import pytest

from tests.clusters import Allocator, Object, plan_node
from tests.deviceclasses.shipped_classes import DEFAULT_FILES, ROOT, classes
from tools.conformance.allocation.objects import claim, exactly, node

CONFIG = ROOT / "deploy/examples/node-config/all-tiers.yaml"
OTHER, SUFFIX = "template-node-7f3a", "7f3a"
MOST = {"large": 8, "mig-small": 56, "mig-large": 16, "shared-timesliced": 32, "shared-mps": 32}
"""How many claims of a class a node of eight H100 takes."""


def planned() -> list[Object]:
    return list(plan_node("hgx-h100", "template", CONFIG).slices)


def of_new_node(slices: list[Object]) -> list[Object]:
    """The slices of a template as those of another node."""
    made = []
    for one in slices:
        pool = {**one["spec"]["pool"], "name": f"{one['spec']['pool']['name']}-{SUFFIX}"}
        metadata = {**one["metadata"], "name": f"{one['metadata']['name']}-{SUFFIX}"}
        made.append({**one, "metadata": metadata, "spec": {**one["spec"], "nodeName": OTHER, "pool": pool}})
    return made


def filled(slices: list[Object], device_class: str, most: int | None = None) -> list[Object]:
    """The allocated claims of a node that takes as many of a class as it can, or so many."""
    allocator = Allocator(slices, list(classes(*DEFAULT_FILES).values()), [])
    held: list[Object] = []
    while most is None or len(held) < most:
        asked = claim(exactly(deviceClassName=device_class), name=f"claim-{len(held)}")
        results = allocator.allocate(node(OTHER), [asked])
        if results is None:
            return held
        held.append({**asked, "status": {"allocation": results[0]}})
        allocator.assume(held[-1])
    return held


@pytest.mark.parametrize(("device_class", "most"), MOST.items())
def test_a_node_that_is_made_of_the_template_takes_every_tier(device_class: str, most: int) -> None:
    claims = filled(of_new_node(planned()), device_class)

    assert len(claims) == most
    results = [one["status"]["allocation"]["devices"]["results"][0] for one in claims]
    assert {one["pool"] for one in results} == {f"template/gpu.nvidia.com-{SUFFIX}"}


@pytest.mark.parametrize(("slice_count", "fitting"), [(1, {"gpu.nvidia.com", "monitoring"}), (0, set())])
def test_the_plain_class_alone_fits_the_template_that_cluster_api_makes_of_annotations(
    slice_count: int, fitting: set[str]
) -> None:
    gpu = {"name": "gpu-0", "attributes": {"type": {"string": "gpu"}}}
    pool = {"name": OTHER, "generation": 0, "resourceSliceCount": slice_count}
    spec = {"driver": "gpu.nvidia.com", "nodeName": OTHER, "pool": pool, "devices": [gpu]}
    template = {"metadata": {"name": "template"}, "spec": spec}

    assert {name for name in classes(*DEFAULT_FILES) if filled([template], name, 1)} == fitting
