"""Written cases of policies, each for one rule of Kubernetes."""

from __future__ import annotations

from typing import Any

from tools.conformance.area import Case

Json = dict[str, Any]

_EVERYTHING: Json = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}
_DEPLOYMENT: Json = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web", "namespace": "default", "labels": {"app": "web"}},
    "spec": {
        "replicas": 3,
        "selector": {"matchLabels": {"app": "web"}},
        "strategy": {},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "nginx:1", "resources": {}}]},
        },
    },
    "status": {},
}
_ALWAYS_WRONG: Json = {"validations": [{"expression": "false"}]}
_JUDGED: tuple[tuple[Json, Json, Json], ...] = (
    (_ALWAYS_WRONG, {}, {}),
    (_ALWAYS_WRONG, {"validationActions": ["Warn"]}, {}),
    (_ALWAYS_WRONG, {"validationActions": ["Audit"]}, {}),
    (_ALWAYS_WRONG, {}, {"operation": "DELETE"}),
    (_ALWAYS_WRONG, {"matchResources": {"namespaceSelector": {"matchLabels": {"a": "b"}}}}, {}),
    (_ALWAYS_WRONG, {"matchResources": {"objectSelector": {"matchLabels": {"app": "web"}}}}, {}),
    (_ALWAYS_WRONG, {"matchResources": {"excludeResourceRules": [_EVERYTHING]}}, {}),
    (
        {**_ALWAYS_WRONG, "matchConstraints": {"resourceRules": [{**_EVERYTHING, "scope": "Cluster"}]}},
        {},
        {},
    ),
    (
        {**_ALWAYS_WRONG, "matchConstraints": {"resourceRules": [{**_EVERYTHING, "resourceNames": ["x"]}]}},
        {},
        {},
    ),
    ({**_ALWAYS_WRONG, "matchConditions": [{"name": "c", "expression": "request.name == 'x'"}]}, {}, {}),
    ({**_ALWAYS_WRONG, "matchConditions": [{"name": "c", "expression": "object.x == 1"}]}, {}, {}),
    (
        {
            **_ALWAYS_WRONG,
            "failurePolicy": "Ignore",
            "matchConditions": [{"name": "c", "expression": "object.x"}],
        },
        {},
        {},
    ),
    (
        {
            "variables": [
                {"name": "n", "expression": "object.spec.replicas"},
                {"name": "m", "expression": "variables.n + 1"},
            ],
            "validations": [
                {"expression": "variables.m < 4", "messageExpression": "'got ' + string(variables.m)"}
            ],
        },
        {},
        {},
    ),
    (
        {
            "variables": [{"name": "n", "expression": "1 / 0"}],
            "validations": [{"expression": "variables.n == 1"}],
        },
        {},
        {},
    ),
    ({"validations": [{"expression": "object.x == 1"}], "failurePolicy": "Ignore"}, {}, {}),
    ({"validations": [{"expression": "object.x == 1"}]}, {}, {}),
    (
        {
            "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
            "validations": [{"expression": "object.spec.replicas <= int(params.data.max)"}],
        },
        {"paramRef": {"name": "p", "parameterNotFoundAction": "Deny"}},
        {},
    ),
    (
        {
            "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
            "validations": [{"expression": "params != null"}],
        },
        {"paramRef": {"name": "gone", "parameterNotFoundAction": "Deny"}},
        {},
    ),
    (
        {
            "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
            "validations": [{"expression": "params != null"}],
        },
        {},
        {},
    ),
    (
        {
            "validations": [{"expression": "[1, 2, 3].all(x, authorizer.path('/x').check('get').allowed())"}],
        },
        {},
        {},
    ),
    (
        {
            "validations": [
                {"expression": "authorizer.requestResource.check('delete').allowed()", "reason": "Forbidden"}
            ]
        },
        {},
        {},
    ),
    (
        {
            "validations": [{"expression": "true"}],
            "auditAnnotations": [{"key": "k", "valueExpression": "object.x"}],
        },
        {},
        {},
    ),
    ({"validations": [{"expression": "namespaceObject.metadata.labels.team == 'x'"}]}, {}, {}),
    ({"validations": [{"expression": "request.userInfo.groups == ['dev']"}]}, {}, {}),
)


def written_policies() -> tuple[Case, ...]:
    """The written cases of ValidatingAdmissionPolicies."""
    version = "admissionregistration.k8s.io/v1"
    found = []
    for spec, binding, write in _JUDGED:
        policy = {"matchConstraints": {"resourceRules": [_EVERYTHING]}, **spec}
        bound = {"policyName": "policy", "validationActions": ["Deny"], **binding}
        case: Case = {
            "op": "policy",
            "policy": {
                "apiVersion": version,
                "kind": "ValidatingAdmissionPolicy",
                "metadata": {"name": "policy"},
                "spec": policy,
            },
            "binding": {
                "apiVersion": version,
                "kind": "ValidatingAdmissionPolicyBinding",
                "metadata": {"name": "binding"},
                "spec": bound,
            },
            "params": [
                {
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "metadata": {"name": "p", "namespace": "default"},
                    "data": {"max": "2"},
                }
            ],
            "paramScope": "namespace",
            "namespace": {
                "metadata": {"name": "default", "labels": {"team": "y"}},
                "spec": {},
                "status": {},
            },
            "write": {
                "group": "apps",
                "version": "v1",
                "kind": "Deployment",
                "resource": "deployments",
                "subresource": "",
                "namespace": "default",
                "name": "web",
                "operation": "CREATE",
                "user": "jane",
                "groups": ["dev"],
                **write,
            },
        }
        found.append({**case, "old" if write.get("operation") == "DELETE" else "object": _DEPLOYMENT})
    return tuple(found)
