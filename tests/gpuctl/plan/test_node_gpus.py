"""The GPUs of a node are read from its slices and claims, and what these do not say is not invented."""

from pathlib import Path

from gpuctl.plan.node_gpus import GpuFacts, published_gpus
from tests.clusters import Object, plan_node
from tests.gpuctl.fleet.published import FIRST, SECOND, THIRD, claim, published

SHARE: Object = {"shareID": "s", "consumedCapacity": {"shares": "1", "memory": "0"}}


def planned(folder: Path, machine: str, rule: str) -> list[Object]:
    """The slices of a node under one rule."""
    config = folder / "node.yaml"
    config.write_text(f"{{version: v1, rules: [{{{rule}}}]}}")
    return list(plan_node(machine, "node-a", config).slices)


def bare(*devices: Object) -> Object:
    """A slice of a node whose driver says little about its devices."""
    pool = {"name": "node-a", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.nvidia.com", "nodeName": "node-a", "pool": pool, "devices": [*devices]}
    return {"metadata": {"name": "one"}, "spec": spec}


def test_partitions_and_shares_are_forms_of_their_gpu_and_name_their_holders(tmp_path: Path) -> None:
    claims = [
        claim("small", f"{FIRST}-mig-1g-10gb-6", pods=("small",)),
        claim("mid", f"{FIRST}-mig-3g-40gb-0", pods=("mid", "other")),
        claim("train", SECOND, pods=("train",)),
        claim("lab", f"{THIRD}-mps-4", pods=("lab",), **SHARE),
    ]

    cut, whole, shared, *_ = published_gpus(published(tmp_path), claims)

    parts = "7 x 1g.10gb, 3 x 2g.20gb, 2 x 3g.40gb, 1 x 4g.40gb"
    assert (cut.device, cut.index, cut.numa_node) == (FIRST, 0, 0)
    assert cut.offered_as == f"whole | {parts}"
    assert sorted(cut.held_by) == ["mid (3g.40gb at 0)", "other (3g.40gb at 0)", "small (1g.10gb at 6)"]
    assert (whole.nvlink_peers, whole.held_by) == ((0, 2, 3, 4, 5, 6, 7), ("train",))
    assert (shared.offered_as, shared.held_by) == ("MPS: 4 shares of 19.8 GiB", ("lab (shares 1)",))
    assert shared.memory_bytes == shared.shareable_bytes == 81105 * 2**20


def test_what_a_slice_does_not_say_is_absent_and_what_makes_no_sense_is_too() -> None:
    odd = {
        "index": {"string": "x"},
        "numaNode": {"string": "0"},
        "nvlinkDomain": {"int": 3},
        "nvlinkPeers": {"int": 1},
    }

    gpus = published_gpus([bare({"name": "gpu-x"}, {"name": "gpu-y", "attributes": odd})], ())

    nothing = GpuFacts("gpu-x", None, None, None, None, None, None, ())
    assert gpus[0] == nothing
    assert (gpus[1].label, gpus[1].numa_node, gpus[1].nvlink_island) == ("gpu-y", None, None)
