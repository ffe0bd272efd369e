"""NoExecute taints of slices and of DeviceTaintRules drive pods from their devices, as tolerations allow."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from envtest.embedded.control.device_taints import eviction_time, tainted_slices
from tests.envtest.embedded.control.control_plane import (
    CLASS,
    RESOURCE,
    ControlPlane,
    control_plane,
    head,
    request,
)

ADDED = "2026-01-01T00:00:00Z"
MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
TAINT = {"key": "example.com/broken", "value": "yes", "effect": "NoExecute", "timeAdded": ADDED}


@pytest.fixture
def cluster() -> Iterator[ControlPlane]:
    with control_plane() as found:
        found.add_slice("s", "gpu-0", "gpu-1")
        yield found


def rule(effect: str = "NoExecute", **selector: str) -> dict[str, Any]:
    taint = {"key": "example.com/broken", "effect": effect, "timeAdded": ADDED}
    return {**head("DeviceTaintRule", "rule"), "spec": {"deviceSelector": selector, "taint": taint}}


def test_a_rule_evicts_the_pod_on_its_device_and_keeps_others_away(cluster: ControlPlane) -> None:
    for name in ("one", "two"):
        cluster.add_claim(name)
        cluster.add_pod(name, name)
        cluster.wait_bound(name)

    cluster.server.create(f"{RESOURCE}/devicetaintrules", rule(driver=CLASS, device="gpu-0"))

    cluster.wait(lambda: not cluster.has_pod("one") or "deletionTimestamp" in cluster.pod("one")["metadata"])
    assert "deletionTimestamp" not in cluster.pod("two")["metadata"]
    assert cluster.told("DeviceTaintManagerEviction") == ["Marking for deletion"]
    if cluster.has_pod("one"):
        cluster.end_pod("one")
    cluster.add_claim("three")
    cluster.add_pod("three", "three")
    assert "cannot allocate all claims" in cluster.wait_refused("three")


def test_a_request_that_tolerates_the_taint_for_ever_stays(cluster: ControlPlane) -> None:
    cluster.server.create(f"{RESOURCE}/devicetaintrules", rule(device="gpu-0"))
    forever = {"key": "example.com/broken", "operator": "Exists"}
    cluster.add_claim("brave", request(tolerations=[{**forever, "effect": "NoExecute"}]))
    cluster.add_pod("brave", "brave")

    cluster.wait_bound("brave")
    assert cluster.devices("brave") == ["gpu-0"]


@pytest.mark.parametrize(
    ("tolerations", "seconds"),
    [
        ([], 0),
        ([{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}], 60),
        ([{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": -5}], 0),
        ([{"operator": "Exists", "effect": "NoExecute"}], None),
        ([{"operator": "Exists", "effect": "NoSchedule"}], 0),
        ([{"key": "other", "operator": "Exists", "effect": "NoExecute"}], 0),
        ([{"key": TAINT["key"], "value": "yes", "effect": "NoExecute", "tolerationSeconds": 5}], 5),
        ([{"key": TAINT["key"], "value": "no", "effect": "NoExecute", "tolerationSeconds": 5}], 0),
    ],
)
def test_the_time_of_the_eviction(tolerations: list[dict[str, Any]], seconds: int | None) -> None:
    spec = {"driver": CLASS, "pool": {"name": "p"}, "devices": [{"name": "gpu-0", "taints": [TAINT]}]}
    result = {"driver": CLASS, "pool": "p", "device": "gpu-0", "tolerations": tolerations}

    moment = eviction_time([result], [{"spec": spec}], [])

    assert moment == (None if seconds is None else MOMENT + timedelta(seconds=seconds))


def test_a_rule_taints_only_what_it_selects() -> None:
    devices = [{"name": "gpu-0"}, {"name": "gpu-1", "taints": [TAINT]}]
    one = {"spec": {"driver": CLASS, "pool": {"name": "p"}, "devices": devices}}

    def taints(*rules: dict[str, Any]) -> list[int]:
        (found,) = tainted_slices([one], rules)
        return [len(device.get("taints", ())) for device in found["spec"]["devices"]]

    nothing = rule()
    del nothing["spec"]["deviceSelector"]
    assert taints() == [0, 1]
    assert taints(rule(device="gpu-0")) == [1, 1]
    assert taints(rule(pool="other")) == [0, 1]
    assert taints(nothing) == [0, 1]
    assert taints(rule(), rule(driver=CLASS)) == [2, 3]
