"""Tolerations cover taints for a time, NoExecute taints drive pods away, DeviceTaintRules taint devices."""

from datetime import UTC, datetime, timedelta

import pytest

from kubernetes_rules.pool_generations import newest_slices
from kubernetes_rules.taints import (
    eviction_time,
    taint_rule_selects,
    tainted_slices,
    tolerated_seconds,
    untolerated_taint,
)
from tests.clusters import Object

EXISTS: Object = {"operator": "Exists", "effect": "NoExecute"}
GONE: Object = {"key": "gone", "effect": "NoExecute"}
SICK: Object = {"key": "sick", "value": "5", "effect": "NoSchedule"}


def test_the_first_taint_that_blocks_and_is_not_tolerated_is_told() -> None:
    told = {"key": "told", "effect": "None"}
    slow = {"key": "slow", "effect": "PreferNoSchedule"}
    assert untolerated_taint([told, slow, SICK, GONE], []) is SICK
    assert untolerated_taint([told, slow, SICK, GONE], [{"key": "sick", "operator": "Exists"}]) is GONE
    assert untolerated_taint([told, slow], []) is None


@pytest.mark.parametrize(
    ("tolerations", "seconds"),
    [
        ([], 0),
        ([{**EXISTS, "tolerationSeconds": 60}], 60),
        ([{**EXISTS, "tolerationSeconds": -5}], 0),
        ([EXISTS], None),
        ([{"operator": "Exists"}], 0),
        ([{"operator": "Like", "key": "gone", "effect": "NoExecute"}], 0),
        ([{**EXISTS, "tolerationSeconds": 9}, {**GONE, "tolerationSeconds": 5}], 5),
    ],
)
def test_a_taint_is_tolerated_as_long_as_the_shortest_toleration_says(
    tolerations: list[Object], seconds: int | None
) -> None:
    assert tolerated_seconds(GONE, tolerations) == seconds


MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
TAINT = {"key": "broken", "value": "yes", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}


def result(*tolerations: Object) -> Object:
    return {"driver": "d", "pool": "p", "device": "gpu-0", "tolerations": list(tolerations)}


def published(*taints: Object, device: str = "gpu-0") -> Object:
    return {
        "spec": {"driver": "d", "pool": {"name": "p"}, "devices": [{"name": device, "taints": list(taints)}]}
    }


def evicted(results: list[Object], slices: list[Object], rules: list[Object]) -> datetime | None:
    return eviction_time(results, newest_slices(slices), rules)


def rule(taint: Object, **selector: str | None) -> Object:
    return {"spec": {"deviceSelector": selector, "taint": taint}}


def test_the_earliest_taint_decides_whether_of_a_slice_or_of_a_rule() -> None:
    later = TAINT | {"timeAdded": "2026-01-01T00:01:00Z"}
    assert evicted([result()], [published(later)], [rule(TAINT, device="gpu-0")]) == MOMENT
    assert evicted([result()], [published(TAINT)], [rule(later)]) == MOMENT
    assert evicted([result()], [], [rule(later)]) == MOMENT + timedelta(minutes=1)


def test_other_effects_and_other_devices_evict_nobody() -> None:
    assert evicted([result()], [published(TAINT | {"effect": "NoSchedule"})], []) is None
    assert evicted([result()], [published(TAINT, device="gpu-1")], [rule(TAINT, pool="other")]) is None


def test_what_an_older_generation_of_the_pool_said_evicts_nobody() -> None:
    old, new = published(TAINT), published()
    new["spec"]["pool"] = {"name": "p", "generation": 1}
    assert evicted([result()], [old, new], []) is None
    assert evicted([result()], [old], []) == MOMENT


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
def test_what_a_rule_selects(selector: Object, selected: bool) -> None:
    assert taint_rule_selects(rule(TAINT, **selector), "d", "p", "gpu-0") is selected


def test_a_rule_without_a_selector_is_about_nothing() -> None:
    assert not taint_rule_selects({"spec": {"taint": SICK}}, "d", "p", "gpu-0")


def test_taints_of_rules_come_behind_those_of_the_slice() -> None:
    devices: list[Object] = [{"name": "gpu-0"}, {"name": "gpu-1", "taints": [SICK]}]
    one = {"spec": {"driver": "d", "pool": {"name": "p"}, "devices": devices}}

    first, second = ({**TAINT, "key": key} for key in ("first", "second"))
    (found,) = tainted_slices([one], [rule(first, device="gpu-1"), rule(second)])

    keys = [[taint["key"] for taint in device["taints"]] for device in found["spec"]["devices"]]
    assert keys == [["second"], ["sick", "first", "second"]]
    assert devices == [{"name": "gpu-0"}, {"name": "gpu-1", "taints": [SICK]}]
