"""NoExecute taints of slices and of DeviceTaintRules drive pods from their devices, as tolerations allow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.envtest.embedded.control.control_plane import (
    RESOURCE,
    ControlPlane,
    control_plane,
    head,
    request,
)

ADDED = "2026-01-01T00:00:00Z"


@pytest.fixture
def cluster() -> Iterator[ControlPlane]:
    with control_plane() as found:
        found.add_slice("s", "gpu-0", "gpu-1")
        yield found


def rule(effect: str = "NoExecute", **selector: str) -> dict[str, Any]:
    taint = {"key": "example.com/broken", "effect": effect, "timeAdded": ADDED}
    return {**head("DeviceTaintRule", "rule"), "spec": {"deviceSelector": selector, "taint": taint}}


def test_a_request_that_tolerates_the_taint_for_ever_stays(cluster: ControlPlane) -> None:
    cluster.server.create(f"{RESOURCE}/devicetaintrules", rule(device="gpu-0"))
    forever = {"key": "example.com/broken", "operator": "Exists"}
    cluster.add_claim("brave", request(tolerations=[{**forever, "effect": "NoExecute"}]))
    cluster.add_pod("brave", "brave")

    cluster.wait_bound("brave")
    assert cluster.devices("brave") == ["gpu-0"]
