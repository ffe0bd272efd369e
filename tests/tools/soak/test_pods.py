"""A pod that is not done says what it waits for."""

from __future__ import annotations

import pytest

from envtest.client.api import Object
from tools.soak.pods import waits_for

PLACED = {"nodeName": "node-0"}
UNPLACED = {"conditions": [{"type": "PodScheduled", "status": "False", "message": "no GPU is free"}]}
CREATING = {
    "phase": "Pending",
    "containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}],
}
UNSAID = {"phase": "Pending", "containerStatuses": [{"state": {"waiting": {}}}]}
RUNNING = {"phase": "Running", "containerStatuses": [{"state": {"running": {}}}]}


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ({"metadata": {}, "spec": {}, "status": {}}, "a place: the scheduler has not tried"),
        ({"metadata": {}, "spec": {}, "status": UNPLACED}, "a place: no GPU is free"),
        ({"metadata": {}, "spec": PLACED, "status": CREATING}, "its container: ContainerCreating"),
        ({"metadata": {}, "spec": PLACED, "status": UNSAID}, "its container: not said"),
        ({"metadata": {}, "spec": PLACED, "status": RUNNING}, "its end, being Running"),
        (
            {"metadata": {"deletionTimestamp": "now"}, "spec": PLACED, "status": RUNNING},
            "its removal by the kubelet",
        ),
    ],
)
def test_a_pod_waits_for_a_place_its_container_its_end_or_its_removal(stored: Object, expected: str) -> None:
    assert waits_for(stored) == expected
