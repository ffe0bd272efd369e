"""Cases of rights: who asks, what roles allow them, and what reviews answer."""

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
ROLE = "{{ns}}-role"

READ_PODS: Object = {"apiGroups": [""], "resources": ["pods", "pods/log"], "verbs": ["get", "list"]}

_PATHS = (
    "/api/v1/namespaces/{{ns}}/pods", "/api/v1/namespaces/{{ns}}/pods/a", "/api/v1/namespaces/{{ns}}/pods/a/log", "/api/v1/pods",
    "/api/v1/namespaces/{{ns}}", "/api/v1/namespaces", "/api/v1/nodes/a/status", "/api/v1/pods?watch=1", "/apis/none.example.com/v1/things",
    "/api/v1/configmaps?fieldSelector=metadata.name=a", "/apis/apps/v1/namespaces/{{ns}}/deployments/a/scale", "/metrics", "/none", "/apis/none", "/healthz/etcd",
)
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

def asking_cases() -> Iterator[Case]:
    """All cases of rights."""
    for path in _PATHS:
        yield case(f"rights/none{path.replace('{{ns}}', 'ns')}", _as_user(get(path)))
    yield case("rights/role", *_given(READ_PODS), *(_as_user(get(path)) for path in _PATHS[:4]))
    yield case("rights/star", *_given({"apiGroups": ["*"], "resources": ["*/log"], "verbs": ["*"]}), *(_as_user(get(path)) for path in _PATHS[:3]))
    for name, spec in _ASKED.items():
        review = _review("authorization", "SelfSubjectAccessReview", spec=spec)
        yield case(f"rights/own/{name}", *_given(READ_PODS), _as_user(request("POST", f"{ACCESS}/selfsubjectaccessreviews", review)))
        other = {**spec, "user": USER}
        yield case(
            f"rights/of-others/{name}", *_given(READ_PODS),
            request("POST", f"{ACCESS}/subjectaccessreviews", _review("authorization", "SubjectAccessReview", spec=other)),
        )
    of_nobody = _review("authorization", "SubjectAccessReview", spec=_ASKED["path"])
    yield case("rights/of-nobody", request("POST", f"{ACCESS}/subjectaccessreviews", of_nobody))
    rules = _review("authorization", "SelfSubjectRulesReview", spec={"namespace": "{{ns}}"})
    yield case("rights/rules", *_given(READ_PODS), _as_user(request("POST", f"{ACCESS}/selfsubjectrulesreviews", rules, only=["kind", "spec"])))
    yield case("rights/rules/nowhere", request("POST", f"{ACCESS}/selfsubjectrulesreviews", {**rules, "spec": {}}))
    for plural in ("selfsubjectaccessreviews", "subjectaccessreviews", "selfsubjectrulesreviews"):
        yield case(f"rights/method/{plural}", get(f"{ACCESS}/{plural}"), request("DELETE", f"{ACCESS}/{plural}/a"))


def _as_user(step: Step) -> Step:
    return {**step, "user": USER}


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
