"""Which nodes a pod may be on, and the words for why it is on none."""

from __future__ import annotations

from typing import Any

import pytest

from envtest.embedded.control.scheduler import fit_error, reason_against

NODE = {"metadata": {"name": "a", "labels": {"zone": "x", "gpus": "8"}}, "spec": {}}


def test_reasons_are_counted_and_sorted_as_the_real_scheduler_does_it() -> None:
    helpless = "preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
    message = fit_error(3, "", ["b", "a", "b"])
    assert message == f"0/3 nodes are available: 1 a, 2 b. {helpless}"
    assert fit_error(3, "all the same", ()) == f"0/3 nodes are available: all the same. {helpless}"


@pytest.mark.parametrize(
    ("taint", "toleration", "stays_away"),
    [
        ({"key": "a", "value": "1", "effect": "NoSchedule"}, {"key": "a", "value": "1"}, False),
        ({"key": "a", "value": "1", "effect": "NoSchedule"}, {"key": "a", "value": "2"}, True),
        ({"key": "a", "effect": "NoExecute"}, {"key": "a", "operator": "Exists"}, False),
        ({"key": "a", "effect": "NoExecute"}, {"operator": "Exists", "effect": "NoSchedule"}, True),
        ({"key": "a", "effect": "PreferNoSchedule"}, {"key": "b"}, False),
    ],
)
def test_taints_of_nodes(taint: dict[str, Any], toleration: dict[str, Any], stays_away: bool) -> None:
    node = {**NODE, "spec": {"taints": [taint]}}
    pod = {"spec": {"tolerations": [toleration]}}
    assert bool(reason_against(pod, node)) is stays_away
