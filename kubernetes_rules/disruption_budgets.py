"""Counts how many pods PodDisruptionBudgets allow to be evicted, and judges an eviction by that.

Budgets, pods and status are JSON as policy/v1 and core/v1 have them. Go: pkg/controller/disruption, and for
evictions pkg/registry/core/pod/storage/eviction.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from kubernetes_rules.errors import RuleError
from kubernetes_rules.selectors import selector_holds

Json = Mapping[str, Any]
Object = dict[str, Any]

_CONDITION = "DisruptionAllowed"
_SYNC_FAILED = "SyncFailed"
_DELETION_SECONDS = 120
"""After this time a pod that was to be evicted, and is still there, counts as available again."""

_PERCENT = re.compile(r"([0-9]+)%", re.ASCII)

RETRY_SECONDS = 10
"""How long a client has to wait until the controller has processed a budget."""


class NotCounted(RuleError):
    """How many pods a budget expects cannot be known; the text is that of the controller."""


def selects(budget: Json, pod: Json) -> bool:
    """Whether the budget is about the pod, both of one namespace: an absent selector selects no pod."""
    selector = (budget.get("spec") or {}).get("selector")
    if selector is None:
        return False
    labels = pod["metadata"].get("labels") or {}
    return selector_holds(selector, labels)


def is_ready(pod: Json) -> bool:
    """Whether a pod counts as healthy."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def unmanaged(pods: Iterable[Json]) -> list[str]:
    """The names of the pods that no controller has made: how many there should be of them, nobody knows."""
    return [pod["metadata"]["name"] for pod in pods if _controller(pod) is None]


def needs_scale(budget: Json) -> bool:
    """Whether the budget counts from how many pods there should be: what may be lost, or a share."""
    spec = budget.get("spec") or {}
    return spec.get("maxUnavailable") is not None or isinstance(spec.get("minAvailable"), str)


@dataclass(frozen=True, slots=True)
class Scaled:
    """What says how many pods there are to be: its UID, their number, None where ``resource`` has no scale.

    The ReplicaSets of a Deployment are scaled together: of each it is the Deployment that says so.
    """

    uid: str
    pods: int | None
    resource: str = ""


Scales = Mapping[str, Scaled]
"""What says how many pods there are to be, by the UID of the controller of these pods."""


def new_status(budget: Json, pods: Sequence[Json], scales: Scales, now: datetime) -> Object:
    """The budget's status for the pods that it selects. Raises NotCounted."""
    expected, desired = _expected(budget, pods, scales)
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
    """The status when the controller could not count: nothing may be evicted."""
    status = {**_status_of(budget), "disruptionsAllowed": 0}
    return _conditioned(status, "False", _SYNC_FAILED, text, now)


def with_condition(status: Object, now: datetime) -> Object:
    """The status with the condition that fits to the number of disruptions that it allows."""
    if status["disruptionsAllowed"] > 0:
        return _conditioned(status, "True", "SufficientPods", "", now)
    return _conditioned(status, "False", "InsufficientPods", "", now)


def seconds_to_recheck(status: Json, now: datetime) -> float | None:
    """When the first of the pods that were to be evicted counts again; None without such pods."""
    moments = [_moment(text) for text in (status.get("disruptedPods") or {}).values()]
    rest = [(moment + timedelta(seconds=_DELETION_SECONDS) - now).total_seconds() for moment in moments]
    return max(0.0, min(rest)) if rest else None


def _expected(budget: Json, pods: Sequence[Json], scales: Scales) -> tuple[int, int]:
    """How many pods there should be, and how many of them healthy. Raises NotCounted."""
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
    """The wanted numbers of pods of all controllers of these pods."""
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
    """A number, or so many percent of ``total``, rounded up."""
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
    """The pods that are to be evicted and are not deleted yet, as long as that may take."""
    noted = _status_of(budget).get("disruptedPods") or {}
    staying = {pod["metadata"]["name"] for pod in pods if "deletionTimestamp" not in pod["metadata"]}
    limit = timedelta(seconds=_DELETION_SECONDS)
    return {name: text for name, text in noted.items() if name in staying and _moment(text) + limit >= now}


def _conditioned(status: Object, value: str, reason: str, message: str, now: datetime) -> Object:
    """The status with this condition; its time changes with its value."""
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
    """The condition that says whether disruptions are allowed; empty where there is none."""
    return next((one for one in status.get("conditions") or () if one["type"] == _CONDITION), {})


def _status_of(budget: Json) -> Json:
    """The budget's status, empty before the controller has looked."""
    return budget.get("status") or {}


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _time_text(moment: datetime) -> str:
    """A moment as the API writes it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


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
    status = _status_of(budget)
    desired = status.get("desiredHealthy", 0)
    return bool(desired > 0 and status.get("currentHealthy", 0) >= desired)


def is_processed(budget: Json) -> bool:
    """Whether the status is about the budget as it is now."""
    observed = _status_of(budget).get("observedGeneration", 0)
    return bool(observed >= budget["metadata"].get("generation", 0))


def still_processed(budget: Json) -> str:
    """The cause of a refused eviction while the controller has not processed the budget."""
    return f"The disruption budget {_name(budget)} is still being processed by the server."


def refusal(budget: Json) -> str | None:
    """The cause of a refused eviction when no disruption is allowed; None where one is allowed."""
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
    """The status once a pod's eviction was allowed: one disruption less, the pod noted until it is gone."""
    status = dict(_status_of(budget))
    status["disruptionsAllowed"] = status["disruptionsAllowed"] - 1
    if status["disruptionsAllowed"] == 0:
        status = with_condition(status, now)
    status["disruptedPods"] = {**(status.get("disruptedPods") or {}), pod: _time_text(now)}
    return status


def _name(budget: Json) -> str:
    return str(budget["metadata"]["name"])
