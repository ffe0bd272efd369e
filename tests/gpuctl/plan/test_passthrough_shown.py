"""GPUs for virtual machines are shown as what they are: in a plan, with who has them, and among the tiers."""

from __future__ import annotations

from typing import Any

from gpuctl.explain.devices import taken_counters
from gpuctl.fleet.cluster import states_of
from gpuctl.fleet.nodes import TierCount
from gpuctl.plan.node_gpus import GpuFacts, published_gpus
from kubernetes_rules.allocator.allocate import Allocator
from tools.conformance.nodes.mig_nodes import one_rule, slices
from tools.conformance.nodes.passthrough_area import RULES, offered_by

Object = dict[str, Any]

FIRST, SECOND = "gpu-0000-17-00-0", "gpu-0000-18-00-0"
BOTH = f"{FIRST}-0000-18-00-0-vfio"


def published(word: str, *, pairs: bool = False) -> list[Object]:
    """What a node with two L40S publishes."""
    return slices(offered_by("l40s-octo", one_rule(RULES[word]), 2, pairs=pairs))


def held(device: str) -> Object:
    """A claim of the pod ``machine`` that was given a device."""
    return {
        "metadata": {"name": "gpu", "namespace": "default", "uid": "u"},
        "status": {
            "reservedFor": [{"name": "machine"}],
            "allocation": {
                "devices": {
                    "results": [
                        {
                            "driver": "gpu.nvidia.com",
                            "pool": "node-1/gpu.nvidia.com",
                            "device": device,
                            "request": "r",
                        }
                    ]
                }
            },
        },
    }


def shown(gpus: tuple[GpuFacts, ...]) -> list[tuple[str | None, str, tuple[str, ...]]]:
    return [(gpu.pci, gpu.offered_as, gpu.held_by) for gpu in gpus]


def test_passthrough_stands_beside_the_other_forms_of_a_gpu() -> None:
    found = published_gpus(published("whole"), [held(f"{SECOND}-vfio")])
    assert shown(found) == [
        ("0000:17:00.0", "whole | passthrough", ()),
        ("0000:18:00.0", "whole | passthrough", ("machine (passthrough)",)),
    ]


def test_a_gpu_for_virtual_machines_alone_says_what_it_is() -> None:
    first, _ = published_gpus(published("alone"), ())
    assert (first.offered_as, first.product, first.pci) == ("passthrough", "NVIDIA L40S", "0000:17:00.0")
    assert first.memory_bytes


def test_a_device_of_two_gpus_is_shown_with_both() -> None:
    found = published_gpus(published("alone", pairs=True), [held(BOTH)])
    together = ("passthrough of 2 GPUs", ("machine (passthrough of 2 GPUs)",))
    assert shown(found) == [("0000:17:00.0", *together), ("0000:18:00.0", *together)]


def test_passthrough_is_a_tier_and_excluded_while_a_container_has_the_gpu() -> None:
    [node] = states_of(published("whole"), [held(FIRST)])
    assert node.tiers["passthrough"] == TierCount(devices=2, free=1, at_once=1, excluded=1)
    assert node.tiers["whole"].allocated == 1


def test_who_has_a_gpu_of_the_pair_is_named() -> None:
    allocator = Allocator(published("whole", pairs=True), [], [held(SECOND)])
    view = allocator.view({"metadata": {"name": "node-1"}})
    pair = next(device for pool in view.pools for device in pool.devices if device.id.device == BOTH)
    told = taken_counters(allocator, view, pair)
    assert told == f"its GPU is held as a whole by claim default/gpu ({SECOND})"
