"""Devices say whether the NVIDIA driver holds containers to their memory, and if it does not, why."""

from dataclasses import replace

import pytest

from driver.devices.limits import MAX_ATTRIBUTES_AND_CAPACITIES
from tests.driver.mig_machines import UNLIKE, of_first, only, rules
from tests.gpus import (
    DRIVER_NAME,
    Device,
    Inventory,
    Offers,
    RequestPolicy,
    device_faults,
    known_machines,
    node_offers,
)
from tools.conformance.nodes.mig_nodes import inventory as looked_at

L4_BYTES = (23034 - 470) * 2**20
SLICED = "{strategy: TimeSlicing, shares: 4}"
SERVED = "{strategy: MPS, shares: 4}"


def node(machine: str = "l4-quad", **gpu: object) -> Inventory:
    """The first GPU of a machine, of which something may be otherwise."""
    return of_first(looked_at(machine, "delivered"), **gpu)


def with_r615(machine: str) -> Inventory:
    """A machine as it would be with a driver that has limits."""
    found = looked_at(machine, "delivered")
    gpus = tuple(replace(gpu, memory_limits=True) for gpu in found.gpus)
    return replace(found, gpus=gpus, driver_version="615.71.09")


def offered(rule: str, inventory: Inventory | None = None) -> Offers:
    return node_offers(inventory or node(), rules(rule) if rule else None)


def one(rule: str, inventory: Inventory | None = None) -> Device:
    return only(offered(rule, inventory))


def told(device: Device) -> tuple[object, object, object]:
    """Its memoryLimits, memoryLimitsWithheld and memoryIsolation."""
    return tuple(  # type: ignore[return-value] # three names
        device.attributes.get(name) for name in ("memoryLimits", "memoryLimitsWithheld", "memoryIsolation")
    )


@pytest.mark.parametrize(
    ("rule", "isolation"),
    [
        ("", "hardware"),
        (f"shared: {SLICED}", "cgroup"),
        ("shared: {strategy: TimeSlicing, memory: {step: 1Gi}}", "cgroup"),
        ("shared: {strategy: TimeSlicing, memory: {step: 1Gi}, fractional: true}", "cgroup"),
        (f"shared: {SERVED}", "mps"),
        ("shared: {strategy: MPS, memory: {step: 1Gi}, fractional: true}", "mps"),
    ],
)
def test_whole_gpus_and_their_shares_say_that_the_driver_holds_memory(rule: str, isolation: str) -> None:
    assert told(one(rule)) == ("cgroup", None, isolation)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (replace(node(), cgroup_v2=False), "the node has cgroup v1, but NVML needs cgroup v2"),
        (node(memory_limits=False), "the NVIDIA driver does not support them for this GPU"),
        (node(memory_bytes=None), "NVML does not report the memory that is to be shared"),
        (replace(node(), driver_version="580.95.05"), None),
        (replace(node(), driver_version=None), None),
    ],
)
def test_nothing_is_promised_that_cannot_be_held(changed: Inventory, reason: str | None) -> None:
    assert told(one(f"shared: {SLICED}", changed)) == (None, reason, "none")
    assert told(one("", changed)) == (None, reason, "hardware")


def test_a_rule_forbids_it() -> None:
    reason = "the node configuration says memoryLimits: false"
    assert told(one(f"memoryLimits: false, shared: {SLICED}")) == (None, reason, "none")
    assert told(one("memoryLimits: false")) == (None, reason, "hardware")
    assert told(one(f"memoryLimits: true, shared: {SLICED}"))[0] == "cgroup"


def test_what_was_never_told_is_absent() -> None:
    unanswered = node(memory_limits=None, unanswered=frozenset({"memory_limits"}))
    assert told(one(f"shared: {SLICED}", unanswered)) == (None, None, None)
    assert told(one(f"shared: {SERVED}", unanswered)) == (None, None, "mps")
    assert [doubt.limits for doubt in offered("", unanswered).doubts] == [True]
    forbidden = offered(f"memoryLimits: false, shared: {SLICED}", unanswered)
    assert told(forbidden.devices[0])[2] == "none"
    assert [doubt.limits for doubt in forbidden.doubts] == [False]


@pytest.mark.parametrize("machine", UNLIKE)
def test_partitions_and_their_shares_never_promise_it(machine: str) -> None:
    rule = f"mig: {{layout: all-1g}}, shared: {SLICED}"
    for text in (rule, "mig: {layout: all-1g}"):
        devices = node_offers(with_r615(machine), rules(text)).devices
        partitions = [device for device in devices if "profile" in device.attributes]
        assert {told(device)[:2] for device in partitions} <= {(None, None)}
        assert {told(device)[2] for device in partitions} <= {"none", "hardware"}


def test_memory_in_steps_begins_where_cuda_can_start() -> None:
    fine = one("shared: {strategy: TimeSlicing, memory: {step: 64Mi}}")
    assert fine.policies["memory"] == RequestPolicy(512 * 2**20, 512 * 2**20, 64 * 2**20)
    odd = one("shared: {strategy: TimeSlicing, memory: {step: 300Mi}}")
    assert odd.policies["memory"] == RequestPolicy(600 * 2**20, 600 * 2**20, 300 * 2**20)
    many = one("shared: {strategy: TimeSlicing, shares: 100, memory: {step: 64Mi}}")
    assert many.policies["memory"] == RequestPolicy(512 * 2**20, 512 * 2**20, 64 * 2**20)
    fractional = one("shared: {strategy: TimeSlicing, memory: {step: 64Mi}, fractional: true}")
    whole = L4_BYTES // (64 * 2**20) * 64 * 2**20
    assert fractional.policies["memory"] == RequestPolicy(whole, 512 * 2**20, 64 * 2**20)
    for device in (fine, odd, many, fractional):
        assert device_faults(device, DRIVER_NAME) == ()


def test_a_gpu_with_too_little_memory_for_two_shares_is_withheld() -> None:
    rule = "shared: {strategy: TimeSlicing, memory: {step: 64Mi}}"
    [held] = offered(rule, node(memory_bytes=540 * 2**20, reserved_bytes=0)).withheld
    assert held.reason.startswith("TimeSlicing: 540Mi of its memory can be shared, less than two shares")
    assert offered(rule, node(memory_bytes=576 * 2**20, reserved_bytes=0)).devices


@pytest.mark.parametrize(("shares", "offers"), [(44, True), (45, False)])
def test_shares_in_which_cuda_could_not_start_are_withheld(shares: int, offers: bool) -> None:
    found = offered(f"shared: {{strategy: TimeSlicing, shares: {shares}}}")
    assert bool(found.devices) is offers
    if not offers:
        [held] = found.withheld
        assert held.reason == (
            "TimeSlicing: 45 shares of its memory are too small, at most 44 fit: CUDA does not start with "
            "a memory limit below 512Mi (memoryLimits: false turns these limits off)"
        )
        assert offered("memoryLimits: false, shared: {strategy: TimeSlicing, shares: 45}").devices


@pytest.mark.parametrize("machine", known_machines())
def test_no_machine_says_too_much_with_it(machine: str) -> None:
    rule = f"offer: whole, mig: dynamic, shared: [{SLICED}, {SERVED}], passthrough: true"
    fractional = "shared: {strategy: TimeSlicing, shares: 4, memory: {step: 1Gi}, fractional: true}"
    for text in (rule, fractional, "offer: whole"):
        for device in node_offers(with_r615(machine), rules(text)).devices:
            assert len(device.attributes) + len(device.capacity) <= MAX_ATTRIBUTES_AND_CAPACITIES
            if device.takes_all and device.attributes["type"] in ("gpu", "shared"):
                assert device.attributes.get("memoryLimits") == "cgroup", device.name
