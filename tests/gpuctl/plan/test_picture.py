"""The picture of a node is read from its slices and claims, and what they do not say is not invented."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from gpuctl.plan.node_gpus import GpuFacts, gpu_table, published_gpus, ranges
from gpuctl.plan.planned import plan_node


def slice_with(*devices: dict[str, Any]) -> dict[str, Any]:
    return {"spec": {"devices": list(devices)}}


def claim_for(*devices: str, pods: tuple[str, ...] = ("train",)) -> dict[str, Any]:
    results = [{"request": "gpu", "driver": "gpu.nvidia.com", "device": device} for device in devices]
    users = [{"resource": "pods", "name": pod, "uid": pod} for pod in pods]
    return {
        "metadata": {"namespace": "default", "name": "claim"},
        "status": {"allocation": {"devices": {"results": results}}, "reservedFor": users},
    }


def drawn(*gpus: GpuFacts) -> str:
    file = io.StringIO()
    Console(file=file, width=80).print(gpu_table("node-a", gpus))
    return file.getvalue()


def test_a_gpu_with_lists_in_its_attributes_looks_the_same(tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text("{version: v1, listAttributes: true}")

    listed, single = (plan_node("dgx1-v100", "node-a", one).slices for one in (rules, None))

    assert listed != single
    assert published_gpus(listed, []) == published_gpus(single, [])


def test_a_published_gpu_is_read_with_its_holders() -> None:
    device = {
        "name": "gpu-0000-07-00-0",
        "attributes": {
            "index": {"int": 0},
            "productName": {"string": "NVIDIA A30"},
            "resource.kubernetes.io/pciBusID": {"string": "0000:07:00.0"},
            "numaNode": {"int": 1},
            "nvlinkDomain": {"string": "nvlink-a"},
            "nvlinkPeers": {"string": "1,3"},
        },
        "capacity": {"memory": {"value": "24Gi"}},
    }

    gpus = published_gpus([slice_with(device)], [claim_for("gpu-0000-07-00-0", pods=("a", "b"))])

    assert gpus == (
        GpuFacts(
            "gpu-0000-07-00-0",
            0,
            "NVIDIA A30",
            "0000:07:00.0",
            1,
            24 * 2**30,
            "nvlink-a",
            (1, 3),
            held_by=("a", "b"),
        ),
    )


def test_what_a_slice_does_not_say_is_absent_and_drawn_so() -> None:
    (gpu,) = published_gpus([slice_with({"name": "gpu-x"})], [{"status": {}}, {}])

    assert gpu == GpuFacts("gpu-x", None, None, None, None, None, None, ())
    assert "│ gpu-x │ -" in drawn(gpu)
    assert "free" in drawn(gpu)


def test_islands_get_letters_and_numa_nodes_a_line_between() -> None:
    text = drawn(
        GpuFacts("a", 0, "A30", "0000:01:00.0", 0, 2**30, "x", (1,)),
        GpuFacts("b", 1, "A30", "0000:02:00.0", 0, 2**30, "x", (0,)),
        GpuFacts("c", 2, "A30", "0000:03:00.0", 1, 2**30, "y", ()),
    )

    lines = text.splitlines()
    assert "A: 1" in text
    assert "B: none here" in text
    assert sum(line.startswith("├") for line in lines) == 2


@pytest.mark.parametrize(
    ("numbers", "text"),
    [((), ""), ((4,), "4"), ((0, 1, 2, 5), "0-2,5"), ((7, 3, 4), "3-4,7")],
)
def test_ranges(numbers: tuple[int, ...], text: str) -> None:
    assert ranges(numbers) == text


def partition(name: str, profile: str) -> dict[str, Any]:
    attributes = {
        "type": {"string": "mig"},
        "profile": {"string": profile},
        "index": {"int": 4},
        "resource.kubernetes.io/pciBusID": {"string": "0000:07:00.0"},
    }
    return {"name": name, "attributes": attributes, "capacity": {"memory": {"value": "10Gi"}}}


WHOLE = {
    "name": "gpu-0000-07-00-0",
    "attributes": {"type": {"string": "gpu"}, "index": {"int": 4}, "numaNode": {"int": 1}},
    "capacity": {"memory": {"value": "80Gi"}},
}
ONES = [partition(f"gpu-0000-07-00-0-mig-1g-10gb-{start}", "1g.10gb") for start in range(7)]
THREES = [partition(f"gpu-0000-07-00-0-mig-3g-40gb-{start}", "3g.40gb") for start in (0, 4)]
MEDIA = partition("gpu-0000-07-00-0-mig-1g-10gb-me-0", "1g.10gb+me")


def test_partitions_are_forms_of_their_gpu_and_no_gpus_of_their_own() -> None:
    claims = [
        claim_for("gpu-0000-07-00-0-mig-1g-10gb-6", pods=("small",)),
        claim_for("gpu-0000-07-00-0-mig-3g-40gb-0", pods=("mid", "other")),
    ]

    (gpu,) = published_gpus([slice_with(*THREES, MEDIA, *ONES), slice_with(WHOLE)], claims)

    assert (gpu.device, gpu.index, gpu.numa_node, gpu.memory_bytes) == ("gpu-0000-07-00-0", 4, 1, 80 * 2**30)
    assert gpu.forms == (("whole", 1), ("1g.10gb", 7), ("1g.10gb+me", 1), ("3g.40gb", 2))
    assert gpu.offered_as == "whole | 7 x 1g.10gb, 1 x 1g.10gb+me, 2 x 3g.40gb"
    assert gpu.held_by == ("mid (3g.40gb at 0)", "other (3g.40gb at 0)", "small (1g.10gb at 6)")


def test_a_gpu_that_is_only_offered_in_partitions_has_no_memory_of_its_own() -> None:
    (gpu,) = published_gpus([slice_with(*THREES)], ())

    assert (gpu.device, gpu.memory_bytes, gpu.offered_as) == ("gpu-0000-07-00-0", None, "2 x 3g.40gb")
    assert gpu.pci == "0000:07:00.0"


def test_forms_have_a_column_only_where_a_gpu_is_cut_and_80_columns_are_enough() -> None:
    cut = drawn(*published_gpus([slice_with(WHOLE, *ONES, *THREES)], [claim_for(ONES[6]["name"])]))
    uncut = drawn(*published_gpus([slice_with(WHOLE)], ()))

    assert "Offered as" not in uncut
    assert all(len(line) <= 80 for line in cut.splitlines())
    for part in ("Offered as", "whole |", "7 x 1g.10gb,", "2 x 3g.40gb", "train"):
        assert part in cut


def test_gpus_come_in_the_order_of_their_addresses_whatever_the_order_in_the_pool() -> None:
    names = ["gpu-0000-e3-00-0", "gpu-0000-17-00-0", "odd", "gpu-0000-65-00-0-static-1g-6gb-0"]

    gpus = published_gpus([slice_with(*({"name": name} for name in names))], ())

    assert [gpu.device for gpu in gpus] == [
        "gpu-0000-17-00-0",
        "gpu-0000-65-00-0",
        "gpu-0000-e3-00-0",
        "odd",
    ]
    assert gpus[1].offered_as == "1 x 1g-6gb"
