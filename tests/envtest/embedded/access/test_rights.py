"""Roles decide what a user of the embedded API server may do."""

from typing import Any

import pytest

from envtest.embedded.api.requests import User
from tests.clusters import ApiClient, ApiRefused, EmbeddedApiServer, Object

RBAC = "/apis/rbac.authorization.k8s.io/v1"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
DRA = "resource.k8s.io"
PODS = "/api/v1/namespaces/default/pods"
ANNA = User("anna", ("system:authenticated",))


def client(server: EmbeddedApiServer, user: User | str) -> ApiClient:
    return ApiClient(server.url, None, user if isinstance(user, str) else server.gate.add_user(user))


def grant(server: EmbeddedApiServer, user: str, *rules: Object, namespace: str = "") -> None:
    """Give rules to a user by a ClusterRole, everywhere or in one namespace."""
    name = f"{user.rpartition(':')[2]}-{len(server.objects('clusterroles', 'rbac.authorization.k8s.io'))}"
    server.create(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": [*rules]})
    place = f"{RBAC}/namespaces/{namespace}/rolebindings" if namespace else f"{RBAC}/clusterrolebindings"
    server.create(place, binding(name, user))


def binding(name: str, user: str) -> Object:
    group = "rbac.authorization.k8s.io"
    return {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    }


def rule(resources: str, verbs: str, group: str = "", names: str = "") -> Object:
    found: Object = {"apiGroups": [group], "resources": resources.split(), "verbs": verbs.split()}
    return found | ({"resourceNames": names.split()} if names else {})


def refusal(call: ApiClient, method: str, path: str, body: Any = None) -> tuple[int, str]:
    with pytest.raises(ApiRefused) as caught:
        call.request(method, path, body)
    assert caught.value.status is not None
    return caught.value.status, str(caught.value)


def test_without_a_token_that_it_knows_nobody_is_answered(server: EmbeddedApiServer) -> None:
    assert [refusal(client(server, token), "GET", "/version")[0] for token in ("wrong", "")] == [401, 401]


def test_a_role_counts_where_it_is_bound(server: EmbeddedApiServer) -> None:
    rules = (rule("pods", "list"), rule("configmaps", "get list", names="mine"))
    grant(server, "anna", *rules, namespace="default")
    anna = client(server, ANNA)
    assert anna.request("GET", PODS)["items"] == []
    assert refusal(anna, "GET", "/api/v1/namespaces/kube-system/pods")[0] == 403
    # A rule for names covers a list that selects this name, and no other.
    maps = "/api/v1/namespaces/default/configmaps"
    assert anna.request("GET", f"{maps}?fieldSelector=metadata.name=mine")["items"] == []
    assert refusal(anna, "GET", maps)[0] == 403
    assert refusal(anna, "GET", f"{maps}/mine")[0] == 404


def test_who_writes_the_status_of_a_claim_needs_rights_to_its_parts(server: EmbeddedApiServer) -> None:
    server.create("/api/v1/nodes", {"metadata": {"name": "node-0"}})
    request = {"name": "one", "exactly": {"deviceClassName": "toys"}}
    claim = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [request]}}}
    path = f"{CLAIMS}/{server.create(CLAIMS, claim)['metadata']['name']}"
    account = client(server, server.gate.add_account("default", "robot", "node-0"))
    name = "system:serviceaccount:default:robot"
    grant(server, name, rule("resourceclaims/status", "update", DRA))
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-0"]}]}]
    result = {"request": "one", "driver": "d", "pool": "p", "device": "x"}
    allocation = {"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": terms}}

    def write(status: Object) -> None:
        account.request(
            "PUT", f"{path}/status", {**server.objects("resourceclaims", DRA)[0], "status": status}
        )

    with pytest.raises(ApiRefused, match=r"status.allocation.*resourceclaims/binding"):
        write({"allocation": allocation})
    grant(server, name, rule("resourceclaims/binding", "update", DRA))
    write({"allocation": allocation})
    devices = [{"driver": "d", "pool": "p", "device": "x"}]
    with pytest.raises(ApiRefused, match=r"status.devices.*resourceclaims/driver"):
        write({"allocation": allocation, "devices": devices})
    grant(server, name, rule("resourceclaims/driver", "associated-node:update", DRA, names="d"))
    write({"allocation": allocation, "devices": devices})
    assert len(server.objects("resourceclaims", DRA)[0]["status"]["devices"]) == 1
