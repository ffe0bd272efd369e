"""kubectl get shows kinds with the columns and cells of Kubernetes (printers/internalversion)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from envtest.embedded.shown.tables import COLUMNS, table_of

Object = dict[str, Any]
METADATA = {"name": "a", "creationTimestamp": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize("plural", [*sorted(COLUMNS), "secrets"])
def test_a_row_has_a_cell_for_each_column(plural: str) -> None:
    table = table_of(plural, [{"metadata": METADATA}], {})
    assert len(table["rows"][0]["cells"]) == len(table["columnDefinitions"])


def test_the_restarts_of_a_pod_say_when_the_last_container_ended() -> None:
    ended = (datetime.now(UTC) - timedelta(minutes=5, seconds=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    last = {"terminated": {"finishedAt": ended, "exitCode": 1}}
    status = {"name": "c", "restartCount": 2, "state": {"running": {}}, "ready": True, "lastState": last}
    pod = {
        "metadata": METADATA,
        "spec": {"containers": [{"name": "c"}]},
        "status": {"phase": "Running", "containerStatuses": [status]},
    }

    cells = table_of("pods", [pod], {})["rows"][0]["cells"]

    assert cells[:4] == ["a", "1/1", "Running", "2 (5m1s ago)"]
