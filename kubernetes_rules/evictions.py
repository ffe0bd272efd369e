"""Decides whether the PodDisruptionBudget of a pod lets the Eviction API end it, and says why not.

Budgets and pods are JSON as policy/v1 and core/v1 have them. Go: the pods' eviction subresource
(pkg/registry/core/pod/storage/eviction.go).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from kubernetes_rules.disruption_budgets import (
    SYNC_FAILED,
    condition_of,
    is_ready,
    status_of,
    time_text,
    with_condition,
)

Json = Mapping[str, Any]
Object = dict[str, Any]

RETRY_SECONDS = 10
"""What a client is told to wait before a budget has been looked at."""


def may_ignore_budgets(pod: Json) -> bool:
    """Whether an eviction of the pod disrupts nothing, because it does not run yet, or not any more."""
    phase = (pod.get("status") or {}).get("phase")
    return phase in ("Succeeded", "Failed", "Pending") or "deletionTimestamp" in pod["metadata"]


def takes_nothing(budget: Json, pod: Json) -> bool:
    """Whether a pod that is not ready may be evicted without being counted."""
    if is_ready(pod):
        return False
    if (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = status_of(budget)
    desired = status.get("desiredHealthy", 0)
    return bool(desired > 0 and status.get("currentHealthy", 0) >= desired)


def is_processed(budget: Json) -> bool:
    """Whether the status is about the budget as it is now."""
    observed = status_of(budget).get("observedGeneration", 0)
    return bool(observed >= budget["metadata"].get("generation", 0))


def still_processed(budget: Json) -> str:
    """The cause that an eviction is told before the controller has looked."""
    return f"The disruption budget {_name(budget)} is still being processed by the server."


def refusal(budget: Json) -> str | None:
    """The cause that an eviction is told when no disruption is allowed; None where one is."""
    status, head = status_of(budget), f"The disruption budget {_name(budget)}"
    if status.get("disruptionsAllowed", 0) > 0:
        return None
    condition = condition_of(status)
    reason, message = condition.get("reason", ""), condition.get("message", "")
    told = condition.get("status") == "False" and message
    if told and reason == SYNC_FAILED:
        return f"{head} does not allow evicting pods currently because it failed sync: {message}"
    desired, healthy = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
    if healthy <= desired:
        return f"{head} needs {desired} healthy pods and has {healthy} currently"
    if told:
        return f"{head} does not allow evicting pods currently ({reason}): {message}"
    return f"{head} does not allow evicting pods currently"


def status_after_eviction(budget: Json, pod: str, now: datetime) -> Object:
    """The status once a pod's eviction was allowed: one disruption less, the pod noted until it is gone."""
    status = dict(status_of(budget))
    status["disruptionsAllowed"] = status["disruptionsAllowed"] - 1
    if status["disruptionsAllowed"] == 0:
        status = with_condition(status, now)
    status["disruptedPods"] = {**(status.get("disruptedPods") or {}), pod: time_text(now)}
    return status


def _name(budget: Json) -> str:
    return str(budget["metadata"]["name"])
