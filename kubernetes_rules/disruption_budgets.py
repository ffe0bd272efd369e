"""Counts how many evictions PodDisruptionBudgets allow, and judges evictions by that.

Budgets, pods and status are JSON of policy/v1 and core/v1. Go: pkg/controller/disruption, and for evictions
pkg/registry/core/pod/storage/eviction.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from kubernetes_rules.errors import RuleError
from kubernetes_rules.selectors import label_selector_matches

Json = Mapping[str, Any]
Object = dict[str, Any]

_CONDITION = "DisruptionAllowed"
_SYNC_FAILED = "SyncFailed"
_DELETION_SECONDS = 120
"""A pod whose eviction was allowed and that is not deleted after this time counts as healthy again.

Go: DeletionTimeout.
"""

_PERCENT = re.compile(r"([0-9]+)%", re.ASCII)

RETRY_SECONDS = 10
"""``retryAfterSeconds`` of a refused eviction while the controller has not processed the budget."""


class NotCounted(RuleError):
    """A budget's expected number of pods cannot be computed; the text is the controller's."""


def budget_selects(budget: Json, pod: Json) -> bool:
    """Whether the budget selects a pod of its namespace.

    An absent selector selects no pod, an empty one every pod.
    """
    selector = (budget.get("spec") or {}).get("selector")
    if selector is None:
        return False
    labels = pod["metadata"].get("labels") or {}
    return label_selector_matches(selector, labels)


def is_ready(pod: Json) -> bool:
    """Whether a pod counts as healthy: its condition Ready is True."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def unmanaged(pods: Iterable[Json]) -> list[str]:
    """The names of pods without a controller, which would say how many there should be."""
    return [pod["metadata"]["name"] for pod in pods if _controller(pod) is None]


def needs_scale(budget: Json) -> bool:
    """Whether the budget depends on the wanted number of pods: by maxUnavailable, or by a percentage."""
    spec = budget.get("spec") or {}
    return spec.get("maxUnavailable") is not None or isinstance(spec.get("minAvailable"), str)


@dataclass(frozen=True, slots=True)
class Scaled:
    """The object with the wanted number of pods: its UID and the number, None if ``resource`` has no scale.

    For a ReplicaSet of a Deployment it is the Deployment.
    """

    uid: str
    pods: int | None
    resource: str = ""


Scales = Mapping[str, Scaled]
"""The object with the wanted number, by the UID of the pods' controller."""


def new_status(budget: Json, pods: Sequence[Json], scales: Scales, now: datetime) -> Object:
    """The budget's status for the pods that it selects. Raises NotCounted."""
    expected, desired = _expected(budget, pods, scales)
    # An allowed eviction counts as done at once, though the pod's deletion is seen only later.
    disrupted = _disrupted(budget, pods, now)
    healthy = sum(
        is_ready(pod) and "deletionTimestamp" not in pod["metadata"]
        for pod in pods
        if pod["metadata"]["name"] not in disrupted
    )
    allowed = max(0, healthy - desired) if expected > 0 else 0
    return with_condition(
        {
            **{key: value for key, value in _status_of(budget).items() if key == "conditions"},
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "expectedPods": expected,
            "disruptionsAllowed": allowed,
            "observedGeneration": budget["metadata"].get("generation", 0),
            **({"disruptedPods": disrupted} if disrupted else {}),
        },
        now,
    )


def failed_status(budget: Json, text: str, now: datetime) -> Object:
    """The status if the controller could not count: no eviction is allowed."""
    status = {**_status_of(budget), "disruptionsAllowed": 0}
    return _conditioned(status, "False", _SYNC_FAILED, text, now)


def with_condition(status: Object, now: datetime) -> Object:
    """The status with the condition DisruptionAllowed that follows from ``disruptionsAllowed``."""
    if status["disruptionsAllowed"] > 0:
        return _conditioned(status, "True", "SufficientPods", "", now)
    return _conditioned(status, "False", "InsufficientPods", "", now)


def seconds_to_recheck(status: Json, now: datetime) -> float | None:
    """Seconds until the first evicted pod that is still there counts as healthy again; None without one."""
    moments = [_moment(text) for text in (status.get("disruptedPods") or {}).values()]
    rest = [(moment + timedelta(seconds=_DELETION_SECONDS) - now).total_seconds() for moment in moments]
    return max(0.0, min(rest)) if rest else None


def _expected(budget: Json, pods: Sequence[Json], scales: Scales) -> tuple[int, int]:
    """``expectedPods`` and ``desiredHealthy``. Raises NotCounted."""
    spec = budget.get("spec") or {}
    if spec.get("maxUnavailable") is not None:
        expected = _scale(pods, scales)
        return expected, max(0, expected - _scaled(spec["maxUnavailable"], expected))
    least = spec.get("minAvailable")
    if isinstance(least, str):
        expected = _scale(pods, scales)
        return expected, _scaled(least, expected)
    return (len(pods), least) if least is not None else (0, 0)


def _scale(pods: Iterable[Json], scales: Scales) -> int:
    """The sum of the wanted numbers of pods, each object counted once."""
    found: dict[str, int] = {}
    for pod in pods:
        uid = _controller(pod)
        if uid is None:
            continue
        if uid not in scales:
            raise NotCounted(f'found no controllers for pod "{pod["metadata"]["name"]}"', "")
        scaled = scales[uid]
        if scaled.pods is None:
            raise NotCounted(f"{scaled.resource} does not implement the scale subresource", "")
        found[scaled.uid] = scaled.pods
    return sum(found.values())


def _scaled(value: int | str, total: int) -> int:
    """A number, or a percentage of ``total`` rounded up."""
    if isinstance(value, int):
        return value
    matched = _PERCENT.fullmatch(value)
    if matched is None:
        raise NotCounted("invalid value for IntOrString: invalid type: string is not a percentage", "")
    return -(-int(matched[1]) * total // 100)


def _controller(pod: Json) -> str | None:
    references = pod["metadata"].get("ownerReferences") or ()
    return next((str(one["uid"]) for one in references if one.get("controller")), None)


def _disrupted(budget: Json, pods: Iterable[Json], now: datetime) -> dict[str, str]:
    """The noted evictions that still count: the pod is not being deleted, and the timeout has not passed."""
    noted = _status_of(budget).get("disruptedPods") or {}
    staying = {pod["metadata"]["name"] for pod in pods if "deletionTimestamp" not in pod["metadata"]}
    limit = timedelta(seconds=_DELETION_SECONDS)
    return {name: text for name, text in noted.items() if name in staying and _moment(text) + limit >= now}


def _conditioned(status: Object, value: str, reason: str, message: str, now: datetime) -> Object:
    """The status with this condition; lastTransitionTime changes only with its value."""
    before = condition_of(status)
    since = before.get("lastTransitionTime") if before.get("status") == value else None
    condition = {
        "type": _CONDITION,
        "status": value,
        "reason": reason,
        "message": message,
        "lastTransitionTime": since or _time_text(now),
        "observedGeneration": status.get("observedGeneration", 0),
    }
    others = [one for one in status.get("conditions") or () if one["type"] != _CONDITION]
    return {**status, "conditions": [*others, condition]}


def condition_of(status: Json) -> Json:
    """The condition DisruptionAllowed, empty if there is none."""
    return next((one for one in status.get("conditions") or () if one["type"] == _CONDITION), {})


def _status_of(budget: Json) -> Json:
    """The budget's status, empty until the controller writes it."""
    return budget.get("status") or {}


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _time_text(moment: datetime) -> str:
    """A moment as the API writes it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def may_ignore_budgets(pod: Json) -> bool:
    """Whether an eviction disrupts nothing: the pod does not run yet, has ended, or is being deleted."""
    phase = (pod.get("status") or {}).get("phase")
    return phase in ("Succeeded", "Failed", "Pending") or "deletionTimestamp" in pod["metadata"]


def may_evict_unready(budget: Json, pod: Json) -> bool:
    """Whether a pod that is not ready may be evicted without being counted."""
    if is_ready(pod):
        return False
    if (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    # IfHealthyBudget, the default: an unready pod may go while enough others are healthy.
    status = _status_of(budget)
    desired = status.get("desiredHealthy", 0)
    return bool(desired > 0 and status.get("currentHealthy", 0) >= desired)


def is_processed(budget: Json) -> bool:
    """Whether the controller has seen the budget's current generation."""
    observed = _status_of(budget).get("observedGeneration", 0)
    return bool(observed >= budget["metadata"].get("generation", 0))


def unprocessed_cause(budget: Json) -> str:
    """The cause of a refused eviction while the controller has not processed the budget."""
    return f"The disruption budget {_name(budget)} is still being processed by the server."


def refusal(budget: Json) -> str | None:
    """Why an eviction is refused, None if the budget allows one.

    The text is that of the API server, which puts it as a cause into the status of its answer.
    """
    status, head = _status_of(budget), f"The disruption budget {_name(budget)}"
    if status.get("disruptionsAllowed", 0) > 0:
        return None
    condition = condition_of(status)
    reason, message = condition.get("reason", ""), condition.get("message", "")
    explained = condition.get("status") == "False" and message
    if explained and reason == _SYNC_FAILED:
        return f"{head} does not allow evicting pods currently because it failed sync: {message}"
    desired, healthy = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
    if healthy <= desired:
        return f"{head} needs {desired} healthy pods and has {healthy} currently"
    if explained:
        return f"{head} does not allow evicting pods currently ({reason}): {message}"
    return f"{head} does not allow evicting pods currently"


def status_after_eviction(budget: Json, pod: str, now: datetime) -> Object:
    """The status after an allowed eviction: one disruption less, and the pod in ``disruptedPods``."""
    status = dict(_status_of(budget))
    status["disruptionsAllowed"] = status["disruptionsAllowed"] - 1
    if status["disruptionsAllowed"] == 0:
        status = with_condition(status, now)
    status["disruptedPods"] = {**(status.get("disruptedPods") or {}), pod: _time_text(now)}
    return status


def _name(budget: Json) -> str:
    return str(budget["metadata"]["name"])
