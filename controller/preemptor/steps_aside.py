"""Finds out whether the scheduler itself makes room for pods with claims, so that the preemptor need not."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from driver.errors import ApiError
from driver.kube.client import KubeClient
from driver.process.log import get_logger

Json = Mapping[str, Any]
Setting = Literal["auto", "yes", "no"]

GATES = ("DRAPreemption",)
"""Feature gates with which kube-scheduler preempts for claims (KEP-5690, which no release has yet)."""

AGAIN_SECONDS = 3600.0
"""How often to ask again: an API server may be replaced by one with other gates."""

# kubernetes_feature_enabled{name="X",stage="BETA"} 1
_ENABLED = re.compile(
    rf'^kubernetes_feature_enabled\{{name="({"|".join(GATES)})",[^}}]*\}} 1$', re.ASCII | re.MULTILINE
)
_log = get_logger(__name__)


class SchedulerPreempts:
    """Whether the scheduler preempts for claims: as an administrator says, or as the API server's gates are.

    The API server and the scheduler know the same gates, and are usually started with the same.
    """

    def __init__(self, client: KubeClient, setting: Setting) -> None:
        self._client = client
        self._setting = setting
        self.is_known = setting != "auto"
        self.reason = "an administrator says so" if setting == "yes" else ""
        """Why the scheduler preempts for claims; empty if it does not."""

    def ask(self) -> None:
        """Read the gates from the metrics of the API server. Raises ApiError for a failure that may pass."""
        if self._setting != "auto":
            return
        try:
            enabled = _ENABLED.findall(self._client.text("/metrics"))
        except ApiError as error:
            if error.retryable:
                raise
            _log.info("cannot read the API server's feature gates", error=str(error))
            enabled = []
        before, self.reason = self.reason, f"the feature gate {enabled[0]} is on" if enabled else ""
        self.is_known = True
        if self.reason != before:
            _log.info("the scheduler preempts for claims" if enabled else "makes room again", gates=enabled)


def is_making_room(pod: Json, there: Iterable[Json]) -> bool:
    """Whether the scheduler has evicted pods for this one, which have not ended yet.

    ``there`` are the pods on the node for which the scheduler has nominated it.
    Go: PodEligibleToPreemptOthers in plugins/defaultpreemption, PodTerminatingByPreemption.
    """
    return any(
        "deletionTimestamp" in one["metadata"]
        and int(one["spec"].get("priority") or 0) < int(pod["spec"].get("priority") or 0)
        and any(
            (told["type"], told["status"], told.get("reason"))
            == ("DisruptionTarget", "True", "PreemptionByScheduler")
            for told in (one.get("status") or {}).get("conditions") or ()
        )
        for one in there
    )
