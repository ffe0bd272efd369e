"""Extended resources are claims on one node and the device plugin's on another, and quotas count them."""

from __future__ import annotations

from typing import Any

import pytest

from gpuctl.explain.answer import explain_pod
from gpuctl.explain.findings import Explanation
from tests.gpuctl.explain.objects import CLASS, NODE, pod, snapshot

RESOURCE = "nvidia.com/gpu"
IMPLICIT = "deviceclass.resource.kubernetes.io/gpu"
NAMED: dict[str, Any] = {**CLASS, "spec": {**CLASS["spec"], "extendedResourceName": RESOURCE}}


def container(amount: str, resource: str = RESOURCE, **more: Any) -> dict[str, Any]:
    return {"name": "main", "resources": {"limits": {resource: amount}}, **more}


def with_plugin(name: str, amount: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {}},
        "spec": {},
        "status": {"allocatable": {RESOURCE: amount}},
    }


def other_pod(amount: str, *, node: str = "node-b", by_claim: bool = False) -> dict[str, Any]:
    found = pod("Running", containers=[container(amount)], nodeName=node)
    mappings = [{"containerName": "main", "resourceName": RESOURCE, "requestName": "container-0-request-0"}]
    if by_claim:
        told = {"resourceClaimName": "x", "requestMappings": mappings}
        found["status"]["extendedResourceClaimStatus"] = told
    return found


def explained(*containers: dict[str, Any], init: Any = (), **state: Any) -> Explanation:
    waiting = pod(containers=list(containers), initContainers=list(init))
    return explain_pod(waiting, snapshot(**{"classes": (NAMED,), **state}))


def kinds(told: Explanation) -> list[str]:
    return [one.kind for one in told.findings]


def test_init_containers_use_what_containers_have() -> None:
    told = explained(container("4"), init=[container("4")])

    assert told.verdict == "fits"
    assert [(one.request, one.wants) for one in told.requests] == [
        ("container-1-request-0", "4 devices of class gpu")
    ]


def test_sidecars_have_theirs_beside_the_containers() -> None:
    told = explained(container("3"), init=[container("2", restartPolicy="Always")])

    assert [one.wants for one in told.requests] == ["2 devices of class gpu", "3 devices of class gpu"]
    assert kinds(told) == ["together"]


@pytest.mark.parametrize("text", ["1k", "1e3"])
def test_an_amount_with_a_suffix_is_a_number(text: str) -> None:
    told = explained(container(text))

    assert kinds(told) == ["too-many"]
    assert "asks for 1000 devices; a claim can have at most 32" in told.findings[0].message


def test_the_resource_of_a_class_has_its_implicit_name_as_well() -> None:
    assert explained(container("4", IMPLICIT), classes=(CLASS,)).verdict == "fits"


def test_a_device_plugin_that_has_enough_serves_the_pod() -> None:
    told = explained(container("4"), nodes=(with_plugin("node-b", "8"),), slices=(), pods=(other_pod("4"),))

    assert told.verdict == "fits"
    assert "node-b" in told.summary


def test_a_device_plugin_whose_devices_are_in_use_is_named_as_the_reason() -> None:
    pods = (other_pod("3"), other_pod("1"), other_pod("8", node="node-c"), other_pod("2", by_claim=True))

    told = explained(container("5"), nodes=(with_plugin("node-b", "8"),), slices=(), pods=pods)

    assert told.verdict == "waits"
    (finding,) = told.findings
    assert (finding.kind, finding.message) == (
        "device-plugin",
        "node-b: its device plugin has 8 nvidia.com/gpu, 4 of them for other pods; the pod needs 5",
    )


def test_each_node_is_asked_for_what_it_would_give_itself() -> None:
    told = explained(container("5"), nodes=(NODE, with_plugin("node-b", "4")), pods=())

    assert kinds(told) == ["never", "device-plugin"]
    assert [[node.node for node in one.nodes] for one in told.requests] == [["node-a"]]
    assert told.findings[1].message == "node-b: its device plugin has 4 nvidia.com/gpu; the pod needs 5"
    assert told.summary == "it waits"


def test_one_resource_may_be_a_claim_where_another_is_the_device_plugins() -> None:
    both = container("2")
    both["resources"]["limits"]["example.com/nic"] = "1"
    node = {**NODE, "status": {"allocatable": {"example.com/nic": "1"}}}

    assert explained(both, nodes=(node,), pods=()).verdict == "fits"
    told = explained(both, nodes=(node, {**NODE, "metadata": {"name": "node-b"}}), pods=(both_user(),))
    assert [one.message for one in told.findings] == [
        "node-a: its device plugin has 1 example.com/nic, 1 of them for other pods; the pod needs 1"
    ]
    assert [node.closed for node in told.requests[0].nodes] == [None, "it has no example.com/nic"]


def both_user() -> dict[str, Any]:
    return pod("Running", containers=[container("1", "example.com/nic")], nodeName="node-a")


def test_a_resource_that_nobody_gives_is_told_once() -> None:
    told = explained(container("1", "example.com/nothing"))

    assert kinds(told) == ["extended-resource"]


@pytest.mark.parametrize(
    ("asked", "limited"),
    [
        (RESOURCE, "gpu.deviceclass.resource.k8s.io/devices"),
        (RESOURCE, f"requests.{IMPLICIT}"),
        (IMPLICIT, f"requests.{RESOURCE}"),
        (RESOURCE, "count/resourceclaims.resource.k8s.io"),
    ],
)
def test_a_quota_on_the_claim_of_the_scheduler_is_named(asked: str, limited: str) -> None:
    quota = {"metadata": {"name": "tenant"}, "spec": {}, "status": {"hard": {limited: "0"}}}

    told = explained(container("2", asked), resourcequotas=(quota,))

    assert kinds(told) == ["quota"]
    assert f"exceeded quota: tenant, asked for {1 if 'count/' in limited else 2} of {limited}" in (
        told.findings[0].message
    )


def test_a_quota_that_the_pod_itself_was_charged_to_does_not_count_again() -> None:
    quota = {
        "metadata": {"name": "tenant"},
        "spec": {},
        "status": {"hard": {f"requests.{RESOURCE}": "2"}, "used": {f"requests.{RESOURCE}": "2"}},
    }

    assert explained(container("2"), resourcequotas=(quota,)).verdict == "fits"


def test_a_node_with_a_device_plugin_needs_no_claim_and_so_no_quota_of_claims() -> None:
    hard = {"gpu.deviceclass.resource.k8s.io/devices": "0"}
    quota = {"metadata": {"name": "tenant"}, "spec": {}, "status": {"hard": hard}}

    told = explained(
        container("2"), resourcequotas=(quota,), nodes=(NODE, with_plugin("node-b", "4")), pods=()
    )

    assert told.verdict == "fits"
