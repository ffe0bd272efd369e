"""Shared devices stand in slices with their request policies, which are read back and compared as numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.slices.specs import Layout, read_devices
from tests.clusters import errors_of
from tests.driver.mig_machines import rules
from tests.gpus import Device, PciAddress, RequestPolicy, lay_out, node_offers
from tools.conformance.nodes.mig_nodes import inventory

GIB = 2**30
NAME = "gpu-0000-00-00-0-mps-4-mem"


def shared(capacity: dict[str, int], policies: dict[str, RequestPolicy]) -> Device:
    return Device(NAME, PciAddress(0, 0, 0, 0), capacity=capacity, policies=policies)


FOUR = shared(
    {"shares": 4, "memory": 80 * GIB},
    {"shares": RequestPolicy(1, 1, 1), "memory": RequestPolicy(20 * GIB, 5 * GIB, 5 * GIB)},
)


def laid_out(*devices: Device) -> Layout:
    return lay_out(devices, pool="node-a/gpu.nvidia.com", node="node-a")


def refused_by_the_api(layout: Layout) -> bool:
    [spec] = layout.specs
    pool = {**spec["pool"], "generation": 1}
    kind = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s"}}
    return bool(errors_of({**kind, "spec": {**spec, "pool": pool}}))


def test_policies_are_written_as_the_api_has_them() -> None:
    [spec] = laid_out(FOUR).specs

    of_memory = {"default": "20Gi", "validRange": {"min": "5Gi", "step": "5Gi"}}
    of_shares = {"default": "1", "validRange": {"min": "1", "step": "1"}}
    capacity = {
        "memory": {"value": "80Gi", "requestPolicy": of_memory},
        "shares": {"value": "4", "requestPolicy": of_shares},
    }
    assert spec["devices"] == [{"name": NAME, "allowMultipleAllocations": True, "capacity": capacity}]


def test_what_nobody_can_ask_for_has_zero_as_its_only_value() -> None:
    [spec] = laid_out(shared({"memory": GIB}, {"memory": RequestPolicy(0)})).specs

    [device] = spec["devices"]
    assert device["capacity"]["memory"]["requestPolicy"] == {"default": "0", "validValues": ["0"]}


@pytest.mark.parametrize(
    "rule",
    [
        "shared: {strategy: TimeSlicing, shares: 4}",
        "shared: {strategy: MPS, memory: {step: 5Gi}, fractional: true}",
        "mig: dynamic, shared: [{strategy: MPS, shares: 2}, {strategy: TimeSlicing, shares: 3}]",
        "offer: partitions, mig: dynamic, shared: {strategy: MPS, shares: 2}",
        "mig: dynamic",
    ],
)
def test_what_was_published_is_read_back(rule: str) -> None:
    offers = node_offers(inventory("hgx-h100", "delivered"), rules(rule))
    layout = lay_out(
        offers.devices, pool="node-a/gpu.nvidia.com", node="node-a", counter_sets=offers.counter_sets
    )

    assert layout.rejected == ()
    assert read_devices(layout.specs) == (offers.devices, offers.counter_sets)


@pytest.mark.parametrize(
    ("policy", "fault"),
    [
        (RequestPolicy(81), "default 81 is not within 0 to 80"),
        (RequestPolicy(-1), "default -1 is not within 0 to 80"),
        (RequestPolicy(1, 1, 0), "step 0 is not above 0"),
        (RequestPolicy(1, 2, 1), "minimum 2 is not within 0 to the default 1"),
        (RequestPolicy(60, 60, 40), "minimum 60 and step 40 together are more than 80"),
        (RequestPolicy(12, 5, 5), "default 12 is not the minimum 5 plus a multiple of the step 5"),
    ],
)
def test_a_policy_that_the_api_would_refuse_keeps_its_device_back(policy: RequestPolicy, fault: str) -> None:
    layout = laid_out(shared({"memory": 80}, {"memory": policy}))

    [rejected] = layout.rejected
    assert rejected.reasons == (f"request policy of capacity 'memory': {fault}",)


def test_every_capacity_of_a_shared_device_has_a_policy_and_every_policy_a_capacity() -> None:
    [rejected] = laid_out(shared({"memory": 80}, {"shares": RequestPolicy(1, 1, 1)})).rejected

    assert rejected.reasons == (
        "capacity 'memory' of a shared device has no request policy",
        "there is a request policy for capacity 'shares', which the device does not have",
    )


small = st.integers(-1, 12)
policies = st.builds(RequestPolicy, small, small, st.none() | small)


@given(st.integers(0, 12), policies)
def test_what_is_laid_out_is_taken_by_the_api(amount: int, policy: RequestPolicy) -> None:
    layout = laid_out(shared({"shares": amount}, {"shares": policy}))

    if not layout.rejected:
        assert not refused_by_the_api(layout)
        [device], _ = read_devices(layout.specs)
        assert device.policies["shares"] == (policy if policy.step else RequestPolicy(policy.default))
