"""An update is checked for what may not change, and a status for what it says, as Kubernetes does.

New objects are compared with Kubernetes by tests/tools/conformance/test_vectors.py.
"""

import copy
from typing import Any

import pytest

from kubernetes_rules.validation.dra_kinds import status_update_errors_of, update_errors_of
from tests.clusters import Object, errors_of
from tools.conformance.validation.cases import changed, valid_objects
from tools.conformance.validation.changes import REMOVED, Change

PLAIN, SHARED, _, _, _, CLAIM, TEMPLATE, CLASS = valid_objects()
DEVICE = {"driver": "gpu.example.com", "pool": "p", "device": "d"}
RESULT = {"request": "gpu", **DEVICE}
USER = {"resource": "pods", "name": "p", "uid": "u"}
SHARE = "0b1b7a5e-3f0e-4b0e-9c1e-0a1b2c3d4e5f"
ADDED = "2026-01-01T00:00:00Z"
CONDITION = {"type": "Ready", "status": "True", "reason": "Well", "lastTransitionTime": ADDED}
NINE = [{**CONDITION, "type": f"T{n}"} for n in range(9)]


def stored(item: Object) -> Object:
    """The object as the server has it."""
    found = copy.deepcopy(item)
    found["metadata"] |= {"uid": "u", "resourceVersion": "7"}
    return found


def on_update(item: Object, *changes: Change) -> list[tuple[str, str]]:
    old = stored(item)
    return [(error.field, error.type) for error in update_errors_of(changed(old, *changes), old)]


def on_status(new: Object, old: Object | None = None, **metadata: Any) -> list[str]:
    before = {**stored(CLAIM), "status": old or {}}
    before["metadata"] |= metadata
    after = {**copy.deepcopy(before), "status": new}
    errors = status_update_errors_of(after, before)
    return [
        f"{error.field} {error.type}".replace("FieldValue", "").removeprefix("status.") for error in errors
    ]


def described(**device: Any) -> Object:
    """A status whose one device, which the claim has, says this."""
    return {**allocated(RESULT), "devices": [{**DEVICE, **device}]}


def allocated(*results: Object, **more: Any) -> Object:
    return {"allocation": {"devices": {"results": list(results)}, **more}}


@pytest.mark.parametrize(
    ("item", "change", "field"),
    [
        (PLAIN, ("spec.driver", "other.example.com"), "spec.driver"),
        (PLAIN, ("spec.pool.name", "other"), "spec.pool.name"),
        (PLAIN, ("spec.nodeName", "node-2"), "spec.nodeName"),
        (CLAIM, ("spec.devices.requests", []), "spec"),
        (TEMPLATE, ("spec.metadata", REMOVED), "spec"),
        (CLAIM, ("metadata.uid", "another"), "metadata.uid"),
        (CLASS, ("metadata.resourceVersion", REMOVED), "metadata.resourceVersion"),
        (CLASS, ("spec.extendedResourceName", "gpu"), "spec.extendedResourceName"),
    ],
)
def test_what_may_not_change_is_named(item: Object, change: Change, field: str) -> None:
    assert on_update(item, change) == [(field, "FieldValueInvalid")]


@pytest.mark.parametrize("item", valid_objects())
def test_what_does_not_change_is_valid(item: Object) -> None:
    assert errors_of(item) == []
    assert on_update(item, ("metadata.labels", {"new": "label"})) == []


def test_a_slice_may_change_its_devices_and_generation() -> None:
    assert on_update(PLAIN, ("spec.devices", [{"name": "new"}]), ("spec.pool.generation", 4)) == []


def test_capacity_and_taints_that_were_wrong_before_are_left_alone() -> None:
    old = changed(stored(PLAIN), ("spec.devices.0.taints", [{"key": "a b", "effect": "None"}]))
    new = changed(old, ("spec.devices.0.attributes.index", {"int": 1}))

    assert update_errors_of(new, old) == []
    assert update_errors_of(changed(new, ("spec.devices.0.taints.0.value", "x y")), old) != []


def test_a_finalizer_cannot_be_added_to_what_is_deleted() -> None:
    old = stored(CLAIM)
    old["metadata"]["deletionTimestamp"] = ADDED
    new = changed(old, ("metadata.finalizers", ["example.com/keep", "example.com/late"]))

    assert [error.field for error in update_errors_of(new, old)] == ["metadata.finalizers"]


def test_an_allocation_is_never_changed_but_can_be_taken_away() -> None:
    old = allocated(RESULT)

    assert on_status(allocated(RESULT, nodeSelector={"nodeSelectorTerms": [{}]}), old) == [
        "allocation Invalid"
    ]
    assert on_status({}, old) == []
    assert on_status(old, old) == []


@pytest.mark.parametrize(
    ("status", "errors"),
    [
        (allocated(RESULT), []),
        (allocated({**RESULT, "shareID": SHARE}), []),
        (allocated({**RESULT, "request": "any/big"}), []),
        (allocated({**RESULT, "request": "none"}), ["allocation.devices.results[0].request Invalid"]),
        (allocated({**RESULT, "pool": ""}), ["allocation.devices.results[0].pool Required"]),
        (allocated({**RESULT, "shareID": "X"}), ["allocation.devices.results[0].shareID Invalid"]),
        (allocated(*[RESULT] * 33), ["allocation.devices.results TooMany"]),
        (allocated(RESULT, nodeSelector={}), ["allocation.nodeSelector.nodeSelectorTerms Required"]),
        ({"reservedFor": [USER]}, ["reservedFor Forbidden"]),
        ({**allocated(RESULT), "reservedFor": [USER]}, []),
        (
            {**allocated(RESULT), "reservedFor": [{"resource": "pods", "uid": "u"}, {"uid": "u"}]},
            [
                "reservedFor[0].name Required",
                "reservedFor[1].resource Required",
                "reservedFor[1].name Required",
                "reservedFor[1] Duplicate",
            ],
        ),
        (described(conditions=[CONDITION]), []),
        (described(device="e"), ["devices[0] Invalid"]),
        (described(conditions=NINE), ["devices[0].conditions TooMany"]),
        ({**allocated(RESULT), "devices": [DEVICE, DEVICE]}, ["devices[1] Duplicate"]),
        (described(data=[1]), ["devices[0].data Invalid"]),
        (
            described(conditions=[{"type": "Ready", "status": "Maybe"}]),
            [
                "devices[0].conditions[0].status NotSupported",
                "devices[0].conditions[0].lastTransitionTime Required",
                "devices[0].conditions[0].reason Required",
            ],
        ),
        (
            described(networkData={"ips": ["10.0.0.1", "10.0.0.1/8"]}),
            ["devices[0].networkData.ips[0] Invalid"],
        ),
    ],
)
def test_a_status_is_checked_for_what_it_says(status: Object, errors: list[str]) -> None:
    assert on_status(status) == errors


def test_nobody_reserves_a_claim_that_is_going_away() -> None:
    old = {**allocated(RESULT), "reservedFor": [USER]}
    new = {**old, "reservedFor": [USER, {**USER, "uid": "v"}]}

    assert on_status(new, old) == []
    assert on_status(new, old, deletionTimestamp=ADDED) == ["reservedFor Forbidden"]


def test_a_taint_rule_names_device_and_taint() -> None:
    def rule(**spec: Any) -> list[str]:
        item = {"kind": "DeviceTaintRule", "metadata": {"name": "r"}, "spec": spec}
        return [error.field for error in errors_of(item)]

    taint = {"key": "example.com/sick", "effect": "NoExecute"}
    assert rule(taint=taint, deviceSelector={"driver": "a.b", "pool": "p", "device": "d"}) == []
    assert rule(taint=taint, deviceSelector={"driver": "", "pool": "A", "device": "a.b"}) == [
        "spec.deviceSelector.driver",
        "spec.deviceSelector.pool",
        "spec.deviceSelector.device",
    ]
    assert set(rule()) == {"spec.taint.key", "spec.taint.effect"}
