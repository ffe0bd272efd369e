"""What a tenant with the ClusterRole ``edit`` can do to its own claims, and what it cannot."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from envtest.client import paths
from envtest.client.api import ApiClient
from envtest.client.errors import ApiRefused
from envtest.real.api_server import RealApiServer
from tests.api.test_policies import OWN, Claims, refused, result
from tests.eventually import eventually

Object = dict[str, Any]

RBAC = "rbac.authorization.k8s.io"
FINALIZER = "resource.kubernetes.io/delete-protection"
WITHOUT: Object = {"metadata": {"finalizers": None}}


@pytest.fixture
def tenant(api_server: RealApiServer, namespace: str) -> ApiClient:
    """Has the role in the namespace, as quickly as the API server knows it."""
    api = api_server.api
    api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "tenant"}}, namespace)
    subject = {"kind": "ServiceAccount", "name": "tenant", "namespace": namespace}
    # A controller would write the rules of these roles into the role ``edit``.
    for kind in ("view", "edit"):
        name = f"system:aggregate-to-{kind}"
        role = {"apiGroup": RBAC, "kind": "ClusterRole", "name": name}
        binding = {"apiVersion": f"{RBAC}/v1", "kind": "RoleBinding", "metadata": {"name": kind}}
        api.create({**binding, "roleRef": role, "subjects": [subject]}, namespace)
    one = api_server.api_as(api_server.mint_token(namespace, "tenant", OWN))

    def may_read() -> bool:
        try:
            one.list_objects(paths.resource_claim(namespace=namespace))
        except ApiRefused:
            return False
        return True

    eventually("the role is known", may_read)
    return one


@pytest.fixture
def claim(api_server: RealApiServer, namespace: str) -> str:
    """The path of a claim that has a GPU, for a pod."""
    api = api_server.api
    status = Claims(api_server, namespace).make("train", result(OWN))
    path = status.removesuffix("/status")
    api.patch(path, {"metadata": {"finalizers": [FINALIZER]}})
    return path


def test_a_claim_that_has_a_gpu_keeps_its_finalizer(tenant: ApiClient, claim: str) -> None:
    eventually("the policy is in force", partial(_said, tenant, claim), lambda said: "has a GPU" in said)

    assert "has a GPU" in refused(tenant, "PATCH", claim, WITHOUT)
    assert "has a GPU" in refused(tenant, "PATCH", claim, {"metadata": {"finalizers": ["example.com/own"]}})
    tenant.patch(claim, {"metadata": {"finalizers": [FINALIZER, "example.com/own"]}})
    kept = tenant.patch(claim, {"metadata": {"finalizers": [FINALIZER], "labels": {"team": "a"}}})
    assert kept["metadata"]["finalizers"] == [FINALIZER]


def _said(tenant: ApiClient, claim: str) -> str:
    try:
        tenant.request(
            "PATCH", claim, WITHOUT, content_type="application/merge-patch+json", query={"dryRun": "All"}
        )
    except ApiRefused as error:
        return str(error)
    return ""


def test_a_claim_without_a_device_and_one_of_another_driver_are_the_tenants_own(
    api_server: RealApiServer, namespace: str, tenant: ApiClient
) -> None:
    claims = Claims(api_server, namespace)
    for name, results in (("waits", ()), ("network", (result(OWN, "nic.example.com"),))):
        path = claims.make(name, *results).removesuffix("/status")
        api_server.api.patch(path, {"metadata": {"finalizers": [FINALIZER]}})
        assert "finalizers" not in tenant.patch(path, WITHOUT)["metadata"]


def test_a_claim_that_its_tenant_deletes_goes_with_its_finalizer_which_kubernetes_removes(
    api_server: RealApiServer, tenant: ApiClient, claim: str
) -> None:
    tenant.delete(claim)
    assert "deletionTimestamp" in api_server.api.get(claim)["metadata"]
    assert "has a GPU" in refused(tenant, "PATCH", claim, WITHOUT)

    # As its controller, the administrator may bind claims to pods.
    api_server.api.patch(claim, WITHOUT)

    assert api_server.api.find(claim) is None


def asking(**request: Any) -> Object:
    """A claim with one request."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "looks"},
        "spec": {"devices": {"requests": [{"name": "gpus", **request}]}},
    }


@pytest.mark.parametrize(
    "request_",
    [
        {"exactly": {"deviceClassName": "monitoring"}},
        {"exactly": {"deviceClassName": "monitoring", "adminAccess": False, "count": 3}},
        {"firstAvailable": [{"name": "one", "deviceClassName": "monitoring"}]},
    ],
    ids=["plainly", "three", "as an alternative"],
)
def test_the_class_for_looking_gives_no_gpu_to_anybody(
    tenant: ApiClient, namespace: str, request_: Object
) -> None:
    path = paths.resource_claim(namespace=namespace)

    assert "needs adminAccess: true" in refused(tenant, "POST", path, asking(**request_))


def test_a_tenant_looks_at_no_gpu_and_asks_for_other_classes(tenant: ApiClient, namespace: str) -> None:
    path = paths.resource_claim(namespace=namespace)
    looking = asking(exactly={"deviceClassName": "monitoring", "adminAccess": True})

    assert (
        "admin access to devices requires the `resource.kubernetes.io/admin-access: true` label"
        in refused(tenant, "POST", path, looking)
    )
    tenant.request("POST", path, asking(exactly={"deviceClassName": "large"}), query={"dryRun": "All"})


@pytest.mark.parametrize("kind", ["exactly", "firstAvailable"])
def test_no_amount_of_a_claim_makes_the_scheduler_calculate_for_ever(
    tenant: ApiClient, namespace: str, kind: str
) -> None:
    amounts = {"memory": "1e2147483647"}
    asks: Object = {"deviceClassName": "gpu.nvidia.com", "capacity": {"requests": amounts}}
    request = {"name": "r", kind: asks if kind == "exactly" else [{"name": "first", **asks}]}
    claim = {"metadata": {"name": "huge"}, "spec": {"devices": {"requests": [request]}}}
    path = paths.resource_claim(namespace=namespace)

    assert "an amount with an exponent" in refused(tenant, "POST", path, claim)
    amounts["memory"] = "1.5E"
    tenant.request("POST", path, claim)
