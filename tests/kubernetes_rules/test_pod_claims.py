"""Which claims a pod uses, whose a claim is, and what extended resources ask for."""

from typing import Any

import pytest

from kubernetes_rules.pod_claims import (
    ClaimEntry,
    asked_resources,
    claim_entries,
    class_of,
    controlling_pod,
    extended_claim,
    is_extended,
    is_made_for,
    pod_amounts,
    provides,
)
from tests.clusters import Object, extended_requests

NAMED = {"name": "named", "resourceClaimName": "shared"}


OWN = {"name": "own", "resourceClaimTemplateName": "gpus"}


OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True}


def pod(*entries: Object, **status: Any) -> Object:
    return {
        "metadata": {"name": "p", "uid": "u"},
        "spec": {"resourceClaims": list(entries)},
        "status": status,
    }


def claim(*owners: Object) -> Object:
    return {"metadata": {"name": "c", "ownerReferences": list(owners)}}


def test_a_pod_names_a_claim_or_the_template_of_one() -> None:
    made = {"resourceClaimStatuses": [{"name": "own", "resourceClaimName": "p-own-x"}]}
    assert claim_entries(pod(NAMED, OWN, **made)) == [
        ClaimEntry("named", "shared", None),
        ClaimEntry("own", "p-own-x", "gpus"),
    ]


def test_a_claim_is_still_to_be_made_until_the_status_has_its_entry() -> None:
    assert claim_entries(pod(OWN)) == [ClaimEntry("own", None, "gpus")]
    assert claim_entries(pod(OWN, resourceClaimStatuses=[{"name": "own"}])) == []


def test_the_claim_of_extended_resources_stands_in_the_status() -> None:
    assert extended_claim(pod(extendedResourceClaimStatus={"resourceClaimName": "e"})) == "e"


@pytest.mark.parametrize(
    ("owners", "made"),
    [
        ([OWNER], True),
        ([{**OWNER, "controller": False}], False),
        ([{**OWNER, "uid": "before"}], False),
        ([{**OWNER, "kind": "Job", "apiVersion": "batch/v1"}], False),
        ([], False),
    ],
)
def test_a_claim_was_made_for_the_pod_that_controls_it(owners: list[Object], made: bool) -> None:
    assert is_made_for(claim(*owners), pod()) is made
    assert (controlling_pod(claim(*owners)) == ("p", "u")) is made


GPU = "nvidia.com/gpu"


def device_class(name: str, created: str = "2026-01-01T00:00:00Z", **spec: str) -> Object:
    return {"metadata": {"name": name, "creationTimestamp": created}, "spec": spec}


def container(name: str, count: int, **more: Any) -> Object:
    limits = {GPU: str(count), "cpu": "1"} if count else {}
    return {"name": name, "resources": {"limits": limits}, **more}


def asking(containers: list[Object], first: list[Object] | None = None) -> Object:
    return {"spec": {"initContainers": first or [], "containers": containers}}


def requests_of(one: Object) -> list[tuple[str, int]]:
    found = extended_requests(one, {GPU: "whole"}).requests
    return [(request["name"], request["exactly"]["count"]) for request in found]


def mappings_of(one: Object) -> list[tuple[str, str]]:
    found = extended_requests(one, {GPU: "whole"}).mappings
    return [(mapping["containerName"], mapping["requestName"]) for mapping in found]


@pytest.mark.parametrize(
    ("name", "extended"),
    [
        (GPU, True),
        ("deviceclass.resource.kubernetes.io/whole", True),
        ("cpu", False),
        ("hugepages-2Mi", False),
        ("node.kubernetes.io/thing", False),
        ("mykubernetes.io/gpu", False),
        ("nvidia.com/no spaces", False),
        ("requests.nvidia.com/gpu", False),
    ],
)
def test_which_resources_are_extended(name: str, extended: bool) -> None:
    assert is_extended(name) is extended


def test_the_newest_class_with_the_name_is_taken_and_of_equals_the_first() -> None:
    old = device_class("a", extendedResourceName=GPU)
    new = "2026-02-01T00:00:00Z"
    newer = [device_class(name, new, extendedResourceName=GPU) for name in ("z", "m")]

    assert class_of(GPU, [old, *newer]) == "m"
    assert class_of(GPU, [old]) == "a"
    assert class_of("deviceclass.resource.kubernetes.io/a", [old]) == "a"
    assert class_of("deviceclass.resource.kubernetes.io/b", [old]) is None
    assert class_of(GPU, []) is None


def test_an_init_container_uses_what_later_containers_have_before_it_asks_for_more() -> None:
    one = asking([container("main", 2)], [container("init", 3)])

    assert requests_of(one) == [("container-0-request-1", 1), ("container-1-request-1", 2)]
    assert mappings_of(one) == [
        ("main", "container-1-request-1"),
        ("init", "container-1-request-1"),
        ("init", "container-0-request-1"),
    ]


def test_several_init_containers_share_the_largest_of_their_requests() -> None:
    one = asking([container("main", 1)], [container("small", 2), container("big", 4)])

    assert requests_of(one) == [("container-1-request-1", 3), ("container-2-request-1", 1)]
    assert ("small", "container-1-request-1") in mappings_of(one)


def test_a_sidecar_asks_as_a_container_does() -> None:
    one = asking([container("main", 1)], [container("side", 1, restartPolicy="Always")])

    assert requests_of(one) == [("container-0-request-1", 1), ("container-1-request-1", 1)]


def test_a_pod_needs_what_runs_together_or_what_an_init_container_needs_beside_its_sidecars() -> None:
    side = container("side", 1, restartPolicy="Always")
    assert pod_amounts(asking([container("main", 2), container("other", 3)])) == {GPU: 5}
    assert pod_amounts(asking([container("main", 2)], [container("init", 3)])) == {GPU: 3}
    assert pod_amounts(asking([container("main", 2)], [side, container("init", 3)])) == {GPU: 4}
    assert pod_amounts(asking([container("main", 2)], [container("init", 3), side])) == {GPU: 3}


def test_requests_count_where_there_are_no_limits_and_whole_numbers_may_be_written_in_any_way() -> None:
    one = {"name": "c", "resources": {"requests": {GPU: "2000m", "memory": "1Gi"}}}
    assert requests_of(asking([one])) == [("container-0-request-1", 2)]
    assert asked_resources(asking([{"name": "c", "resources": None}])) == []


@pytest.mark.parametrize(("allocatable", "there"), [({GPU: "8"}, True), ({GPU: "0"}, False), ({}, False)])
def test_whether_a_node_has_a_resource_itself(allocatable: dict[str, str], there: bool) -> None:
    assert provides({"status": {"allocatable": allocatable}}, GPU) is there
