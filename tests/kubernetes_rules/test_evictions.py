"""Whether a PodDisruptionBudget lets a pod be evicted, and the words of its refusal."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from kubernetes_rules.disruption_budgets import (
    may_evict_unready,
    may_ignore_budgets,
    status_after_eviction,
)

Object = dict[str, Any]
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def budget(spec: Object | None = None, **status: Any) -> Object:
    return {"metadata": {"name": "b", "generation": 2}, "spec": spec or {}, "status": status}


def pod(phase: str = "Running", *, ready: bool = True) -> Object:
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    return {"metadata": {"name": "p"}, "status": {"phase": phase, "conditions": conditions}}


@pytest.mark.parametrize("phase", ["Pending", "Succeeded", "Failed"])
def test_a_pod_that_does_not_run_is_evicted_whatever_its_budget(phase: str) -> None:
    assert may_ignore_budgets(pod(phase))
    assert not may_ignore_budgets(pod())
    assert may_ignore_budgets({"metadata": {"deletionTimestamp": "x"}, "status": {"phase": "Running"}})


def test_a_pod_that_is_not_ready_takes_nothing_from_a_budget_that_is_met() -> None:
    met: Object = {"desiredHealthy": 1, "currentHealthy": 1}

    assert may_evict_unready(budget(**met), pod(ready=False))
    assert not may_evict_unready(budget(**met), pod())
    assert not may_evict_unready(budget(desiredHealthy=2, currentHealthy=1), pod(ready=False))
    always = {"unhealthyPodEvictionPolicy": "AlwaysAllow"}
    assert may_evict_unready(budget(always, desiredHealthy=2, currentHealthy=1), pod(ready=False))


def test_an_eviction_takes_a_disruption_and_notes_the_pod() -> None:
    two = status_after_eviction(budget(disruptionsAllowed=2, observedGeneration=2), "p", NOW)
    none = status_after_eviction({**budget(), "status": two}, "q", NOW)

    assert two["disruptionsAllowed"] == 1
    assert "conditions" not in two
    assert none["disruptionsAllowed"] == 0
    assert none["disruptedPods"] == {"p": "2026-01-01T12:00:00Z", "q": "2026-01-01T12:00:00Z"}
    assert none["conditions"][0]["reason"] == "InsufficientPods"
