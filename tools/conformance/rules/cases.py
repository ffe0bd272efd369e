"""Written cases of validation rules and of policies, each for one rule of Kubernetes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tools.conformance.area import Case

Json = dict[str, Any]

_TEXT: Json = {"type": "string"}
_FIELDS: Json = {
    "text": _TEXT,
    "short": {"type": "string", "maxLength": 5},
    "number": {"type": "integer"},
    "ratio": {"type": "number"},
    "flag": {"type": "boolean"},
    "either": {"x-kubernetes-int-or-string": True},
    "when": {"type": "string", "format": "date-time"},
    "long": {"type": "string", "format": "duration"},
    "data": {"type": "string", "format": "byte"},
    "maybe": {"type": "string", "nullable": True},
    "list": {"type": "array", "items": _TEXT},
    "few": {"type": "array", "maxItems": 10, "items": {"type": "string", "maxLength": 5}},
    "set": {"type": "array", "maxItems": 10, "x-kubernetes-list-type": "set", "items": {"type": "integer"}},
    "ports": {
        "type": "array",
        "maxItems": 5,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": {
            "type": "object",
            "properties": {"name": _TEXT, "port": {"type": "integer"}},
            "required": ["name"],
        },
    },
    "map": {"type": "object", "additionalProperties": {"type": "integer"}},
    "pod": {
        "type": "object",
        "x-kubernetes-embedded-resource": True,
        "x-kubernetes-preserve-unknown-fields": True,
    },
    "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    "namespace": _TEXT,
    "a-b.c/d": _TEXT,
    "x__y": _TEXT,
}
_REFUSED = (
    "self.nothing",
    "nothing",
    "self.text == 1",
    "self.text + 1 == 'a' && self.nothing",
    "has(self.nothing)",
    "self.list.all(i, i + 1 == 'b')",
    "self.number.all(x, true)",
    "self.text.foo()",
    "foo(1)",
    "self.text",
    "[1, 'a'].size() == 1",
    "duration('x') == self.long",
    "timestamp('x') == self.when",
    "self.text.matches('(')",
    "int('x') == 1",
    "'%d'.format(['a']) == ''",
    "self.text.x.y == 1",
    "self.number ? 1 : 2",
    "!self.text",
    "-self.text == 1",
    "self[1]",
    "self.text == '\u00e9' && self.nothing",
    "namespace == 1",
    "self.open.x == 1",
    "self.pod.spec == 1",
    "self.list.includes('a')",
    "cel.bind(x, self.text, x == 'a')",
    "{1: 2}[1] == 'a'",
    "1 +",
    "(self.text",
    "self.text self.text",
    "'a",
    "object.x",
    "authorizer.path('/').check('get').allowed()",
)
_COSTS = (
    "self.list.all(a, self.list.all(b, a == b))",
    "self.few.all(a, self.few.all(b, a == b))",
    "self.list.all(a, a == self.text)",
    "self.few.join(',').size() < 5",
    "self.text.split('b').all(x, x == 'a')",
    "self.text.replace('a', self.text).size() > 1",
    "self.set.sort() == self.set",
    "self.map.all(k, self.map[k] > 1)",
    "self.few.exists(i, self.few.exists(j, i != j))",
    "self.list.filter(x, x == 'a').map(x, x + x).size() > 3",
    "sets.contains(self.few, ['a'])",
    "url(self.text).getHost() == self.short",
    "self.few.all(i, x, self.few[i] == x)",
    "quantity(self.short).isLessThan(quantity('1'))",
    "self.text.find(self.text) == 'a'",
    "self.few.distinct() == []",
    "isCIDR(self.text) && cidr(self.text).containsIP(self.short)",
    "self.ports.all(p, p.port > 1 && p.name != '')",
    "format.dns1123Label().validate(self.text).hasValue()",
    "type(self.either) == int || self.either.matches('a')",
    "[self.text, self.short].all(x, x == 'a')",
    "(self.flag ? self.text : self.short) == 'a'",
    "dyn(self.text) == 'a'",
)
_ITEM: Json = {
    "text": "abc", "short": "b", "number": 3, "ratio": 2, "flag": True, "either": "10%", "data": "YWJj",
    "when": "2026-01-02T03:04:05Z", "long": "1h30m", "maybe": None, "list": ["a", "b"], "few": ["b", "a"],
    "set": [1, 2, 3], "ports": [{"name": "a", "port": 1}, {"name": "b"}], "map": {"a": 1},
    "pod": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {}}, "open": {"x": 1},
    "namespace": "n", "a-b.c/d": "e", "x__y": "z",
}  # fmt: skip
_TRUTHS = (
    "self.text.nothing()",
    "self.number / 0 == 1",
    "self.list[7] == 'a'",
    "self.map['b'] == 1",
    "self.ratio == 2.0",
    "self.set == [3, 2, 1]",
    "self.set + [4, 1] == [1, 2, 3, 4]",
    "self.few == ['a', 'b']",
    "type(self.ratio) == double",
    "self.ports == [{'name': 'b'}, {'name': 'a', 'port': 1}]",
    "(self.ports + self.ports) == self.ports",
    "(self.set + [9]).size() == 4",
    "has(self.maybe)",
    "self.maybe == null",
    "size(self.data) == 3",
    "self.either == '10%'",
    "self.either > 5",
    "self.when < timestamp('2027-01-01T00:00:00Z')",
    "self.long == duration('90m')",
    "self.__namespace__ == 'n'",
    "self.namespace == 'n'",
    "self.a__dash__b__dot__c__slash__d == 'e'",
    "self.x__underscores__y == 'z'",
    "self.open == self.open",
    "self.pod.metadata.name == 'p'",
    "dyn(self.list) == 'a'",
    "dyn(self.pod) == 1",
    "self.list.exists(x, int(x) > 1)",
    "[1, 2].all(x, [1, 2].all(y, self.number > 9))",
    "self.list.isSorted()",
    "'a' in self.map",
    "self == self",
)


def _schema(fields: Json, *rules: Json) -> Json:
    spec: Json = {"type": "object", "properties": fields}
    if rules:
        spec["x-kubernetes-validations"] = list(rules)
    return {"type": "object", "properties": {"spec": spec}}


def _evaluated(fields: Json, spec: Any, old: Any, *rules: Json) -> Case:
    head = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"}}
    case: Case = {"op": "rules", "schema": _schema(fields, *rules), "object": {**head, "spec": spec}}
    return case if old is None else {**case, "old": {**head, "spec": old}}


def _defined(schema: Json) -> Case:
    return {"op": "definitionRules", "schema": schema}


def _definitions() -> Iterator[Case]:
    for text in (*_REFUSED, *_COSTS):
        yield _defined(_schema(_FIELDS, {"rule": text}))
    for message in ("self.text", "1", "self.nothing", "'a' + string(self.number)", "self.list.join('')"):
        yield _defined(_schema(_FIELDS, {"rule": "true", "messageExpression": message}))
    yield _defined(_schema(_FIELDS, *({"rule": f"self.few.all(x, x == '{index}')"} for index in range(4))))
    yield _defined(_schema(_FIELDS, {"rule": "self == oldSelf", "optionalOldSelf": True}))
    yield _defined(_schema(_FIELDS, {"rule": "oldSelf.hasValue()", "optionalOldSelf": True}))
    yield _defined(_schema(_FIELDS, {"rule": "self.flag", "optionalOldSelf": False}))
    item = {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}
    wide = {"type": "string", "x-kubernetes-validations": [{"rule": "self.contains(self)"}]}
    yield _defined(_schema({"list": {"type": "array", "items": item}}))
    yield _defined(_schema({"list": {"type": "array", "items": wide}}))
    yield _defined(_schema({"list": {"type": "array", "maxItems": 2, "items": wide}}))
    yield _defined(_schema({"map": {"type": "object", "additionalProperties": wide}}))
    yield _defined(_schema({"map": {"type": "object", "additionalProperties": item, "maxProperties": 3}}))
    yield _defined(
        {"type": "object", "x-kubernetes-validations": [{"rule": "self.metadata.name.size() < 9"}]}
    )


def _evaluations() -> Iterator[Case]:
    for text in _TRUTHS:
        yield _evaluated(_FIELDS, _ITEM, None, {"rule": text})
    number = {"number": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 5"}]}}
    yield _evaluated(number, {"number": 3}, None)
    yield _evaluated(number, {"number": 3}, {"number": 3})
    yield _evaluated(number, {"number": 3}, {"number": 4})
    for reason in ("Invalid", "Forbidden", "Required", "Duplicate"):
        rule = {"rule": "false", "reason": f"FieldValue{reason}", "message": " why ", "fieldPath": ".number"}
        yield _evaluated(number, {"number": 9}, None, rule)
    for message in ("'a' + string(self.number)", "'a\\nb'", "' '", "string(1 / 0)", "[self.text].join('')"):
        yield _evaluated(_FIELDS, _ITEM, None, {"rule": "false", "messageExpression": message})
    growing = {"rule": "self.number >= oldSelf.number"}
    yield _evaluated(_FIELDS, _ITEM, None, growing)
    yield _evaluated(_FIELDS, _ITEM, {**_ITEM, "number": 9}, growing)
    once = {"rule": "!oldSelf.hasValue() || oldSelf.value().number == self.number", "optionalOldSelf": True}
    yield _evaluated(_FIELDS, _ITEM, None, once)
    yield _evaluated(_FIELDS, _ITEM, {**_ITEM, "number": 9}, once)
    costly = {"rule": "self.text.contains(self.text)"}
    yield _evaluated({"text": _TEXT}, {"text": "a" * 12_000}, None, costly)
    yield _evaluated({"text": _TEXT}, {"text": "a" * 9_000}, None, *([costly] * 15))


def written_rules() -> tuple[Case, ...]:
    """The written cases of rules of CustomResourceDefinitions."""
    return (*_definitions(), *_evaluations())


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
