"""The embedded claim controller makes claims from templates, and takes back what ended pods had."""

from collections.abc import Iterator

import pytest

from tests.envtest.embedded.control.control_plane import ControlPlane, control_plane, request


@pytest.fixture
def cluster() -> Iterator[ControlPlane]:
    with control_plane() as found:
        found.add_slice("s", "gpu-0")
        yield found


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_gives_its_claim_back(cluster: ControlPlane, phase: str) -> None:
    cluster.add_template("gpus", request())
    cluster.add_pod("job", template="gpus")
    cluster.wait_bound("job")

    cluster.set_phase("job", phase)

    cluster.wait(lambda: cluster.claims() == [])
    assert cluster.has_pod("job")


def test_a_claim_that_was_made_for_a_pod_that_went_meanwhile_goes_too(cluster: ControlPlane) -> None:
    cluster.add_claim("late", owner=("train", "6c1bb9e5-1a3c-4f0f-8a3e-0a9b1d0e7f11"))
    cluster.add_claim("own")

    cluster.wait(lambda: [one["metadata"]["name"] for one in cluster.claims()] == ["own"])


def test_a_pod_that_was_bound_by_hand_gets_its_reservation(cluster: ControlPlane) -> None:
    cluster.add_claim("shared")
    cluster.add_pod("first", "shared")
    cluster.wait_bound("first")

    cluster.add_pod("by-hand", "shared", nodeName="node-a")

    cluster.wait(lambda: len(cluster.claim("shared")["status"]["reservedFor"]) == 2)
