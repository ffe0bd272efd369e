"""``gpuctl status`` shows what shares hold of GPU memory and what they use, as the status of claims tells."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from envtest.embedded.server import EmbeddedApiServer
from gpuctl.__main__ import commands
from gpuctl.fleet.cluster import views_of
from gpuctl.fleet.memory import bytes_text, memory_lines
from gpuctl.fleet.nodes import NodeState
from gpuctl.plan.planned import plan_node
from gpuctl.status.picture import sentences
from tests.gpuctl.documents import read_document

GIB = 1 << 30
POOL = "node-a/gpu.nvidia.com"
GPU, OTHER = "gpu-0000-17-00-0", "gpu-0000-65-00-0"


def claim(
    name: str, held: Any = 10 * GIB, used: Any = None, device: str = GPU, **changed: Any
) -> dict[str, Any]:
    """A claim that has a device, and whose status tells of memory."""
    result = {"request": "gpu", "driver": "gpu.nvidia.com", "pool": POOL, "device": device}
    data = {"memoryGuaranteedBytes": held, "memoryLimitBytes": held, "memoryUsedBytes": used}
    told = {
        "driver": "gpu.nvidia.com",
        "pool": POOL,
        "device": device,
        "conditions": [{"type": "Ready", "status": "True", "reason": "ShareReady", "message": "It can."}],
        "data": {key: value for key, value in data.items() if value is not None},
        **changed,
    }
    return {
        "metadata": {"name": name, "namespace": "team"},
        "status": {"allocation": {"devices": {"results": [result]}}, "devices": [told]},
    }


def node(*claims: dict[str, Any]) -> NodeState:
    (found,) = views_of(list(plan_node("a30-quad", "node-a", None).slices), claims)
    return found.state


def lines(*claims: dict[str, Any], wide: bool = False) -> list[str]:
    return list(memory_lines("node-a", node(*claims).memory, wide=wide))


NOT_READY = [{"type": "Ready", "status": "False", "reason": "MemoryLimitNotHeld", "message": "NVML lies"}]


def test_a_gpu_is_told_with_what_its_shares_hold_and_use_together() -> None:
    gpu = "node-a: GPU 0 (0000:17:00.0)"
    shares = (claim("lab-1", used=2 * GIB), claim("lab-0", 4 * GIB, used=GIB // 2))

    assert lines(*shares) == [f"{gpu}: 2 shares, held 14Gi, uses 2.5Gi"]
    assert lines(*shares, wide=True) == [
        f"{gpu}: 2 shares, held 14Gi, uses 2.5Gi",
        f"  team/lab-0, {GPU}: held 4Gi, uses 512Mi",
        f"  team/lab-1, {GPU}: held 10Gi, uses 2Gi",
    ]


def test_what_one_share_does_not_tell_is_not_told_of_its_gpu() -> None:
    assert lines(claim("a"), claim("b", used=GIB)) == ["node-a: GPU 0 (0000:17:00.0): 2 shares, held 20Gi"]
    assert lines(claim("a", used=0)) == ["node-a: GPU 0 (0000:17:00.0): 1 share, held 10Gi, uses 0"]


def test_a_share_that_may_burst_is_told_with_the_most_that_it_gets() -> None:
    data = {
        "memoryGuaranteedBytes": 10 * GIB,
        "memoryLimitBytes": 20 * GIB,
        "memoryUsedBytes": 72 * GIB // 10,
    }

    assert lines(claim("a", data=data), wide=True)[1] == (
        f"  team/a, {GPU}: held 10Gi, up to 20Gi, uses 7.2Gi"
    )


def test_gpus_are_told_apart_and_claims_of_other_nodes_are_left_out() -> None:
    elsewhere = claim("c", pool="node-b/gpu.nvidia.com")

    assert [line.split(": ")[1] for line in lines(claim("a"), claim("b", device=OTHER), elsewhere)] == [
        "GPU 0 (0000:17:00.0)",
        "GPU 1 (0000:65:00.0)",
    ]


@pytest.mark.parametrize("data", [None, {}, "much", {"memoryGuaranteedBytes": 10, "memoryLimitBytes": True}])
def test_a_status_that_tells_nothing_of_use_is_passed_over(data: Any) -> None:
    assert lines(claim("a", data=data)) == []
    assert lines(claim("a", driver="nic.example.com")) == []


def test_a_share_whose_gpu_is_ill_says_nothing_of_its_limit() -> None:
    ill = [{"type": "Ready", "status": "False", "reason": "GpuLost", "message": "it fell off the bus"}]
    state = node(claim("a", conditions=ill))
    assert not any("not enforced" in line for line in sentences([state]))
    assert not state.is_amiss


def test_a_limit_that_is_not_held_is_amiss() -> None:
    state = node(claim("a", conditions=NOT_READY))

    assert state.is_amiss
    assert f"node-a: team/a, {GPU}: its memory limit is not enforced: NVML lies" in sentences([state])
    assert not node(claim("a")).is_amiss


def test_amounts_are_as_people_read_them() -> None:
    amounts = (0, 512, 1 << 20, 7730941133, 10 * GIB)
    assert [bytes_text(amount) for amount in amounts] == ["0", "0.5Ki", "1Mi", "7.2Gi", "10Gi"]


def test_the_command_prints_it_for_people_and_for_scripts(tmp_path: Path) -> None:
    claims = "/apis/resource.k8s.io/v1/namespaces/team/resourceclaims"
    with EmbeddedApiServer() as server:
        server.create("/api/v1/namespaces", {"metadata": {"name": "team"}})
        for item in plan_node("a30-quad", "node-a", None).slices:
            server.create("/apis/resource.k8s.io/v1/resourceslices", dict(item))
        requests = [{"name": "gpu", "exactly": {"deviceClassName": "any"}}]
        for name, conditions in (("well", None), ("lost", NOT_READY)):
            spec = {"devices": {"requests": requests}}
            stored = server.create(claims, {"metadata": {"name": name}, "spec": spec})
            status = claim(name, used=GIB, device=GPU if conditions is None else OTHER)["status"]
            if conditions is not None:
                since = {"lastTransitionTime": "2026-01-01T00:00:00Z"}
                status["devices"][0]["conditions"] = [{**conditions[0], **since}]
            else:
                del status["devices"][0]["conditions"]
            server.replace(f"{claims}/{name}/status", {**stored, "status": status})
        kubeconfig = str(server.write_kubeconfig(tmp_path / "config"))

        def run(*flags: str) -> Any:
            return CliRunner().invoke(commands, ["status", "--kubeconfig", kubeconfig, *flags])

        plain, wide, told = run("node-a"), run("-o", "wide"), run("-o", "json")

    assert "node-a: GPU 0 (0000:17:00.0): 1 share, held 10Gi, uses 1Gi" in plain.output
    assert "team/well" not in plain.output
    assert f"\n  team/well, {GPU}: held 10Gi, uses 1Gi" in wide.output
    assert (plain.exit_code, told.exit_code) == (3, 3)
    (found,) = read_document(told.stdout, "GpuStatus")["nodes"]
    assert [(one["gpu"], one["heldBytes"], one["usedBytes"]) for one in found["memory"]] == [
        ("0000:17:00.0", 10 * GIB, GIB),
        ("0000:65:00.0", 10 * GIB, GIB),
    ]
    assert json.dumps(found["memory"]).count("notHeld") == 1


def test_a_sick_gpu_says_nothing_about_the_memory_limits_of_its_claims() -> None:
    sick = [{"type": "Ready", "status": "False", "reason": "Xid", "message": "XID 79"}]

    found = node(claim("lab-0", conditions=sick))

    assert [share.not_held for gpu in found.memory for share in gpu.shares] == [None]
    assert not found.is_amiss
