"""An explanation says why no share is held to its memory, where a request insists on that."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from driver.policy.config import parse_config
from gpuctl.explain.answer import explain_claim
from gpuctl.explain.findings import Finding
from gpuctl.plan.planned import plan_inventory
from tests.deviceclasses.shipped_classes import DEFAULT
from tests.gpuctl.explain.objects import claim, snapshot
from tools.conformance.nodes.mig_nodes import inventory

Object = dict[str, Any]

SLICED = "shared: {strategy: TimeSlicing, shares: 4}"
LAYOUT = f"mig: {{layout: all-1g}}, {SLICED}"
NOBODY = "memory limits of shares are not enforced there"


def node(name: str) -> Object:
    return {"metadata": {"name": name, "labels": {}}, "spec": {}}


def slices(name: str, rule: str, machine: str = "l4-quad", **changes: object) -> tuple[Object, ...]:
    found = replace(inventory(machine, "delivered"), **changes)  # type: ignore[arg-type] # fields
    rules = parse_config(f"{{version: v1, rules: [{{{rule}}}]}}", "test")
    return plan_inventory(found, name, rules).slices


def asking(class_name: str) -> Object:
    found = claim()
    found["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] = class_name
    return found


def told(class_name: str, *published: tuple[Object, ...]) -> tuple[Finding, ...]:
    """What is found of a claim for the class on a cluster of nodes with these slices."""
    names = dict.fromkeys(one["spec"]["nodeName"] for some in published for one in some)
    seen = snapshot(
        nodes=tuple(map(node, names)),
        slices=tuple(one for some in published for one in some),
        classes=tuple(DEFAULT.values()),
    )
    return explain_claim(asking(class_name), seen).findings


@pytest.mark.parametrize("class_name", ["shared-memory", "shared-burstable"])
@pytest.mark.parametrize(
    ("published", "reason"),
    [
        (
            slices("n", SLICED, "a30-quad"),
            "its NVIDIA driver 570.133.20 is older than R615, the first with memory limits",
        ),
        (slices("n", SLICED, cgroup_v2=False), "the node has cgroup v1, but NVML needs cgroup v2"),
        (slices("n", f"memoryLimits: false, {SLICED}"), "the node configuration says memoryLimits: false"),
        (slices("n", LAYOUT, "hgx-h100"), "it is a partition, and NVML sets no limits on MIG devices"),
    ],
)
def test_the_reason_is_told(class_name: str, published: tuple[Object, ...], reason: str) -> None:
    findings = told(class_name, published)
    assert [one.kind for one in findings] == ["no-match", "withheld"]
    assert findings[1].message == f"n: {NOBODY}: {reason}"
    assert findings[1].remedy


def test_nodes_with_one_reason_are_told_together() -> None:
    nodes = [slices(f"n{number}", SLICED, cgroup_v2=False) for number in range(5)]
    [_, withheld] = told("shared-memory", *nodes)
    assert withheld.message.startswith(f"n0, n1, n2 and 2 more: {NOBODY}")


def test_nothing_is_said_where_a_node_serves_it_or_nobody_insists() -> None:
    old = slices("old", SLICED, "a30-quad")
    unused = told("shared-memory", old, slices("new", SLICED))
    assert [one.kind for one in unused] == ["unused"]
    assert [one.kind for one in told("shared-mps", old)] == ["no-match"]
    by_mps = slices("mps", "shared: {strategy: MPS, shares: 4}", "a30-quad")
    assert [one.kind for one in told("shared-burstable", by_mps)] == ["no-match"]
