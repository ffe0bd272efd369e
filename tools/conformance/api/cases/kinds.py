"""Creates and updates of many kinds: values that Kubernetes refuses, fills in, or does not let change."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

from tools.conformance.api.cases.writing import (
    NAME,
    SAMPLES,
    Object,
    case,
    create,
    delete,
    patch,
    put,
    sample,
)
from tools.conformance.area import Case

# A case of a table is one line.
# fmt: off
_DRY = "?dryRun=All"
_PORTS = [{"port": 80}]
_RBAC = "rbac.authorization.k8s.io"


def _secret(kind: str, **data: str) -> Object:
    return {"type": kind, "data": {key.replace("__", "."): base64.b64encode(text.encode()).decode() for key, text in data.items()}}


_SPECS: dict[str, dict[str, Object]] = {
    "services": {
        "none": {}, "no-ports": {"ports": []}, "plain": {"clusterIP": "None", "ports": _PORTS}, "headless-alone": {"clusterIP": "None"},
        "port-zero": {"ports": [{"port": 0}]}, "port-high": {"ports": [{"port": 70000}]}, "ports-unnamed": {"ports": [{"port": 1}, {"port": 2}]},
        "ports-equal": {"ports": [{"port": 1, "name": "a"}, {"port": 1, "name": "a"}]}, "port-name": {"ports": [{"port": 1, "name": "A_b"}]},
        "target-long": {"ports": [{"port": 1, "targetPort": "a-name-that-is-too-long"}]}, "target-high": {"ports": [{"port": 1, "targetPort": 70000}]},
        "protocol": {"ports": [{"port": 1, "protocol": "FOO"}]}, "application": {"ports": [{"port": 1, "appProtocol": "a b"}]},
        "type": {"type": "Foo", "ports": _PORTS}, "external": {"type": "ExternalName"}, "external-named": {"type": "ExternalName", "externalName": "a.b.c."},
        "external-wrong": {"type": "ExternalName", "externalName": "A_b"}, "node-port": {"ports": [{"port": 1, "nodePort": 30000}]},
        "node-port-headless": {"type": "NodePort", "clusterIP": "None", "ports": _PORTS}, "selector": {"selector": {"a b": "c"}, "ports": _PORTS},
        "affinity": {"sessionAffinity": "Foo", "ports": _PORTS},
        "affinity-zero": {"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 0}}, "ports": _PORTS},
        "outside": {"externalTrafficPolicy": "Local", "ports": _PORTS}, "inside": {"internalTrafficPolicy": "Foo", "ports": _PORTS},
        "distribution": {"trafficDistribution": "Foo", "ports": _PORTS}, "sources": {"loadBalancerSourceRanges": ["10.0.0.0/8"], "ports": _PORTS},
        "balancer-class": {"loadBalancerClass": "a/b", "ports": _PORTS}, "ready": {"clusterIP": "None", "publishNotReadyAddresses": False, "ports": _PORTS},
    },
    "limitranges": {
        "nothing": {"limits": []}, "container": {"limits": [{"type": "Container", "max": {"cpu": "2"}, "min": {"cpu": "100m"}}]}, "type": {"limits": [{"type": "Foo"}]},
        "no-type": {"limits": [{}]}, "equal": {"limits": [{"type": "Pod"}, {"type": "Pod"}]}, "pod-default": {"limits": [{"type": "Pod", "default": {"cpu": "1"}}]},
        "order": {"limits": [{"type": "Container", "min": {"cpu": "2"}, "max": {"cpu": "1"}}]},
        "order-default": {"limits": [{"type": "Container", "min": {"cpu": "2"}, "default": {"cpu": "1"}, "defaultRequest": {"cpu": "1"}}]},
        "order-request": {"limits": [{"type": "Container", "max": {"cpu": "1"}, "default": {"cpu": "2"}, "defaultRequest": {"cpu": "3"}}]},
        "name": {"limits": [{"type": "Container", "max": {"foo": "1"}}]}, "name-storage": {"limits": [{"type": "Container", "max": {"storage": "1"}}]}, "volume": {"limits": [{"type": "PersistentVolumeClaim"}]},
        "ratio": {"limits": [{"type": "Container", "maxLimitRequestRatio": {"cpu": "500m"}}]},
        "ratio-high": {"limits": [{"type": "Container", "min": {"cpu": "1"}, "max": {"cpu": "2"}, "maxLimitRequestRatio": {"cpu": "3"}}]},
        "gpu": {"limits": [{"type": "Container", "default": {"nvidia.com/gpu": "2"}, "defaultRequest": {"nvidia.com/gpu": "1"}}]},
    },
    "resourcequotas": {
        "negative": {"hard": {"pods": "-1"}}, "fraction": {"hard": {"pods": "1.5"}}, "name": {"hard": {"foo": "1"}}, "name-storage": {"hard": {"storage": "1"}}, "name-key": {"hard": {"a b": "1"}}, "count": {"hard": {"count/foo.bar": "1"}},
        "gpu": {"hard": {"requests.nvidia.com/gpu": "1.5"}}, "scope-resource": {"hard": {"services": "1"}, "scopes": ["Terminating"]},
        "scope": {"hard": {"pods": "1"}, "scopes": ["Foo"]}, "scopes": {"hard": {"pods": "1"}, "scopes": ["Terminating", "NotTerminating"]},
        "scope-values": {"hard": {"pods": "1"}, "scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In"}]}},
        "scope-operator": {"hard": {"pods": "1"}, "scopeSelector": {"matchExpressions": [{"scopeName": "Terminating", "operator": "In", "values": ["a"]}]}},
    },
    "leases": {"negative": {"leaseDurationSeconds": 0, "leaseTransitions": -1}, "preferred": {"preferredHolder": "a"}, "strategy": {"strategy": "Foo"}},
    "networkpolicies": {
        "empty": {}, "egress": {"podSelector": {}, "egress": [{}]}, "types": {"podSelector": {}, "policyTypes": ["Foo", "Ingress"]},
        "types-three": {"podSelector": {}, "policyTypes": ["Ingress", "Egress", "Ingress"]}, "no-peer": {"podSelector": {}, "ingress": [{"from": [{}]}]},
        "selector": {"podSelector": {"matchLabels": {"a b": "c"}, "matchExpressions": [{"key": "a", "operator": "Foo"}, {"key": "b", "operator": "In"}, {"key": "c", "operator": "Exists", "values": ["x"]}]}},
        "except": {"podSelector": {}, "ingress": [{"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16", "11.0.0.0/8", "x"]}, "podSelector": {}}]}]},
        "blocks": {"podSelector": {}, "ingress": [{"from": [{"ipBlock": {"cidr": cidr}} for cidr in ("10.0.0.1/8", "x", "010.0.0.0/8", "")]}]},
        "ports": {"podSelector": {}, "ingress": [{"ports": [{"port": 0}, {"port": "A"}, {"port": 5, "endPort": 4}, {"port": "http", "endPort": 9}, {"endPort": 5}, {"protocol": "X", "port": 5}]}]},
    },
    "nodes": {"taints": {"taints": [{"key": "a b", "effect": "Foo"}, {"key": "a", "value": "x y"}, {"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "NoSchedule"}]}},
    "namespaces": {"finalizers": {"finalizers": ["a", "b/c", "a b"]}},
    "pods": {
        "quality": {"containers": [{"name": "a", "image": "b", "resources": {"requests": {"cpu": "1"}}}]},
        "quality-best": {"containers": [{"name": "a", "image": "b", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}]},
        "tolerates": {"containers": [{"name": "a", "image": "b"}], "tolerations": [{"operator": "Exists"}]},
        "zeros": {"containers": [{"name": "a", "image": "b", "stdin": False, "args": []}], "hostNetwork": False, "nodeName": "", "volumes": []},
    },
}
"""The specs of new objects."""

_CONTENTS: dict[str, dict[str, Object]] = {
    "configmaps": {"key-dot": {"data": {".": "b"}}, "key-dots": {"data": {"..": "a"}}, "key-after-dots": {"data": {"..a": "c"}}, "key-long": {"data": {"a" * 254: "d"}}, "both": {"data": {"a": "b"}, "binaryData": {"a": "YQ=="}}, "binary-key": {"binaryData": {"a/b": "YQ=="}}},
    "secrets": {
        "tls": _secret("kubernetes.io/tls"), "tls-half": _secret("kubernetes.io/tls", tls__crt=""), "docker": _secret("kubernetes.io/dockercfg"), "docker-object": _secret("kubernetes.io/dockercfg", __dockercfg="{}"),
        "docker-list": _secret("kubernetes.io/dockerconfigjson", __dockerconfigjson="[1]"), "docker-nothing": _secret("kubernetes.io/dockerconfigjson", __dockerconfigjson=""),
        "basic": _secret("kubernetes.io/basic-auth"), "basic-half": _secret("kubernetes.io/basic-auth", username=""), "ssh": _secret("kubernetes.io/ssh-auth", **{"ssh-privatekey": ""}),
        "token": _secret("kubernetes.io/service-account-token"), "other": _secret("foo/bar"), "text-key": {"stringData": {"a b": "c"}},
    },
    "priorityclasses": {"high": {"value": 2_000_000_000}, "policy": {"preemptionPolicy": "Foo"}, "policy-empty": {"preemptionPolicy": ""}, "negative": {"value": -5}, "none": {"value": None}},
    "roles": {
        "empty": {"rules": []}, "rule-empty": {"rules": [{}]}, "urls": {"rules": [{"verbs": ["get"], "nonResourceURLs": ["/x"]}]},
        "urls-and-resources": {"rules": [{"verbs": ["get"], "nonResourceURLs": ["/x"], "resources": ["pods"]}]}, "no-resources": {"rules": [{"verbs": ["get"], "apiGroups": [""]}]},
    },
    "clusterroles": {"urls": {"rules": [{"verbs": ["get"], "nonResourceURLs": ["/x"]}]}, "aggregates-nothing": {"aggregationRule": {}}, "aggregates": {"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a b": "c"}}]}}},
    **{
        plural: {
            "no-role": {"roleRef": {}}, "role": {"roleRef": {"kind": "Foo", "name": "a/b", "apiGroup": "x"}}, "role-plain": {"roleRef": {"kind": "Role", "name": "a"}},
            "subjects": {"subjects": [{}, {"kind": "User", "name": "a"}, {"kind": "Group", "name": "b", "apiGroup": "x"}, {"kind": "ServiceAccount", "name": "A B", "apiGroup": "y"}, {"kind": "Foo", "name": "c"}]},
        }
        for plural in ("rolebindings", "clusterrolebindings")
    },
    "events": {"other-namespace": {"involvedObject": {"namespace": "other"}}, "new-form": {"eventTime": "2020-01-01T00:00:00.000000Z"}, "counted": {"count": 0, "source": {"component": "x"}}},
}
"""Other fields of new objects."""

_UPDATES: dict[str, tuple[str, Object, tuple[Object, ...]]] = {
    "configmap": ("configmaps", {"immutable": True}, ({"data": {"color": "blue"}}, {"immutable": False}, {"immutable": None}, {"binaryData": {"x": "YQ=="}}, {"metadata": {"labels": {"a": "b"}}})),
    "secret": ("secrets", {"immutable": True}, ({"data": {"key": "YQ=="}}, {"stringData": {"key": "c"}}, {"immutable": False})),
    "secret-type": ("secrets", {}, ({"type": "foo"}, {"type": None})),
    "class": ("priorityclasses", {}, ({"value": 6}, {"preemptionPolicy": "Never"}, {"description": "a"})),
    "role": ("rolebindings", {}, ({"roleRef": {"name": "other"}}, {"subjects": [{"kind": "User", "name": "u"}]})),
    "quota": ("resourcequotas", {"spec": {"hard": {"pods": "1"}, "scopes": ["BestEffort"]}}, ({"spec": {"scopes": ["NotBestEffort"]}}, {"spec": {"hard": {"pods": "x"}}}, {"spec": {"scopes": None}})),
    "services": ("services", {}, ({"spec": {"clusterIP": "10.96.0.99"}}, {"spec": {"type": "ExternalName", "externalName": "a.b"}}, {"spec": {"ports": [{"port": 81}]}})),
    "metadata": (
        "configmaps",
        {},
        (
            *({"metadata": {"uid": "x"}}, {"metadata": {"deletionTimestamp": "2020-01-01T00:00:00Z"}}, {"metadata": {"generation": 7, "selfLink": "/x", "deletionGracePeriodSeconds": 4}}),
            *({"metadata": {"labels": {"a b": "c"}}}, {"metadata": {"finalizers": ["a"]}}, {"metadata": {"ownerReferences": [{}]}}, {"metadata": {"generateName": "A_B/"}}, {"metadata": {"generateName": "foo"}}),
            *({"metadata": {"labels": {}, "annotations": {}}}, {"data": {}}),
        ),
    ),
}
"""Merge patches that follow each other on one object: its kind, its other fields, the patches."""

_NAMES = {"upper": "{{ns}}-A", "dots": "{{ns}}.b", "slash": "{{ns}}/b", "percent": "{{ns}}%b", "colon": "{{ns}}:b", "long": "{{ns}}" + "a" * 60}




def kinds_cases() -> Iterator[Case]:
    """All cases about what is in objects of one kind."""
    contents: list[tuple[str, str, Any]] = [
        *((plural, name, {"spec": spec}) for plural, table in _SPECS.items() for name, spec in table.items()),
        *((plural, name, content) for plural, table in _CONTENTS.items() for name, content in table.items()),
    ]
    for plural, name, content in contents:
        yield case(f"kinds/create/{plural}/{name}", create(plural, sample(plural) | content, _DRY))
    for name, (plural, content, changes) in _UPDATES.items():
        item = sample(plural) | content
        patches = [patch(plural, change) for change in changes]
        # The use of a quota is in its status at once here; in Kubernetes a controller writes it.
        last = [] if plural == "resourcequotas" else [put(plural, item), delete(plural)]
        yield case(f"kinds/update/{name}", create(plural, item), *patches, *last)
    for plural in SAMPLES:
        for name, text in _NAMES.items():
            if plural != "jobs":
                yield case(f"kinds/name/{name}/{plural}", create(plural, sample(plural, text), _DRY))
    for name in ("system-foo", "system-node-critical"):
        yield case(f"kinds/system-class/{name}", create("priorityclasses", sample("priorityclasses", name), _DRY))
    yield case("kinds/limitranges-without-name", create("limitranges", sample("limitranges", ""), _DRY), delete("limitranges", name=NAME))
