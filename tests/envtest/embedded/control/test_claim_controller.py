"""The embedded claim controller makes claims from templates, and takes back what ended pods had."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.envtest.embedded.control.control_plane import CLAIMS, ControlPlane, control_plane, request


@pytest.fixture
def cluster() -> Iterator[ControlPlane]:
    with control_plane() as found:
        found.add_slice("s", "gpu-0")
        yield found


def test_a_pod_gets_a_claim_of_its_own_from_a_template(cluster: ControlPlane) -> None:
    cluster.add_template("gpus", request())
    cluster.add_pod("train", template="gpus")

    cluster.wait_bound("train")

    (claim,) = cluster.claims()
    metadata, pod = claim["metadata"], cluster.pod("train")
    assert metadata["name"].startswith("train-gpu-")
    assert metadata["annotations"] == {"resource.kubernetes.io/pod-claim-name": "gpu"}
    assert metadata["labels"] == {"from": "gpus"}
    (owner,) = metadata["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Pod", pod["metadata"]["uid"], True)
    assert pod["status"]["resourceClaimStatuses"] == [{"name": "gpu", "resourceClaimName": metadata["name"]}]


def test_a_template_that_is_missing_is_told_on_the_pod_and_waited_for(cluster: ControlPlane) -> None:
    cluster.add_pod("early", template="gpus")

    cluster.wait(lambda: len(cluster.told("FailedResourceClaimCreation")) == 1)
    (told,) = cluster.told("FailedResourceClaimCreation")
    assert told == (
        'PodResourceClaim gpu: resource claim template "gpus": '
        'resourceclaimtemplate.resource.k8s.io "gpus" not found'
    )
    cluster.add_template("gpus", request())
    cluster.wait_bound("early")


def test_the_last_pod_to_go_takes_the_allocation_along(cluster: ControlPlane) -> None:
    cluster.add_claim("shared")
    for name in ("one", "two"):
        cluster.add_pod(name, "shared")
        cluster.wait_bound(name)

    cluster.end_pod("one")
    cluster.wait(lambda: len(cluster.claim("shared")["status"]["reservedFor"]) == 1)
    assert cluster.devices("shared") == ["gpu-0"]
    cluster.end_pod("two")

    cluster.wait(lambda: not cluster.claim("shared").get("status"))
    cluster.wait(lambda: not cluster.claim("shared")["metadata"].get("finalizers"))
    cluster.add_claim("next")
    cluster.add_pod("three", "next")
    cluster.wait_bound("three")


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


def test_a_claim_in_use_goes_only_with_its_pod(cluster: ControlPlane) -> None:
    cluster.add_claim("mine")
    cluster.add_pod("train", "mine")
    cluster.wait_bound("train")

    cluster.server.delete(f"{CLAIMS}/mine")
    assert "deletionTimestamp" in cluster.claim("mine")["metadata"]
    cluster.end_pod("train")

    cluster.wait(lambda: cluster.claims() == [])


def test_a_pod_that_was_bound_by_hand_gets_its_reservation(cluster: ControlPlane) -> None:
    cluster.add_claim("shared")
    cluster.add_pod("first", "shared")
    cluster.wait_bound("first")

    cluster.add_pod("by-hand", "shared", nodeName="node-a")

    cluster.wait(lambda: len(cluster.claim("shared")["status"]["reservedFor"]) == 2)
