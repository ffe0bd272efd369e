"""For each device there is a reason why a request does not get it."""

from typing import Any

import pytest

from kubernetes_rules.allocator.allocate import Gate, Refusal, refusal
from tests.clusters import Allocator, Object
from tools.conformance.allocation.objects import NODE, claim, device, device_class, exactly, node, published


def _why(
    slices: list[Object], request: Object, allocated: list[Object] | None = None, **fields: Any
) -> list[Refusal | None]:
    allocator = Allocator(slices, [device_class()], allocated or [])
    view = allocator.view(node())
    (asked,) = allocator.requested(view, [claim(request, **fields)])
    (alternatives,) = asked.requests
    return [refusal(allocator, view, alternatives[0], one, asked.constraints) for one in view.devices]


def _gates(found: list[Refusal | None]) -> list[Gate | None]:
    return [None if one is None else one.gate for one in found]


def test_a_device_for_another_node_is_told() -> None:
    slices = [published([device("a", nodeName="n"), device("b", nodeName=NODE)], perDeviceNodeSelection=True)]
    assert _gates(_why(slices, exactly())) == [Gate.OTHER_NODE, None]


def test_a_negative_request_is_told_to_be_wrong() -> None:
    slices = [published([device("a", capacity={"memory": {"value": "10"}})])]
    assert _gates(_why(slices, exactly(capacity={"requests": {"memory": "-5"}}))) == [Gate.CAPACITY_FAILED]


@pytest.mark.parametrize(
    ("policy", "detail"),
    [
        (
            {"default": "1Gi", "validRange": {"min": "1Gi", "step": "2Gi", "max": "9Gi"}},
            "35Gi of memory is needed, its policy allows from 1Gi to 9Gi in steps of 2Gi",
        ),
        (
            {"default": "1Gi", "validRange": {"min": "1Gi", "max": "9Gi"}},
            "35Gi of memory is needed, its policy allows from 1Gi to 9Gi",
        ),
        (
            {"default": "1Gi", "validValues": ["1Gi", "9Gi"]},
            "35Gi of memory is needed, its policy allows 1Gi or 9Gi",
        ),
    ],
)
def test_an_amount_that_the_policy_forbids_is_told_beside_what_it_allows(policy: Object, detail: str) -> None:
    memory = {"value": "40Gi", "requestPolicy": policy}
    slices = [published([device("a", allowMultipleAllocations=True, capacity={"memory": memory})])]
    asked = exactly(capacity={"requests": {"memory": "34Gi" if "step" in detail else "35Gi"}})
    assert _why(slices, asked) == [Refusal(Gate.CAPACITY, detail)]
