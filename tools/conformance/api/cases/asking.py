"""Cases of rights: who asks, what roles allow them, and what reviews answer.

The server is asked by an administrator, who impersonates a user of the case.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tools.conformance.api.cases.writing import case, get, request
from tools.conformance.api.connection import Step
from tools.conformance.area import Case

# A case of a table is one line.
# fmt: off
Object = dict[str, Any]

USER = "{{ns}}-anna"
RBAC = "rbac.authorization.k8s.io"
ROLES = f"/apis/{RBAC}/v1"
ACCESS = "/apis/authorization.k8s.io/v1"
IDENTITY = "/apis/authentication.k8s.io/v1"
ROLE = "{{ns}}-role"

READ_PODS: Object = {"apiGroups": [""], "resources": ["pods", "pods/log"], "verbs": ["get", "list"]}
WRITE_ROLES: Object = {"apiGroups": [RBAC], "resources": ["*"], "verbs": ["create", "update", "patch", "get"]}

_PATHS = (
    "/api/v1/namespaces/{{ns}}/pods", "/api/v1/namespaces/{{ns}}/pods/a", "/api/v1/namespaces/{{ns}}/pods/a/log", "/api/v1/pods",
    "/api/v1/namespaces/{{ns}}", "/api/v1/namespaces", "/api/v1/nodes/a/status", "/api/v1/pods?watch=1", "/apis/none.example.com/v1/things",
    "/api/v1/configmaps?fieldSelector=metadata.name=a", "/apis/apps/v1/namespaces/{{ns}}/deployments/a/scale", "/metrics", "/none", "/apis/none", "/healthz/etcd",
)
_HEADERS: dict[str, Object] = {
    "user": {"Impersonate-User": "bob"},
    "user-group": {"Impersonate-User": "bob", "Impersonate-Group": "developers"},
    "unauthenticated": {"Impersonate-User": "bob", "Impersonate-Group": "system:unauthenticated"},
    "uid": {"Impersonate-User": "bob", "Impersonate-Uid": "7"},
    "extra": {"Impersonate-User": "bob", "Impersonate-Extra-Scopes": "a", "Impersonate-Extra-Example.com%2fColor": "red"},
    "account": {"Impersonate-User": "system:serviceaccount:default:robot"},
    "anonymous": {"Impersonate-User": "system:anonymous"},
    "group-only": {"Impersonate-Group": "developers"},
    "uid-only": {"Impersonate-Uid": "7"},
    "extra-only": {"Impersonate-Extra-Scopes": "a"},
}
_ASKED: dict[str, Object] = {
    "allowed": {"resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "{{ns}}"}},
    "subresource": {"resourceAttributes": {"verb": "get", "resource": "pods", "subresource": "log", "namespace": "{{ns}}"}},
    "verb": {"resourceAttributes": {"verb": "delete", "resource": "pods", "namespace": "{{ns}}"}},
    "namespace": {"resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "default"}},
    "everywhere": {"resourceAttributes": {"verb": "get", "resource": "pods"}},
    "group": {"resourceAttributes": {"verb": "get", "group": "apps", "resource": "pods", "namespace": "{{ns}}"}},
    "all": {"resourceAttributes": {"verb": "*", "group": "*", "resource": "*"}},
    "path": {"nonResourceAttributes": {"verb": "get", "path": "/openapi/v3"}},
    "other-path": {"nonResourceAttributes": {"verb": "get", "path": "/metrics"}},
    "neither": {},
    "both": {"resourceAttributes": {"verb": "get"}, "nonResourceAttributes": {"verb": "get", "path": "/"}},
}
_RULES: dict[str, list[Object]] = {
    "own": [WRITE_ROLES],
    "narrower": [{**WRITE_ROLES, "resources": ["roles"], "verbs": ["get"]}],
    "other": [{"apiGroups": ["", "apps"], "resources": ["secrets", "pods"], "verbs": ["get", "watch"]}],
    "names": [{"apiGroups": [""], "resources": ["nodes"], "resourceNames": ["a", "b"], "verbs": ["get"]}],
    "paths": [{"nonResourceURLs": ["/x", "/y/*"], "verbs": ["get"]}],
    "everything": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}],
    "none": [],
}


def asking_cases() -> Iterator[Case]:
    """All cases of rights."""
    for path in _PATHS:
        yield case(f"rights/none{path.replace('{{ns}}', 'ns')}", _as_user(get(path)))
    yield case("rights/role", *_given(READ_PODS), *(_as_user(get(path)) for path in _PATHS[:4]))
    yield case("rights/star", *_given({"apiGroups": ["*"], "resources": ["*/log"], "verbs": ["*"]}), *(_as_user(get(path)) for path in _PATHS[:3]))
    for name, headers in _HEADERS.items():
        yield case(f"rights/impersonate/{name}", request("POST", f"{IDENTITY}/selfsubjectreviews", _review("authentication", "SelfSubjectReview"), headers=headers))
    for name, spec in _ASKED.items():
        review = _review("authorization", "SelfSubjectAccessReview", spec=spec)
        yield case(f"rights/own/{name}", *_given(READ_PODS), _as_user(request("POST", f"{ACCESS}/selfsubjectaccessreviews", review)))
        other = {**spec, "user": USER}
        yield case(
            f"rights/of-others/{name}", *_given(READ_PODS),
            request("POST", f"{ACCESS}/subjectaccessreviews", _review("authorization", "SubjectAccessReview", spec=other)),
            request("POST", f"{ACCESS}/namespaces/{{{{ns}}}}/localsubjectaccessreviews", _review("authorization", "LocalSubjectAccessReview", spec=other, metadata={"namespace": "{{ns}}"})),
            request("POST", f"{ACCESS}/subjectaccessreviews", _review("authorization", "SubjectAccessReview", spec=spec)),
        )
    rules = _review("authorization", "SelfSubjectRulesReview", spec={"namespace": "{{ns}}"})
    yield case("rights/rules", *_given(READ_PODS), _as_user(request("POST", f"{ACCESS}/selfsubjectrulesreviews", rules, only=["kind", "spec"])))
    yield case("rights/rules/nowhere", request("POST", f"{ACCESS}/selfsubjectrulesreviews", {**rules, "spec": {}}))
    yield from _granting()
    yield from _tokens()
    for plural in ("selfsubjectaccessreviews", "subjectaccessreviews", "selfsubjectrulesreviews"):
        yield case(f"rights/method/{plural}", get(f"{ACCESS}/{plural}"), request("DELETE", f"{ACCESS}/{plural}/a"))


def _granting() -> Iterator[Case]:
    everywhere = [_role([WRITE_ROLES]), _bind("ClusterRoleBinding"), _counts(WRITE_ROLES)]
    for name, rules in _RULES.items():
        yield case(f"rights/grant/{name}", *everywhere, _as_user(_role(rules, "{{ns}}-new")), _as_user(_role(rules, "{{ns}}-new", "Role")))
    aggregated = request("POST", f"{ROLES}/clusterroles", _named("ClusterRole", "{{ns}}-new", rules=[], aggregationRule={"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}))
    yield case("rights/grant/aggregated", *everywhere, _as_user(aggregated))
    for kind, role in (("ClusterRole", "cluster-admin"), ("ClusterRole", ROLE), ("ClusterRole", "{{ns}}-none"), ("Role", "{{ns}}-none")):
        yield case(f"rights/bind/{kind}/{role.replace('{{ns}}', 'ns')}", *everywhere, _as_user(_bind("RoleBinding", role, kind, name="{{ns}}-new")))
    may_bind = {"apiGroups": [RBAC], "resources": ["clusterroles"], "resourceNames": ["view"], "verbs": ["bind"]}
    both = [_role([WRITE_ROLES, may_bind]), _bind("ClusterRoleBinding"), _counts(WRITE_ROLES)]
    yield case("rights/bind/allowed", *both, _as_user(_bind("RoleBinding", "view", name="{{ns}}-new")), _as_user(_bind("RoleBinding", "edit", name="{{ns}}-newer")))
    may_escalate = {"apiGroups": [RBAC], "resources": ["clusterroles"], "verbs": ["escalate"]}
    escalating = [_role([WRITE_ROLES, may_escalate]), _bind("ClusterRoleBinding"), _counts(WRITE_ROLES)]
    yield case("rights/escalate", *escalating, _as_user(_role(_RULES["everything"], "{{ns}}-new")), _as_user(_role(_RULES["everything"], "{{ns}}-new", "Role")))


def _tokens() -> Iterator[Case]:
    account = request("POST", "/api/v1/namespaces/{{ns}}/serviceaccounts", {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}})
    path = "/api/v1/namespaces/{{ns}}/serviceaccounts/robot/token"
    bound = {"apiVersion": "v1", "kind": "Pod", "name": "none"}
    specs: dict[str, Object] = {
        "short": {"expirationSeconds": 5}, "long": {"expirationSeconds": 1 << 40}, "absent-pod": {"boundObjectRef": bound},
        "absent-node": {"boundObjectRef": {**bound, "kind": "Node"}}, "other-kind": {"boundObjectRef": {**bound, "kind": "ConfigMap"}},
    }
    for name, spec in specs.items():
        yield case(f"rights/token/{name}", account, request("POST", path, _review("authentication", "TokenRequest", spec=spec)))
    yield case("rights/token/absent-account", request("POST", path, _review("authentication", "TokenRequest", spec={})))
    yield case("rights/token/other-name", account, request("POST", path, _review("authentication", "TokenRequest", spec={}, metadata={"name": "other"})))
    reviewed: dict[str, Object] = {"nonsense": {"token": "nonsense"}, "none": {}, "other-audience": {"token": "a.b.c", "audiences": ["x"]}}
    for name, spec in reviewed.items():
        yield case(f"rights/token-review/{name}", request("POST", f"{IDENTITY}/tokenreviews", _review("authentication", "TokenReview", spec=spec)))


def _as_user(step: Step) -> Step:
    return {**step, "headers": {**step.get("headers", {}), "Impersonate-User": USER}}


def _given(*rules: Object) -> tuple[Step, ...]:
    """The user has these rules in the namespace of the case."""
    return _role(list(rules)), _bind("RoleBinding"), _counts(rules[0], "{{ns}}")


def _counts(rule: Object, namespace: str = "") -> Step:
    """Wait until the rule counts: kube-apiserver reads bindings through watches of its own."""
    asked = {"verb": rule["verbs"][0], "group": rule["apiGroups"][0], "resource": rule["resources"][0], "namespace": namespace}
    review = _review("authorization", "SubjectAccessReview", spec={"user": USER, "resourceAttributes": asked})
    return request("POST", f"{ACCESS}/subjectaccessreviews", review, until="status.allowed", only=["kind"])


def _role(rules: list[Object], name: str = ROLE, kind: str = "ClusterRole") -> Step:
    place = "clusterroles" if kind == "ClusterRole" else "namespaces/{{ns}}/roles"
    return request("POST", f"{ROLES}/{place}", _named(kind, name, rules=rules))


def _bind(binding: str, role: str = ROLE, kind: str = "ClusterRole", name: str = "{{ns}}-binding") -> Step:
    place = "clusterrolebindings" if binding == "ClusterRoleBinding" else "namespaces/{{ns}}/rolebindings"
    item = _named(binding, name, roleRef={"apiGroup": RBAC, "kind": kind, "name": role}, subjects=[{"apiGroup": RBAC, "kind": "User", "name": USER}])
    return request("POST", f"{ROLES}/{place}", item)


def _named(kind: str, name: str, **content: Any) -> Object:
    return {"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": {"name": name}, **content}


def _review(group: str, kind: str, **content: Any) -> Object:
    return {"apiVersion": f"{group}.k8s.io/v1", "kind": kind, **content}
