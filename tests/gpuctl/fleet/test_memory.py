"""``gpuctl status`` shows what shares hold of GPU memory and what they use, as the status of claims tells."""

from __future__ import annotations

from typing import Any

import pytest

from gpuctl.fleet.cluster import views_of
from gpuctl.fleet.memory import bytes_text, memory_lines
from gpuctl.fleet.nodes import NodeState
from gpuctl.plan.planned import plan_node
from gpuctl.status.picture import sentences
from tests.gpuctl.fleet import published

GIB = 1 << 30
POOL = "node-a/gpu.nvidia.com"
GPU, OTHER = "gpu-0000-17-00-0", "gpu-0000-65-00-0"


def claim(
    name: str, held: Any = 10 * GIB, used: Any = None, device: str = GPU, **changed: Any
) -> dict[str, Any]:
    """A claim that has a device, and whose status tells of memory."""
    data = {"memoryLimitBytes": held, "memoryUsedBytes": used}
    told = {
        "driver": "gpu.nvidia.com",
        "pool": POOL,
        "device": device,
        "conditions": [{"type": "Ready", "status": "True", "reason": "ShareReady", "message": "It can."}],
        "data": {key: value for key, value in data.items() if value is not None},
        **changed,
    }
    made = published.claim(name, device)
    made["status"]["devices"] = [told]
    return made


def node(*claims: dict[str, Any]) -> NodeState:
    (found,) = views_of(list(plan_node("a30-quad", "node-a", None).slices), claims)
    return found.state


def lines(*claims: dict[str, Any], wide: bool = False) -> list[str]:
    return list(memory_lines("node-a", node(*claims).memory, wide=wide))


def test_what_one_share_does_not_tell_is_not_told_of_its_gpu() -> None:
    assert lines(claim("a"), claim("b", used=GIB)) == ["node-a: GPU 0 (0000:17:00.0): 2 shares, held 20Gi"]
    assert lines(claim("a", used=0)) == ["node-a: GPU 0 (0000:17:00.0): 1 share, held 10Gi, uses 0"]


def test_gpus_are_told_apart_and_claims_of_other_nodes_are_left_out() -> None:
    elsewhere = claim("c", pool="node-b/gpu.nvidia.com")

    assert [line.split(": ")[1] for line in lines(claim("a"), claim("b", device=OTHER), elsewhere)] == [
        "GPU 0 (0000:17:00.0)",
        "GPU 1 (0000:65:00.0)",
    ]


@pytest.mark.parametrize("data", [None, {}, "much", {"memoryLimitBytes": True}])
def test_a_status_that_tells_nothing_of_use_is_passed_over(data: Any) -> None:
    assert lines(claim("a", data=data)) == []
    assert lines(claim("a", driver="nic.example.com")) == []


def test_a_share_whose_gpu_is_ill_says_nothing_of_its_limit() -> None:
    ill = [{"type": "Ready", "status": "False", "reason": "GpuLost", "message": "it fell off the bus"}]
    state = node(claim("a", conditions=ill))
    assert not any("not enforced" in line for line in sentences([state]))
    assert not state.is_amiss


def test_amounts_are_as_people_read_them() -> None:
    amounts = (0, 512, 1 << 20, 7730941133, 10 * GIB)
    assert [bytes_text(amount) for amount in amounts] == ["0", "0.5Ki", "1Mi", "7.2Gi", "10Gi"]
