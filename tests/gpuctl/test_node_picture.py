"""The picture of a node is read from its slices and claims, and what they do not say is not invented."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from gpuctl.node_picture import GpuFacts, gpu_table, published_gpus, ranges


def slice_with(*devices: dict[str, Any]) -> dict[str, Any]:
    return {"spec": {"devices": list(devices)}}


def claim_for(*devices: str, pods: tuple[str, ...] = ("train",)) -> dict[str, Any]:
    results = [{"request": "gpu", "driver": "gpu.nvidia.com", "device": device} for device in devices]
    users = [{"resource": "pods", "name": pod, "uid": pod} for pod in pods]
    return {"status": {"allocation": {"devices": {"results": results}}, "reservedFor": users}}


def drawn(*gpus: GpuFacts) -> str:
    file = io.StringIO()
    Console(file=file, width=80).print(gpu_table("node-a", gpus))
    return file.getvalue()


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
    assert "B: nobody here" in text
    assert sum(line.startswith("├") for line in lines) == 2


@pytest.mark.parametrize(
    ("numbers", "text"),
    [((), ""), ((4,), "4"), ((0, 1, 2, 5), "0-2,5"), ((7, 3, 4), "3-4,7")],
)
def test_ranges(numbers: tuple[int, ...], text: str) -> None:
    assert ranges(numbers) == text
