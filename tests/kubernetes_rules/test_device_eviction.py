"""NoExecute taints drive pods from their devices, as soon as tolerations allow."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from kubernetes_rules.pool_generations import newest_slices
from kubernetes_rules.taints import eviction_time

Json = dict[str, Any]

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
TAINT = {"key": "broken", "value": "yes", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}


def result(*tolerations: Json) -> Json:
    return {"driver": "d", "pool": "p", "device": "gpu-0", "tolerations": list(tolerations)}


def published(*taints: Json, device: str = "gpu-0") -> Json:
    return {
        "spec": {"driver": "d", "pool": {"name": "p"}, "devices": [{"name": device, "taints": list(taints)}]}
    }


def evicted(results: list[Json], slices: list[Json], rules: list[Json]) -> datetime | None:
    return eviction_time(results, newest_slices(slices), rules)


def rule(taint: Json, **selector: str) -> Json:
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
