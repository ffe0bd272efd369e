"""DeviceTaintRules taint what they select, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from kubernetes_rules.taints import taint_rule_selects, tainted_slices

Json = dict[str, Any]

OWN = {"key": "own", "effect": "NoSchedule"}


def rule(selector: Json, key: str = "broken") -> Json:
    return {"spec": {"deviceSelector": selector, "taint": {"key": key, "effect": "NoExecute"}}}


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        ({}, True),
        ({"driver": "d"}, True),
        ({"driver": "d", "pool": "p", "device": "gpu-0"}, True),
        ({"driver": None, "device": "gpu-0"}, True),
        ({"driver": "other"}, False),
        ({"pool": "other"}, False),
        ({"device": "gpu-1"}, False),
        ({"driver": ""}, False),
    ],
)
def test_what_a_rule_selects(selector: Json, selected: bool) -> None:
    assert taint_rule_selects(rule(selector), "d", "p", "gpu-0") is selected


def test_a_rule_without_a_selector_is_about_nothing() -> None:
    assert not taint_rule_selects({"spec": {"taint": OWN}}, "d", "p", "gpu-0")


def test_taints_of_rules_come_behind_those_of_the_slice() -> None:
    devices: list[Json] = [{"name": "gpu-0"}, {"name": "gpu-1", "taints": [OWN]}]
    one = {"spec": {"driver": "d", "pool": {"name": "p"}, "devices": devices}}

    (found,) = tainted_slices([one], [rule({"device": "gpu-1"}, "first"), rule({}, "second")])

    keys = [[taint["key"] for taint in device["taints"]] for device in found["spec"]["devices"]]
    assert keys == [["second"], ["own", "first", "second"]]
    assert devices == [{"name": "gpu-0"}, {"name": "gpu-1", "taints": [OWN]}]


def test_without_rules_or_devices_slices_stay_as_they_are() -> None:
    bare: Json = {"spec": {"driver": "d", "pool": {"name": "p"}, "sharedCounters": []}}
    assert tainted_slices([bare], [rule({})]) == [bare]
    assert tainted_slices([bare], []) == [bare]
