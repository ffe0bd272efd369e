"""Random ValidatingAdmissionPolicies, with writes that they judge."""

from __future__ import annotations

import copy
from random import Random
from typing import Any

from tools.conformance.area import Case

Json = dict[str, Any]
_TRUTHS = (
    "true",
    "false",
    "object.metadata.name == 'a'",
    "object.metadata.name.startsWith('a')",
    "object.spec.replicas > 2",
    "has(object.spec.replicas) && object.spec.replicas <= 3",
    "oldObject == null",
    "oldObject != null && object == oldObject",
    "object.spec == oldObject.spec",
    "has(object.metadata.labels) && 'app' in object.metadata.labels",
    "object.metadata.?labels['app'].orValue('') == 'b'",
    "object.metadata.labels.all(k, k != 'app')",
    "object.spec.template.spec.containers.all(c, c.image.matches('^[a-z]+:'))",
    "request.operation == 'CREATE'",
    "request.userInfo.username == 'admin'",
    "'system:masters' in request.userInfo.groups",
    "request.name == 'a'",
    "request.namespace == 'default'",
    "has(request.name)",
    "request.kind.kind == 'Deployment'",
    "request.dryRun",
    "request.resource.resource in ['deployments', 'pods']",
    "request.requestResource.version == 'v1'",
    "namespaceObject.metadata.name == 'default'",
    "namespaceObject.metadata.labels['team'] == 'x'",
    "has(namespaceObject.metadata.labels) && namespaceObject.metadata.labels.size() > 0",
    "authorizer.group('apps').resource('deployments').namespace('default').check('get').allowed()",
    "authorizer.path('/x').check('post').allowed()",
    "authorizer.requestResource.check('update').allowed()",
    "authorizer.requestResource.check('update').reason() == 'no rule'",
    "authorizer.serviceAccount('default', 'sa').group('').resource('pods').check('get').allowed()",
    "object.spec.template.spec.containers[0].name == 'c'",
    "object.spec.template.spec.containers.size() == 1",
    "quantity(object.spec.template.spec.containers[0].resources.limits.cpu).isLessThan(quantity('2'))",
    "object.nothing == 1",
    "type(object.spec.replicas) == int",
    "object.spec.template.spec.containers == 'x'",
    "object.metadata == oldObject.metadata",
    "dyn(object.spec.replicas) == 'a' || true",
    "oldObject.spec.replicas < 9",
    "[1, 2].all(x, object.spec.replicas > x)",
    "object.spec.selector.matchLabels == {'app': 'b'}",
    "object.spec.template.spec.containers.exists_one(c, c.name == 'c')",
    "string(object.spec.replicas) == '3'",
)
_PARAM_TRUTHS = (
    "object.spec.replicas <= int(params.data.max)",
    "params == null",
    "params.data['max'] == '3'",
    "params != null && params.metadata.name == 'p'",
    "has(params.data.other)",
)
_BROKEN = (
    "nothing",
    "object +",
    "1",
    "object.x ? 1",
    "params.x == 1",
    "variables.zzz == 1",
    "authorizer.x",
    "'a'",
)
_TEXTS = (
    "'name ' + object.metadata.name",
    "string(object.spec.replicas)",
    "object.nothing",
    "''",
    "'a\\nb'",
    "'x'",
)


def _expression(rng: Random, names: list[str], *, has_params: bool, broken: float) -> str:
    if rng.random() < broken:
        return rng.choice(_BROKEN)
    pool = [*_TRUTHS, *(_PARAM_TRUTHS * 6 if has_params else ())]
    pool += [f"variables.{name}" for name in names] * 3 + [f"variables.{name} == 3" for name in names] * 2
    one = rng.choice(pool)
    if rng.random() < 0.3:
        return f"({one}) {rng.choice(('&&', '||'))} ({rng.choice(pool)})"
    return f"!({one})" if rng.random() < 0.1 else one


def _selector(rng: Random) -> Json:
    return rng.choice(
        (
            {},
            {},
            {},
            {"matchLabels": {"app": "b"}},
            {"matchExpressions": [{"key": "team", "operator": "Exists"}]},
            {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["a"]}]},
        )
    )


def _rule(rng: Random) -> Json:
    rule: Json = {
        "apiGroups": rng.choice((["apps"], ["*"], ["apps", "batch"], [""])),
        "apiVersions": rng.choice((["v1"], ["*"], ["v1beta1"])),
        "operations": rng.choice((["CREATE"], ["*"], ["CREATE", "UPDATE"], ["DELETE"])),
        "resources": rng.choice(
            (["deployments"], ["*"], ["deployments", "deployments/status"], ["*/*"], ["pods"])
        ),
    }
    if rng.random() < 0.2:
        rule["scope"] = rng.choice(("*", "Namespaced", "Cluster"))
    if rng.random() < 0.1:
        rule["resourceNames"] = [rng.choice(("a", "b"))]
    return rule


def _match(rng: Random) -> Json:
    match: Json = {"resourceRules": [_rule(rng) for _ in range(rng.randint(1, 2))]}
    if rng.random() < 0.6:
        match["resourceRules"].append(
            {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}
        )
    for name in ("namespaceSelector", "objectSelector"):
        if rng.random() < 0.3:
            match[name] = _selector(rng)
    if rng.random() < 0.15:
        match["excludeResourceRules"] = [_rule(rng)]
    if rng.random() < 0.2:
        match["matchPolicy"] = rng.choice(("Exact", "Equivalent"))
    return match


def _variables(rng: Random, names: list[str], *, has_params: bool, broken: float) -> list[Json]:
    """Variables, whose names are added to ``names``."""
    found = []
    for name in rng.sample(("x", "y", "z"), rng.randint(1, 3)):
        source = rng.choice(("object.spec.replicas", "", "", "[1, 2]", "object.metadata.labels"))
        expression = source or _expression(rng, names, has_params=has_params, broken=broken)
        found.append({"name": name, "expression": expression})
        names.append(name)
    return found


def _policy(rng: Random, broken: float) -> Json:
    has_params = rng.random() < 0.4
    names: list[str] = []
    spec: Json = {"matchConstraints": _match(rng)}
    if has_params:
        spec["paramKind"] = {"apiVersion": "v1", "kind": "ConfigMap"}
    if rng.random() < 0.4:
        spec["variables"] = _variables(rng, names, has_params=has_params, broken=broken)
    if rng.random() < 0.3:
        spec["matchConditions"] = [
            {"name": f"c{index}", "expression": _expression(rng, [], has_params=has_params, broken=broken)}
            for index in range(rng.randint(1, 2))
        ]
    spec["validations"] = []
    for _ in range(rng.randint(1, 3)):
        validation: Json = {"expression": _expression(rng, names, has_params=has_params, broken=broken)}
        if rng.random() < 0.4:
            validation["messageExpression"] = rng.choice(
                (*_TEXTS, *_BROKEN) if rng.random() < broken * 5 else _TEXTS
            )
        if rng.random() < 0.4:
            validation["message"] = rng.choice(("it is wrong", " a "))
        if rng.random() < 0.3:
            validation["reason"] = rng.choice(("Forbidden", "Invalid", "RequestEntityTooLarge"))
        spec["validations"].append(validation)
    if rng.random() < 0.2:
        spec["auditAnnotations"] = [{"key": "k", "valueExpression": rng.choice((*_TEXTS, "null"))}]
    if rng.random() < 0.4:
        spec["failurePolicy"] = rng.choice(("Fail", "Ignore"))
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy"}
    return {**kind, "metadata": {"name": "policy"}, "spec": spec}


def _binding(rng: Random, *, has_params: bool) -> Json:
    actions = rng.choice((["Deny"], ["Deny"], ["Warn"], ["Audit"], ["Deny", "Audit"], ["Warn", "Audit"]))
    spec: Json = {"policyName": "policy", "validationActions": actions}
    if has_params and rng.random() < 0.9:
        spec["paramRef"] = {"parameterNotFoundAction": rng.choice(("Deny", "Allow"))}
        spec["paramRef"] |= rng.choice(
            ({"name": "p"}, {"name": "q"}, {"selector": {}}, {"selector": {"matchLabels": {"a": "b"}}})
        )
        if rng.random() < 0.4:
            spec["paramRef"]["namespace"] = rng.choice(("default", "other"))
    if rng.random() < 0.2:
        spec["matchResources"] = _match(rng)
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding"}
    return {**kind, "metadata": {"name": "binding"}, "spec": spec}


def _deployment(rng: Random, name: str) -> Json:
    metadata: Json = {"name": name, "namespace": "default"}
    if rng.random() < 0.7:
        metadata["labels"] = {"app": rng.choice(("a", "b"))}
    container: Json = {"name": "c", "image": rng.choice(("nginx:1", "Nginx")), "resources": {}}
    if rng.random() < 0.5:
        container["resources"] = {"limits": {"cpu": rng.choice(("1", "500m", "4"))}}
    spec: Json = {
        "selector": {"matchLabels": {"app": "b"}},
        "template": {"metadata": {"labels": {"app": "b"}}, "spec": {"containers": [container]}},
        "strategy": {},
    }
    if rng.random() < 0.7:
        spec["replicas"] = rng.choice((1, 3, 5))
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec, "status": {}}


def random_judgement(rng: Random) -> Case:
    """A policy with its binding, parameters, and a write of a Deployment."""
    policy = _policy(rng, 0.03)
    operation = rng.choice(("CREATE", "UPDATE", "DELETE"))
    name = rng.choice(("a", "b"))
    item = _deployment(rng, name)
    old = copy.deepcopy(item) if rng.random() < 0.4 else _deployment(rng, name)
    labels = rng.choice(({}, {"team": "x"}, {"app": "b"}))
    namespace: Json = {"metadata": {"name": "default"}, "spec": {}, "status": {}}
    if labels:
        namespace["metadata"]["labels"] = labels
    params = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": one, "namespace": place, "labels": {"a": "b"}},
            "data": {"max": high},
        }
        for one, place, high in (("p", "default", "3"), ("p", "other", "1"))
        if rng.random() < 0.7
    ]
    write = {
        "group": "apps",
        "version": "v1",
        "kind": "Deployment",
        "resource": "deployments",
        "subresource": "",
        "namespace": "default",
        "name": name,
        "operation": operation,
        "user": rng.choice(("admin", "jane")),
        "groups": rng.choice((["system:masters"], ["dev", "system:authenticated"])),
    }
    case: Case = {
        "op": "policy",
        "policy": policy,
        "binding": _binding(rng, has_params="paramKind" in policy["spec"]),
        "params": params,
        "paramScope": "namespace",
        "namespace": namespace,
        "write": write,
    }
    if operation != "DELETE":
        case["object"] = item
    if operation != "CREATE":
        case["old"] = old
    return case


def random_policy_object(rng: Random) -> Case:
    """A policy or a binding, with something wrong in many."""
    item = _binding(rng, has_params=True) if rng.random() < 0.3 else _policy(rng, 0.15)
    spec = item["spec"]
    changes: tuple[Json, ...] = (
        {},
        {},
        {"policyName": ""},
        {"policyName": "A_"},
        {"validationActions": ["Deny", "Warn"]},
        {"validationActions": []},
        {"validationActions": ["Deny", "Deny", "No"]},
        {"paramRef": {}},
        {"paramRef": {"name": "a", "selector": {}}},
        {"failurePolicy": "No"},
        {"validations": []},
        {"paramKind": {"apiVersion": "A/b/c", "kind": "x_"}},
        {"paramKind": {"apiVersion": "A/1"}},
        {"matchConditions": [{"name": "a b", "expression": " "}]},
        {
            "matchConditions": [
                {"name": "a", "expression": "true"},
                {"name": "a", "expression": "variables.x"},
            ]
        },
        {"variables": [{"name": "for", "expression": "1"}, {"name": "", "expression": ""}]},
        {"matchConstraints": {"resourceRules": []}},
        {"auditAnnotations": [{"key": "a", "valueExpression": "1"}]},
        {
            "matchConstraints": {
                "resourceRules": [
                    {
                        "operations": ["*", "CREATE"],
                        "apiGroups": [],
                        "apiVersions": [""],
                        "resources": ["*", "pods", "", "pods/*", "pods/log"],
                        "scope": "No",
                        "resourceNames": ["a", "a", "."],
                    }
                ]
            }
        },
        {
            "validations": [
                {"expression": "true", "message": " ", "reason": "No"},
                {"expression": " ", "messageExpression": " "},
            ]
        },
        {
            "validations": [
                {
                    "expression": "object.x == 1",
                    "message": "a\nb",
                    "messageExpression": "authorizer.path('/').check('get').reason()",
                }
            ]
        },
        {
            "matchConstraints": {
                "objectSelector": {"matchLabels": {"a b": "c d"}},
                "resourceRules": [_rule(rng)],
            }
        },
        {"auditAnnotations": [{"key": "a", "valueExpression": "'a'"}, {"key": "a", "valueExpression": ""}]},
    )
    wanted = rng.choice(changes)
    names = ("policyName", "validationActions", "paramRef", "matchResources")
    is_binding = item["kind"].endswith("Binding")
    spec |= {key: value for key, value in wanted.items() if (key in names) is is_binding}
    return {"op": "policyObject", "object": item}


def random_case(rng: Random) -> Case:
    """The judgement of a write, or a policy that is written itself."""
    return random_policy_object(rng) if rng.random() < 0.3 else random_judgement(rng)
