"""The policies refuse what somebody could write who has a tenant's rights, or a node's stolen token.

Kubernetes 1.36 checks by itself that a driver writes the status of claims of its own node only. Older
versions do not: there the right ``resourceclaims/status`` is all it takes. Such a version is played by
granting the thief what the check of 1.36 asks for, so that nothing but the policy stands in the way.
"""

import copy
from collections.abc import Iterator
from functools import partial

import pytest

from envtest.client.api import APPLY, MERGE
from tests.api.conftest import new_namespace
from tests.api.policy_rows import (
    ADMIN,
    CONTROLLER,
    ELSEWHERE,
    FINALIZER,
    NODELESS,
    OWN,
    PLUGIN,
    ROWS,
    TENANT,
    TYPED,
    Row,
    asking,
    claim,
    entry,
    result,
)
from tests.api.written import slice_of
from tests.clusters import DRIVER_NAMESPACE, ApiClient, ApiRefused, Object, RealApiServer, paths
from tests.eventually import eventually

Writers = dict[str, ApiClient]

RBAC = "rbac.authorization.k8s.io"
# What a driver may not be given: in 1.36 and later these are asked for beside resourceclaims/status.
CHECKED_SINCE_1_36 = [
    {
        "apiGroups": ["resource.k8s.io"],
        "resources": ["resourceclaims/driver"],
        "verbs": ["arbitrary-node:patch", "arbitrary-node:update"],
    },
    {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims/binding"], "verbs": ["patch", "update"]},
]
DRY: dict[str, str] = {"dryRun": "All"}


def bound(role: str, account: str, namespace: str) -> Object:
    """A binding of a ClusterRole to an account, everywhere."""
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"{account}-{role.replace(':', '-')}"},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
    }


@pytest.fixture(scope="module")
def tenant(api_server: RealApiServer) -> ApiClient:
    """Has the rights of the ClusterRole ``edit``, which a controller would gather from these two."""
    api = api_server.api
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": TENANT}}
    api.apply(
        [account, *(bound(f"system:aggregate-to-{kind}", TENANT, "default") for kind in ("view", "edit"))]
    )
    return api_server.api_as(api_server.mint_token("default", TENANT, OWN))


@pytest.fixture(scope="module")
def thief(api_server: RealApiServer) -> ApiClient:
    """Has the plugin's token of the own node."""
    return api_server.api_as(api_server.mint_token(DRIVER_NAMESPACE, PLUGIN, OWN))


@pytest.fixture(scope="module")
def writers(api_server: RealApiServer, tenant: ApiClient, thief: ApiClient) -> Iterator[Writers]:
    """Everybody of the table; the plugin has rights with which only the policy is left of all checks."""
    api = api_server.api
    role = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": "older"}}
    made = [{**role, "rules": CHECKED_SINCE_1_36}, bound("older", PLUGIN, DRIVER_NAMESPACE)]
    api.apply(made)
    nodeless = {
        account + NODELESS: token_without_node(api_server, account) for account in (CONTROLLER, PLUGIN)
    }
    yield nodeless | {
        CONTROLLER: api_server.api_as(api_server.mint_token(DRIVER_NAMESPACE, CONTROLLER, OWN)),
        PLUGIN: thief,
        TENANT: tenant,
        ADMIN: api,
    }
    for one in made:
        api.delete(api.path_of(one))
    eventually("the rights are gone", partial(may_bind, api), lambda may: not may)


def token_without_node(api_server: RealApiServer, account: str) -> ApiClient:
    """Shows a token of an account that is bound to no pod."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    path = f"{paths.service_account(account, DRIVER_NAMESPACE)}/token"
    return api_server.api_as(api_server.api.request("POST", path, body)["status"]["token"])


def may_bind(api: ApiClient) -> bool:
    """Whether the plugin has the rights of an older version."""
    asked = {
        "verb": "update",
        "group": "resource.k8s.io",
        "resource": "resourceclaims",
        "subresource": "binding",
    }
    user = f"system:serviceaccount:{DRIVER_NAMESPACE}:{PLUGIN}"
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
    return bool(
        api.create({**review, "spec": {"user": user, "resourceAttributes": asked}})["status"]["allowed"]
    )


def stored(api: ApiClient, item: Object, namespace: str) -> Object:
    """Have an object with its status stored."""
    made = api.create(item, namespace)
    if "status" in item:
        # A PUT would keep the spaces in ``data``, and what keeps other spaces is another value to a policy.
        made = api.patch(f"{api.path_of(item, namespace)}/status", {"status": item["status"]})
    return made


def answer(api: ApiClient, row: Row, before: Object | None, namespace: str) -> str:
    """What the API server says against a write, in a dry run."""
    item = copy.deepcopy(row.new or row.old)
    assert item is not None
    if item["kind"] == "Event":
        item["involvedObject"]["namespace"] = namespace
    path = "/".join(filter(None, (api.path_of(item, namespace), row.subresource)))
    try:
        if before is None:
            api.request("POST", api.collection_of(item, namespace), item, query=DRY)
        elif row.new is None:
            api.request("DELETE", path, query=DRY)
        elif item["kind"] == "Event":  # which the driver may patch, and not replace
            api.request("PATCH", path, item, content_type=MERGE, query=DRY)
        elif row.subresource == "status":  # the same
            if not row.said:  # as the plugin does
                own = [told for told in item["status"]["devices"] if told["pool"] == entry(OWN)["pool"]]
                tell(api, api.path_of(item, namespace), *own, dry_run=True)
                return ""
            gone = dict.fromkeys(before.get("status") or {})
            body = {"status": {**gone, **item.get("status", {})}}
            api.request("PATCH", path, body, content_type=MERGE, query=DRY)
        else:
            api.request("PUT", path, item | {"metadata": before["metadata"] | item["metadata"]}, query=DRY)
    except ApiRefused as error:
        return str(error)
    return ""


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_write_is_refused_as_the_table_says(
    api_server: RealApiServer, writers: Writers, namespace: str, row: Row
) -> None:
    api, before = api_server.api, None
    if row.old is not None:
        old = copy.deepcopy(row.old)
        if old["kind"] == "Event":
            old["involvedObject"]["namespace"] = namespace
        before = stored(api, old, namespace)
    try:
        ask = partial(answer, writers[row.who], row, before, namespace)
        # Rights and policies take a moment to be in force.
        eventually(
            "it is answered as the table says", ask, lambda said: row.said in said if row.said else not said
        )
    finally:
        if before is not None and before["kind"] == "ResourceSlice":
            api.delete(api.path_of(before))


def tell(api: ApiClient, path: str, *devices: Object, dry_run: bool = False) -> Object:
    """Apply entries of status.devices, as the plugin does."""
    head = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "one"}}
    query = {"fieldManager": "gpu-dra-kubeletplugin", "force": "true", **(DRY if dry_run else {})}
    body = {**head, "status": {"devices": list(devices)}}
    return api.request("PATCH", f"{path}/status", body, content_type=APPLY, query=query)


def test_a_node_tells_of_its_own_devices_with_the_rights_that_it_has(
    api_server: RealApiServer, namespace: str, thief: ApiClient
) -> None:
    path = paths.resource_claim("one", namespace)
    stored(api_server.api, claim(result(OWN)), namespace)

    tell(thief, path, entry(OWN))

    [told] = api_server.api.get(path)["status"]["devices"]
    assert told.items() >= entry(OWN).items()


def test_a_stolen_token_cannot_write_the_status_of_another_nodes_claims(
    api_server: RealApiServer, namespace: str, thief: ApiClient
) -> None:
    path = paths.resource_claim("one", namespace)
    before = stored(api_server.api, claim(result(ELSEWHERE), devices=(entry(ELSEWHERE),)), namespace)

    for devices in ([], [entry(ELSEWHERE) | {"data": {"uuid": "x"}}], [entry(OWN)]):
        with pytest.raises(ApiRefused):
            thief.patch(f"{path}/status", {"status": {"devices": devices}})
    with pytest.raises(ApiRefused):
        tell(thief, path, entry(ELSEWHERE) | {"data": {"uuid": "x"}})

    assert api_server.api.get(path) == before


def test_the_largest_slice_that_kubernetes_takes_costs_the_policy_less_than_its_limit(
    writers: Writers,
) -> None:
    largest = slice_of(OWN)
    names = [f"{'domain.' * 8}example/{'a' * 30}{number:02}" for number in range(31)]
    amounts = {name: {"value": f"{2**49 - 1}Ki"} for name in names}
    largest["spec"]["devices"] = [
        {"name": f"gpu-{number}", "attributes": TYPED, "capacity": amounts} for number in range(128)
    ]

    assert writers[CONTROLLER].request("POST", paths.resource_slice(), largest, query=DRY)


def test_a_claim_that_its_tenant_deletes_goes_with_the_finalizer_that_kubernetes_removes(
    api_server: RealApiServer, namespace: str, tenant: ApiClient
) -> None:
    path, without = paths.resource_claim("one", namespace), {"metadata": {"finalizers": None}}
    stored(api_server.api, claim(result(OWN), finalizers=(FINALIZER,)), namespace)
    eventually("the tenant's rights are known", partial(deleted, tenant, path))

    assert "deletionTimestamp" in api_server.api.get(path)["metadata"]
    with pytest.raises(ApiRefused, match="the claim has a GPU"):
        tenant.patch(path, without)
    # As the controller of claims, the administrator may bind claims to pods.
    api_server.api.patch(path, without)

    assert api_server.api.find(path) is None


def deleted(api: ApiClient, path: str) -> bool:
    """Whether this user may delete an object, which is done."""
    try:
        api.delete(path)
    except ApiRefused:
        return False
    return True


@pytest.mark.parametrize("label", ["true", "false"])
def test_only_a_namespace_with_the_label_looks_at_gpus(
    api_server: RealApiServer, tenant: ApiClient, label: str
) -> None:
    namespace = new_namespace(api_server.api, **{"resource.kubernetes.io/admin-access": label})
    looking = asking({"exactly": {"deviceClassName": "monitoring", "adminAccess": True}})

    def said() -> str:
        try:
            tenant.request("POST", paths.resource_claim(namespace=namespace), looking, query=DRY)
        except ApiRefused as error:
            return str(error)
        return "created"

    words = "created" if label == "true" else "admin access to devices requires the"
    eventually("it is answered so", said, lambda text: words in text)
