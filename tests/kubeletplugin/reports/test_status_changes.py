"""What is news about the health of a claim's devices follows from the entries before and after."""

from __future__ import annotations

from typing import Any

from kubeletplugin.reports.claim_status import HealthChange, health_change


def entry(status: str, reason: str, device: str = "gpu-0", message: str = "words") -> dict[str, Any]:
    """An entry of ``status.devices`` with the condition Ready."""
    ready = {"type": "Ready", "status": status, "reason": reason, "message": message}
    return {"driver": "gpu.nvidia.com", "pool": "node", "device": device, "conditions": [ready]}


WELL, LOST = entry("True", "GpuReady"), entry("False", "GpuLost")


def test_falling_ill_and_getting_well_are_news() -> None:
    assert health_change([WELL], [LOST]) == HealthChange(sick=("gpu-0: words",))
    assert health_change([], [LOST]) == HealthChange(sick=("gpu-0: words",))
    assert health_change([LOST], [WELL]) == HealthChange(well=("gpu-0 is healthy again",))


def test_what_stays_is_no_news() -> None:
    for same in (WELL, LOST):
        assert health_change([same], [same]) == HealthChange()
    assert health_change([], [WELL]) == HealthChange()


def test_another_reason_is_news_and_other_words_are_not() -> None:
    assert health_change([LOST], [entry("False", "NeedsReset")]).sick == ("gpu-0: words",)
    assert health_change([LOST], [entry("False", "GpuLost", message="other")]) == HealthChange()


def test_a_memory_limit_has_events_of_its_own() -> None:
    limit = entry("False", "MemoryLimitNotHeld")
    assert health_change([WELL], [limit]) == health_change([limit], [WELL]) == HealthChange()
    assert health_change([limit], [LOST]).sick == ("gpu-0: words",)


def test_each_device_is_judged_by_its_own_entry() -> None:
    other = entry("False", "GpuLost", "gpu-1")
    found = health_change([WELL, other], [LOST, entry("True", "GpuReady", "gpu-1")])
    assert found == HealthChange(("gpu-0: words",), ("gpu-1 is healthy again",))
