"""With RBAC the embedded API server answers as kube-apiserver does; the texts are those of 1.37.1."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from envtest.client.api import ApiClient
from envtest.client.errors import ApiRefused
from envtest.embedded.api.requests import ADMIN, User
from envtest.embedded.server import EmbeddedApiServer

Object = dict[str, Any]
RBAC = "/apis/rbac.authorization.k8s.io/v1"
ACCESS = "/apis/authorization.k8s.io/v1"
IDENTITY = "/apis/authentication.k8s.io/v1"
PODS = "/api/v1/namespaces/default/pods"
ANNA = User("anna", ("system:authenticated",))


@pytest.fixture
def server() -> Iterator[EmbeddedApiServer]:
    with EmbeddedApiServer(rbac=True) as running:
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}}
        running.create("/api/v1/namespaces/default/serviceaccounts", account)
        yield running


def client(server: EmbeddedApiServer, user: User | str) -> ApiClient:
    return ApiClient(server.url, None, user if isinstance(user, str) else server.gate.add_user(user))


def grant(server: EmbeddedApiServer, user: str, *rules: Object, namespace: str = "") -> None:
    """Give rules to a user by a ClusterRole, everywhere or in one namespace."""
    name = f"{user}-{len(server.objects('clusterroles', 'rbac.authorization.k8s.io'))}"
    server.create(f"{RBAC}/clusterroles", role(name, *rules))
    place = f"{RBAC}/namespaces/{namespace}/rolebindings" if namespace else f"{RBAC}/clusterrolebindings"
    server.create(place, binding(name, name, user))


def role(name: str, *rules: Object) -> Object:
    return {"metadata": {"name": name}, "rules": list(rules)}


def binding(name: str, role_name: str, user: str, kind: str = "ClusterRole") -> Object:
    group = "rbac.authorization.k8s.io"
    return {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": kind, "name": role_name},
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


def test_users_without_rights_read_nothing_but_what_everybody_may(server: EmbeddedApiServer) -> None:
    anna = client(server, ANNA)
    code, text = refusal(anna, "GET", PODS)
    assert code == 403
    assert 'User "anna" cannot list resource "pods" in API group "" in the namespace "default"' in text
    _, text = refusal(anna, "GET", f"{PODS}/x/log")
    assert 'User "anna" cannot get resource "pods/log" in API group "" in the namespace "default"' in text
    _, text = refusal(anna, "GET", "/api/v1/nodes")
    assert 'User "anna" cannot list resource "nodes" in API group "" at the cluster scope' in text
    _, text = refusal(anna, "GET", "/metrics")
    assert 'forbidden: User "anna" cannot get path "/metrics"' in text
    assert anna.request("GET", "/version")["minor"] == "37"


def test_a_wrong_token_is_refused_and_none_is_anonymous(server: EmbeddedApiServer) -> None:
    assert refusal(client(server, "wrong"), "GET", PODS)[0] == 401
    nobody = ApiClient(server.url, None, "")
    assert 'User "system:anonymous" cannot list resource "pods"' in refusal(nobody, "GET", PODS)[1]


def test_without_roles_who_shows_a_token_may_do_everything_and_nobody_else_anything() -> None:
    with EmbeddedApiServer() as server:
        assert client(server, ANNA).get("/api/v1/secrets")["items"] == []
        for stranger in ("", "wrong"):
            assert refusal(client(server, stranger), "GET", "/version")[0] == 401


def test_a_role_counts_where_it_is_bound(server: EmbeddedApiServer) -> None:
    grant(
        server,
        "anna",
        rule("pods", "list"),
        rule("configmaps", "get list", names="mine"),
        namespace="default",
    )
    anna = client(server, ANNA)
    assert anna.request("GET", PODS)["items"] == []
    assert refusal(anna, "GET", "/api/v1/namespaces/kube-system/pods")[0] == 403
    # A rule for names covers a list that selects this name, and no other.
    maps = "/api/v1/namespaces/default/configmaps"
    assert anna.request("GET", f"{maps}?fieldSelector=metadata.name=mine")["items"] == []
    assert refusal(anna, "GET", maps)[0] == 403
    assert refusal(anna, "GET", f"{maps}/mine")[0] == 404


def test_reviews_tell_what_somebody_may_and_why(server: EmbeddedApiServer) -> None:
    grant(server, "anna", rule("pods", "get"), namespace="default")
    asked = {"verb": "get", "resource": "pods", "namespace": "default"}
    review = client(server, ANNA).request(
        "POST", f"{ACCESS}/selfsubjectaccessreviews", {"spec": {"resourceAttributes": asked}}
    )
    assert review["status"]["allowed"]
    assert review["status"]["reason"].startswith('RBAC: allowed by RoleBinding "anna-')
    admin = client(server, ADMIN)
    spec = {"user": "anna", "resourceAttributes": {**asked, "verb": "delete"}}
    other = admin.request("POST", f"{ACCESS}/subjectaccessreviews", {"spec": spec})
    assert other["status"] == {"allowed": False}
    rules = client(server, ANNA).request(
        "POST", f"{ACCESS}/selfsubjectrulesreviews", {"spec": {"namespace": "default"}}
    )
    assert {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]} in rules["status"]["resourceRules"]
    code, text = refusal(admin, "POST", f"{ACCESS}/selfsubjectaccessreviews", {"spec": {}})
    assert code == 422
    assert "exactly one of nonResourceAttributes or resourceAttributes must be specified" in text


def test_nobody_grants_rights_that_they_lack(server: EmbeddedApiServer) -> None:
    grant(server, "anna", rule("*", "create", "rbac.authorization.k8s.io"), rule("pods", "get"))
    anna = client(server, ANNA)
    anna.request("POST", f"{RBAC}/clusterroles", role("readers", rule("pods", "get")))
    code, text = refusal(
        anna, "POST", f"{RBAC}/clusterroles", role("more", rule("pods secrets", "get watch"))
    )
    assert code == 403
    assert (
        'clusterroles.rbac.authorization.k8s.io "more" is forbidden: user "anna" '
        '(groups=["system:authenticated"]) is attempting to grant RBAC permissions not currently held:\n'
        '{APIGroups:[""], Resources:["pods"], Verbs:["watch"]}\n'
        '{APIGroups:[""], Resources:["secrets"], Verbs:["get" "watch"]}'
    ) in text
    bind = binding("self", "cluster-admin", "anna")
    assert "is attempting to grant" in refusal(anna, "POST", f"{RBAC}/clusterrolebindings", bind)[1]
    grant(server, "anna", rule("clusterroles", "bind", "rbac.authorization.k8s.io", names="cluster-admin"))
    assert anna.request("POST", f"{RBAC}/clusterrolebindings", bind)["metadata"]["name"] == "self"


def test_impersonation_needs_the_right_to_it(server: EmbeddedApiServer) -> None:
    def whoami(user: User, **headers: str) -> Any:
        named = {f"Impersonate-{key}": value for key, value in headers.items()}
        return client(server, user).request("POST", f"{IDENTITY}/selfsubjectreviews", {}, headers=named)

    info = whoami(ADMIN, User="bob", Uid="7")["status"]["userInfo"]
    assert info == {"username": "bob", "uid": "7", "groups": ["system:authenticated"]}
    robot = whoami(ADMIN, User="system:serviceaccount:default:robot")["status"]["userInfo"]
    assert robot["groups"] == [
        *("system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"),
    ]
    with pytest.raises(ApiRefused, match="cannot impersonate-on:user-info:create resource"):
        whoami(ANNA, User="bob")
    grant(server, "anna", rule("users", "impersonate", names="bob"))
    assert whoami(ANNA, User="bob")["status"]["userInfo"]["username"] == "bob"
    with pytest.raises(ApiRefused, match="without impersonating a user name"):
        whoami(ANNA, Group="system:masters")


def test_a_token_of_a_pod_names_its_node_and_ends_with_the_pod(server: EmbeddedApiServer) -> None:
    server.create("/api/v1/nodes", {"metadata": {"name": "node-0"}})
    pod = {
        "metadata": {"name": "holder"},
        "spec": {
            "serviceAccountName": "robot",
            "nodeName": "node-0",
            "containers": [{"name": "c", "image": "i"}],
        },
    }
    server.create(PODS, pod)
    admin = client(server, ADMIN)
    bound = {"apiVersion": "v1", "kind": "Pod", "name": "holder"}
    path = "/api/v1/namespaces/default/serviceaccounts/robot/token"
    token = admin.request("POST", path, {"spec": {"boundObjectRef": bound}})["status"]["token"]
    review = admin.request("POST", f"{IDENTITY}/tokenreviews", {"spec": {"token": token}})["status"]
    assert review["user"]["username"] == "system:serviceaccount:default:robot"
    assert review["user"]["extra"]["authentication.kubernetes.io/node-name"] == ["node-0"]
    assert "robot" in refusal(client(server, token), "GET", PODS)[1]
    server.delete(f"{PODS}/holder?gracePeriodSeconds=0")
    assert refusal(client(server, token), "GET", PODS)[0] == 401
    code, text = refusal(admin, "POST", path, {"spec": {"expirationSeconds": 5}})
    assert (code, "may not specify a duration less than 10 minutes" in text) == (422, True)
