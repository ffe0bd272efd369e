"""``gpuctl status`` shows what shares hold of GPU memory and what they use, as the status of claims tells."""

from typing import Any

import pytest

from gpuctl.fleet.memory import memory_lines
from gpuctl.fleet.nodes import NodeState
from gpuctl.status.picture import sentences
from tests.clusters import Object, plan_node, views_of
from tests.gpuctl.fleet import published

GIB = 1 << 30
POOL = "node-a/gpu.nvidia.com"
GPU = "gpu-0000-17-00-0"


def claim(name: str, held: Any = 10 * GIB, used: Any = None, device: str = GPU, **changed: Any) -> Object:
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


def node(*claims: Object) -> NodeState:
    (found,) = views_of(list(plan_node("a30-quad", "node-a", None).slices), claims)
    return found.state


def lines(*claims: Object) -> list[str]:
    return list(memory_lines("node-a", node(*claims).memory, wide=False))


def test_what_one_share_does_not_tell_is_not_told_of_its_gpu() -> None:
    assert lines(claim("a"), claim("b", used=GIB)) == ["node-a: GPU 0 (0000:17:00.0): 2 shares, held 20Gi"]
    assert lines(claim("a", used=0)) == ["node-a: GPU 0 (0000:17:00.0): 1 share, held 10Gi, uses 0"]


@pytest.mark.parametrize("data", [None, {}, "much", {"memoryLimitBytes": True}])
def test_a_status_that_tells_nothing_of_use_is_passed_over(data: Any) -> None:
    assert lines(claim("a", data=data)) == []
    assert lines(claim("a", driver="nic.example.com")) == []


def test_a_share_whose_gpu_is_ill_says_nothing_of_its_limit() -> None:
    ill = [{"type": "Ready", "status": "False", "reason": "GpuLost", "message": "it fell off the bus"}]
    state = node(claim("a", conditions=ill))
    assert not any("not enforced" in line for line in sentences([state]))
    assert not state.is_amiss
