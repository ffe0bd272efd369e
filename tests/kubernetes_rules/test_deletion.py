"""A DELETE removes an object, or marks it for those who still need it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from kubernetes_rules.deletion import Deletion, deletion

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
GRACE = {"deletionTimestamp": "2026-01-01T12:00:30Z", "deletionGracePeriodSeconds": 30}


def deleted(
    options: dict[str, Any] | None = None, metadata: dict[str, Any] | None = None, **how: Any
) -> tuple[Deletion, dict[str, Any]]:
    item = {"metadata": {"generation": 1, **(metadata or {})}, "spec": {"nodeName": "n"}}
    found = deletion(item, options or {}, now=NOW, **how)
    return found, found.item["metadata"]


@pytest.mark.parametrize(
    ("options", "policy", "had", "wanted"),
    [
        ({}, "Background", [], []),
        ({}, "Orphan", [], ["orphan"]),
        ({"propagationPolicy": "Foreground"}, "Background", ["a/b"], ["a/b", "foregroundDeletion"]),
        ({"propagationPolicy": "Background"}, "Orphan", ["orphan"], []),
        ({"orphanDependents": True}, "Background", ["foregroundDeletion"], ["orphan"]),
        ({}, "Background", ["foregroundDeletion"], ["foregroundDeletion"]),
        ({"propagationPolicy": "Orphan"}, "unsupported", [], []),
    ],
)
def test_options_object_and_kind_decide_on_the_finalizers(
    options: dict[str, Any], policy: Any, had: list[str], wanted: list[str]
) -> None:
    found, metadata = deleted(options, {"finalizers": had}, policy=policy)

    assert (metadata.get("finalizers") or []) == wanted or found.is_over
    assert found.is_over == (wanted == [])


def test_a_pod_has_its_grace_and_a_negative_one_is_a_second() -> None:
    assert deleted({"gracePeriodSeconds": 30}, is_pod=True)[1] == {"generation": 2, **GRACE}
    assert deleted({"gracePeriodSeconds": -5}, is_pod=True)[1]["deletionGracePeriodSeconds"] == 1


@pytest.mark.parametrize(
    ("asked", "is_changed", "is_over", "moment"),
    [(None, False, False, "30"), (40, False, False, "30"), (10, True, False, "10"), (0, True, True, "00")],
)
def test_a_grace_can_only_be_made_shorter(
    asked: int | None, is_changed: bool, is_over: bool, moment: str
) -> None:
    options = {} if asked is None else {"gracePeriodSeconds": asked}

    found, metadata = deleted(options, {**GRACE}, is_pod=True)

    assert (found.is_changed, found.is_over) == (is_changed, is_over)
    assert metadata["deletionTimestamp"] == f"2026-01-01T12:00:{moment}Z"
