"""Server-side apply: merges, conflicts, owners, and the subresources status and scale, which have owners too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tools.conformance.api.cases.writing import (
    APPLY,
    JSON,
    JSON_PATCH,
    MERGE,
    NAME,
    STRATEGIC,
    Object,
    case,
    create,
    delete,
    get,
    patch,
    path_of,
    put,
    request,
    sample,
)
from tools.conformance.api.connection import Step
from tools.conformance.area import Case

# A case of a table is one line.
# fmt: off
_UID = "00000000-0000-4000-8000-000000000001"


def _apply(plural: str, item: Any, query: str = "fieldManager=one", below: str = "") -> Step:
    return request("PATCH", path_of(plural) + below + (f"?{query}" if query else ""), item, APPLY)


def _config(plural: str = "configmaps", **fields: Any) -> Object:
    """A configuration of an apply: head and name, and the given fields."""
    item = sample(plural)
    return {"apiVersion": item["apiVersion"], "kind": item["kind"], "metadata": {"name": NAME}, **fields}


def _deployment(*containers: Object, **spec: Any) -> Object:
    item = sample("deployments")
    if containers:
        item["spec"]["template"]["spec"] = {"containers": list(containers)}
    item["spec"] |= spec
    return item


_CONFIGS: dict[str, Any] = {
    "data": _config(data={"a": "1"}),
    "head-only": _config(),
    "no-name": {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "1"}},
    "other-name": _config(metadata={"name": "{{ns}}-b"}),
    "namespace": _config(metadata={"name": NAME, "namespace": "{{ns}}"}),
    "other-namespace": _config(metadata={"name": NAME, "namespace": "other"}),
    "uid": _config(metadata={"name": NAME, "uid": _UID}),
    "version": _config(metadata={"name": NAME, "resourceVersion": "1"}),
    "managed": _config(metadata={"name": NAME, "managedFields": [{"manager": "a", "operation": "Apply", "apiVersion": "v1"}]}),
    "managed-empty": _config(metadata={"name": NAME, "managedFields": []}),
    "managed-null": _config(metadata={"name": NAME, "managedFields": None}),
    "labels": _config(metadata={"name": NAME, "labels": {"a": "b"}, "annotations": {"c": "d"}, "finalizers": ["x.example/a"]}),
    "no-kind": {"apiVersion": "v1", "metadata": {"name": NAME}},
    "no-version": {"kind": "ConfigMap", "metadata": {"name": NAME}},
    "other-kind": _config() | {"kind": "Secret"},
    "unknown-kind": _config() | {"kind": "Thing"},
    "other-version": _config() | {"apiVersion": "apps/v1"},
    "unknown-field": _config(colour="red"),
    "wrong-type": _config(data={"a": 1}),
    "wrong-shape": _config(data=[]),
    "null-value": _config(data={"a": None}),
    "null-field": _config(data=None),
    "empty-map": _config(data={}),
    "invalid": _config(data={"a b": "1"}),
    "yaml": f"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {NAME}\ndata:\n  a: yes text\n",
    "yaml-broken": "a: [",
    "yaml-two": f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {NAME}}}\n---\nkind: Other\n",
    "yaml-twice": f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {NAME}}}\ndata:\n  a: '1'\n  a: '2'\n",
    "json-twice": f'{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{NAME}"}},"data":{{"a":"1","a":"2"}}}}',
    "text": '"text"',
    "list": "[]",
    "null": "null",
    "nothing": "",
    "binary": _config(binaryData={"a": "YQ=="}),
    "immutable": _config(immutable=True),
    "creation": _config(metadata={"name": NAME, "creationTimestamp": None}),
}
_QUERIES = {
    "none": "",
    "empty-manager": "fieldManager=",
    "forced": "fieldManager=one&force=true",
    "not-forced": "fieldManager=one&force=false",
    "force-wrong": "fieldManager=one&force=x",
    "dry": "fieldManager=one&dryRun=All",
    "strict": "fieldManager=one&fieldValidation=Strict",
    "warn": "fieldManager=one&fieldValidation=Warn",
    "long": "fieldManager=" + "m" * 129,
    "several-wrong": "fieldManager=&dryRun=x&fieldValidation=y",
}


def applying_cases() -> Iterator[Case]:
    """Cases of apply patches, and of subresources."""
    for name, config in _CONFIGS.items():
        yield case(f"apply/new/{name}", _apply("configmaps", config), get(path_of("configmaps")))
        yield case(f"apply/there/{name}", create("configmaps"), _apply("configmaps", config))
    for name, query in _QUERIES.items():
        yield case(f"apply/query/{name}", _apply("configmaps", _config(data={"a": "1"}, colour="red"), query), get(path_of("configmaps")))
    for plural in ("secrets", "pods", "nodes", "deployments", "leases", "resourceclaims", "deviceclasses", "roles", "services", "jobs"):
        yield case(f"apply/kinds/{plural}", _apply(plural, sample(plural)), _apply(plural, sample(plural)))
    yield from _sequences()
    yield from _lists()
    yield from _subresources()


def _sequences() -> Iterator[Case]:
    one, two = "fieldManager=one", "fieldManager=two"

    def data(**values: str) -> Object:
        return _config(data=values)

    first = _apply("configmaps", data(a="1", b="1"), one)
    yield case("apply/again/same", first, first)
    yield case("apply/again/changed", first, _apply("configmaps", data(a="2", b="1"), one))
    yield case("apply/again/dropped", first, _apply("configmaps", data(a="1"), one))
    yield case("apply/again/all-dropped", first, _apply("configmaps", _config(), one))
    yield case("apply/two/shared", first, _apply("configmaps", data(a="1"), two))
    yield case("apply/two/more", first, _apply("configmaps", data(c="1"), two))
    yield case("apply/two/conflict", first, _apply("configmaps", data(a="2"), two))
    yield case("apply/two/conflicts", first, _apply("configmaps", data(a="2", b="2"), two))
    yield case("apply/two/forced", first, _apply("configmaps", data(a="2"), two + "&force=true"), first)
    yield case("apply/two/shared-dropped", first, _apply("configmaps", data(a="1"), two), _apply("configmaps", data(b="1"), one))
    yield case("apply/two/shared-changed", first, _apply("configmaps", data(a="1"), two), _apply("configmaps", data(a="3", b="1"), one))
    three = _apply("configmaps", data(a="3"), "fieldManager=three")
    yield case("apply/three/conflict", first, _apply("configmaps", data(a="1"), two), three)
    changed = put("configmaps", sample("configmaps") | {"data": {"a": "9", "c": "1"}}, "?fieldManager=editor")
    yield case("apply/update/changes", first, changed)
    yield case("apply/update/then-conflict", first, changed, first)
    yield case("apply/update/then-forced", first, changed, _apply("configmaps", data(a="1", b="1"), one + "&force=true"))
    yield case("apply/update/removes", first, put("configmaps", sample("configmaps") | {"data": {}}), first)
    yield case("apply/update/same", first, put("configmaps", sample("configmaps") | {"data": {"a": "1", "b": "1"}}))
    for word, body, kind in (
        ("merge", {"data": {"a": "5"}}, MERGE),
        ("strategic", {"data": {"a": None}}, STRATEGIC),
        ("json", [{"op": "add", "path": "/data/x", "value": "1"}], JSON_PATCH),
    ):
        yield case(f"apply/patch/{word}", first, patch("configmaps", body, kind, "?fieldManager=patcher"), first)
    stripped: Any = {"metadata": {"managedFields": [{}]}}
    yield case("apply/managed/stripped", first, patch("configmaps", stripped), _apply("configmaps", data(a="2"), two))
    yield case("apply/managed/emptied", first, patch("configmaps", {"metadata": {"managedFields": []}}))
    yield case("apply/managed/nulled", first, patch("configmaps", {"metadata": {"managedFields": None}}))
    yield case(
        "apply/managed/written",
        first,
        put(
            "configmaps",
            sample(
                "configmaps",
                managedFields=[
                    {
                        "manager": "x",
                        "operation": "Apply",
                        "apiVersion": "v1",
                        "time": "2001-01-01T00:00:00Z",
                        "fieldsType": "FieldsV1",
                        "fieldsV1": {"f:data": {"f:a": {}}},
                    }
                ],
            )
            | {"data": {"a": "1"}},
        ),
    )
    yield case("apply/managed/wrong", first, put("configmaps", sample("configmaps", managedFields=[{"manager": "x", "operation": "Guess"}])))
    yield case("apply/created/then-applied", create("configmaps", query="?fieldManager=maker"), first)
    yield case("apply/created/then-conflict", create("configmaps", query="?fieldManager=maker"), _apply("configmaps", data(color="blue")))
    yield case("apply/created/then-shared", create("configmaps", query="?fieldManager=maker"), _apply("configmaps", data(color="red")))
    yield case("apply/created/then-forced", create("configmaps", query="?fieldManager=maker"), _apply("configmaps", data(color="blue"), one + "&force=true"))
    right = _config(metadata={"name": NAME, "uid": "{{0:metadata.uid}}", "resourceVersion": "{{0:metadata.resourceVersion}}"}, data={"a": "2"})
    yield case("apply/again/identity", first, _apply("configmaps", right))
    stale = _config(metadata={"name": NAME, "resourceVersion": "1"}, data={"a": "2"})
    yield case("apply/again/stale", first, _apply("configmaps", stale))
    yield case("apply/again/after-delete", first, delete("configmaps"), first)
    yield case("apply/dry/there", first, _apply("configmaps", data(a="2"), one + "&dryRun=All"), get(path_of("configmaps")))
    yield case("apply/dry/conflict", first, _apply("configmaps", data(a="2"), two + "&dryRun=All"))


def _lists() -> Iterator[Case]:
    one, two = "fieldManager=one", "fieldManager=two"
    a, b = ({"name": name, "image": name} for name in ("a", "b"))
    port = {"containerPort": 80}
    configs: dict[str, Object] = {
        "two": _deployment(a, b),
        "order": _deployment(b, a),
        "ports": _deployment({**a, "ports": [port, {"containerPort": 80, "protocol": "UDP"}]}),
        "same-port-twice": _deployment({**a, "ports": [port, {"containerPort": 80, "protocol": "TCP"}]}),
        "same-name-twice": _deployment(a, a),
        "no-key": _deployment({"image": "a"}),
        "key-number": _deployment({"name": 1, "image": "a"}),
        "arguments": _deployment({**a, "args": ["x", "y"]}),
        "env": _deployment({**a, "env": [{"name": "A", "value": "1"}]}),
        "resources": _deployment({**a, "resources": {"limits": {"cpu": "1"}}}),
        "selector": _deployment(a, replicas=3),
        "replicas-text": _deployment(a, replicas="3"),
        "unknown-in-item": _deployment({**a, "colour": "red"}),
    }
    base = _apply("deployments", _deployment(a), one)
    for name, config in configs.items():
        yield case(f"apply/lists/new/{name}", _apply("deployments", config, one))
        yield case(f"apply/lists/by-same/{name}", base, _apply("deployments", config, one))
        yield case(f"apply/lists/by-other/{name}", base, _apply("deployments", config, two))
    both = _apply("deployments", _deployment(a, b), one)
    yield case("apply/lists/item-dropped", both, _apply("deployments", _deployment(b), one))
    added = {"metadata": {"finalizers": ["x.example/b"]}}
    fields = _config(metadata={"name": NAME, "finalizers": ["x.example/a"]})
    yield case("apply/lists/set", _apply("configmaps", fields), patch("configmaps", added, STRATEGIC), _apply("configmaps", fields))
    yield case("apply/lists/set-dropped", _apply("configmaps", fields), _apply("configmaps", _config()))
    twice = _config(metadata={"name": NAME, "finalizers": ["x.example/a", "x.example/a"]})
    yield case("apply/lists/set-twice", _apply("configmaps", twice))
    owner = {"apiVersion": "example.com/v1", "kind": "Thing", "name": "a", "uid": _UID}
    yield case("apply/lists/owners", _apply("configmaps", _config(metadata={"name": NAME, "ownerReferences": [owner]})), _apply("configmaps", _config()))
    scaled = patch("deployments", {"spec": {"replicas": 5}}, MERGE, "?fieldManager=scaler")
    yield case("apply/lists/replicas-of-another", base, scaled, _apply("deployments", _deployment(a, replicas=2), one))
    yield case("apply/lists/replicas-left-alone", base, scaled, _apply("deployments", _deployment(a, b), one))


def _subresources() -> Iterator[Case]:
    scale: Object = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": NAME}, "spec": {"replicas": 4}}
    there = create("deployments")
    at = path_of("deployments") + "/scale"
    bodies: dict[str, Any] = {
        "four": scale,
        "zero": scale | {"spec": {"replicas": 0}},
        "no-spec": {key: value for key, value in scale.items() if key != "spec"},
        "negative": scale | {"spec": {"replicas": -1}},
        "text": scale | {"spec": {"replicas": "4"}},
        "other-name": scale | {"metadata": {"name": "{{ns}}-b"}},
        "no-name": scale | {"metadata": {}},
        "namespace": scale | {"metadata": {"name": NAME, "namespace": "{{ns}}"}},
        "version": scale | {"metadata": {"name": NAME, "resourceVersion": "{{0:metadata.resourceVersion}}"}},
        "old-version": scale | {"metadata": {"name": NAME, "resourceVersion": "1"}},
        "other-uid": scale | {"metadata": {"name": NAME, "uid": _UID}},
        "other-kind": scale | {"kind": "Deployment", "apiVersion": "apps/v1"},
        "unknown-field": scale | {"colour": 1},
    }
    for name, body in bodies.items():
        yield case(f"scale/put/{name}", there, request("PUT", at, body), get(at), get(path_of("deployments")))
    for word, body, kind in (
        ("merge", {"spec": {"replicas": 4}}, MERGE),
        ("merge-negative", {"spec": {"replicas": -4}}, MERGE),
        ("strategic", {"spec": {"replicas": 4}}, STRATEGIC),
        ("json", [{"op": "replace", "path": "/spec/replicas", "value": 4}], JSON_PATCH),
        ("json-absent", [{"op": "test", "path": "/spec/absent", "value": 4}], JSON_PATCH),
        ("apply", scale, APPLY),
    ):
        query = "?fieldManager=x" if kind == APPLY else ""
        yield case(f"scale/patch/{word}", there, request("PATCH", at + query, body, kind), get(at))
    yield case("scale/get/absent", get(at))
    yield case("scale/get/other-kind", create("configmaps"), get(path_of("configmaps") + "/scale"))
    yield case("scale/dry", there, request("PUT", at + "?dryRun=All", scale), get(at))
    yield case("scale/delete", there, request("DELETE", at))
    yield case("scale/post", there, request("POST", at, scale))
    yield case("scale/replicaset", create("replicasets"), request("PUT", path_of("replicasets") + "/scale", scale), get(path_of("replicasets") + "/scale"))
    yield from _statuses()


def _statuses() -> Iterator[Case]:
    for plural, status in (
        ("pods", {"phase": "Running", "podIP": "10.0.0.1"}),
        ("nodes", {"capacity": {"cpu": "4"}, "conditions": [{"type": "Ready", "status": "True"}]}),
        ("deployments", {"replicas": 2, "observedGeneration": 1}),
        ("namespaces", {"phase": "Active"}),
        ("resourceclaims", {}),
        ("jobs", {"active": 1, "startTime": "2020-01-01T00:00:00Z"}),
        ("poddisruptionbudgets", {"disruptionsAllowed": 1, "currentHealthy": 1, "desiredHealthy": 0, "expectedPods": 1}),
        ("services", {"loadBalancer": {}}),
        ("resourcequotas", {"used": {"pods": "1"}}),
    ):
        at = path_of(plural) + "/status"
        item = sample(plural, labels={"a": "b"}, annotations={"c": "d"}) | {"status": status}
        yield case(f"status/put/{plural}", create(plural), request("PUT", at, item), get(at), get(path_of(plural)))
        yield case(f"status/merge/{plural}", create(plural), request("PATCH", at, {"status": status, "metadata": {"labels": {"a": "b"}}}, MERGE))
        yield case(f"status/strategic/{plural}", create(plural), request("PATCH", at, {"status": status}, STRATEGIC), request("PATCH", at, {"status": status}, STRATEGIC))
        yield case(f"status/by-create/{plural}", create(plural, sample(plural) | {"status": status}))
    at = path_of("pods") + "/status"
    pod = create("pods")
    running = sample("pods") | {"status": {"phase": "Running"}}
    yield case("status/absent", request("PUT", at, running))
    yield case("status/stale", pod, request("PUT", at, sample("pods", resourceVersion="1") | {"status": {}}))
    yield case("status/other-uid", pod, request("PUT", at, sample("pods", uid=_UID) | {"status": {}}))
    yield case("status/dry", pod, request("PUT", at + "?dryRun=All", running), get(at))
    yield case("status/wrong-type", pod, request("PUT", at, sample("pods") | {"status": {"phase": 1}}))
    yield case("status/wrong-kind", pod, request("PUT", at, sample("configmaps")))
    yield case("status/post", pod, request("POST", at, running))
    yield case("status/delete", pod, request("DELETE", at))
    yield case("status/unknown", pod, request("PATCH", at + "?fieldValidation=Strict", {"status": {"colour": 1}}, MERGE))
    conditions = [{"op": "add", "path": "/status/conditions", "value": [{"type": "a", "status": "True"}]}]
    yield case("status/json", pod, request("PATCH", at, conditions, JSON_PATCH))
    condition = {"status": {"conditions": [{"type": "b", "status": "True"}]}}
    yield case("status/conditions", pod, request("PATCH", at, conditions, JSON_PATCH), request("PATCH", at, condition, STRATEGIC))
    yield case(
        "status/of-configmap", create("configmaps"), get(path_of("configmaps") + "/status"), request("PUT", path_of("configmaps") + "/status", sample("configmaps"))
    )
    applied = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": NAME}, "status": {"phase": "Running"}}
    yield case(
        "status/apply",
        _apply("pods", sample("pods")),
        _apply("pods", applied, "fieldManager=kubelet", "/status"),
        _apply("pods", applied, "fieldManager=other", "/status"),
    )
    yield case(
        "status/apply-conflict",
        _apply("pods", sample("pods")),
        _apply("pods", applied, "fieldManager=kubelet", "/status"),
        _apply("pods", applied | {"status": {"phase": "Failed"}}, "fieldManager=other", "/status"),
    )
    yield case("status/apply-absent", _apply("pods", applied, "fieldManager=kubelet", "/status"))
    yield case("status/apply-spec", _apply("pods", sample("pods")), _apply("pods", sample("pods") | {"status": {"phase": "Running"}}, "fieldManager=other", "/status"))
    yield from _actions()


def _actions() -> Iterator[Case]:
    """Bindings, evictions and the finalizers of a namespace."""
    pod = create("pods")
    binding: Object = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": NAME}, "target": {"kind": "Node", "name": "node-1"}}
    at = path_of("pods")
    bind = request("POST", f"{at}/binding", binding)
    yield case("binding/once", pod, bind, get(at))
    yield case("binding/twice", pod, bind, bind)
    yield case("binding/absent", bind)
    yield case("binding/no-target", pod, request("POST", f"{at}/binding", binding | {"target": {}}))
    yield case("binding/other-target", pod, request("POST", f"{at}/binding", binding | {"target": {"kind": "Pod", "name": "a"}}))
    yield case("binding/other-name", pod, request("POST", f"{at}/binding", binding | {"metadata": {"name": "b"}}))
    yield case("binding/other-kind", pod, request("POST", f"{at}/binding", sample("pods")))
    yield case("binding/dry", pod, request("POST", f"{at}/binding?dryRun=All", binding), get(at))
    yield case("binding/get", pod, get(f"{at}/binding"))
    yield case(
        "binding/annotations", pod, request("POST", f"{at}/binding", binding | {"metadata": {"name": NAME, "annotations": {"a": "b"}, "labels": {"c": "d"}}}), get(at)
    )
    eviction: Object = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": NAME, "namespace": "{{ns}}"}}
    evict = request("POST", f"{at}/eviction", eviction)
    yield case("eviction/once", pod, evict, get(at))
    yield case("eviction/bound", pod, bind, evict, get(at))
    yield case("eviction/absent", evict)
    yield case("eviction/other-name", pod, request("POST", f"{at}/eviction", eviction | {"metadata": {"name": "b"}}))
    yield case("eviction/no-name", pod, request("POST", f"{at}/eviction", eviction | {"metadata": {}}))
    yield case("eviction/old-version", pod, request("POST", f"{at}/eviction", eviction | {"apiVersion": "policy/v1beta1"}))
    yield case("eviction/dry", pod, request("POST", f"{at}/eviction?dryRun=All", eviction), get(at))
    yield case("eviction/dry-option", pod, request("POST", f"{at}/eviction", eviction | {"deleteOptions": {"dryRun": ["All"]}}), get(at))
    yield case("eviction/grace", pod, bind, request("POST", f"{at}/eviction", eviction | {"deleteOptions": {"gracePeriodSeconds": 5}}), get(at))
    budget = create("poddisruptionbudgets")
    labelled = create("pods", sample("pods", labels={"app": "web"}))
    yield case(
        "eviction/budget",
        budget,
        labelled,
        bind,
        request("PATCH", f"{at}/status", {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}, MERGE),
        evict,
    )
    yield case("eviction/get", pod, get(f"{at}/eviction"))
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAME}, "spec": {"finalizers": []}}
    final = path_of("namespaces") + "/finalize"
    yield case("finalize/kept", create("namespaces"), request("PUT", final, space), get(path_of("namespaces")))
    yield case("finalize/deleted", create("namespaces"), delete("namespaces"), request("PUT", final, space), get(path_of("namespaces")))
    yield case("finalize/absent", request("PUT", final, space))
    yield case("finalize/patch", create("namespaces"), request("PATCH", final, {"spec": {"finalizers": []}}, MERGE))
    yield case("subresource/unknown", pod, get(f"{at}/unknown"), request("PUT", f"{at}/unknown", sample("pods")), request("POST", f"{at}/unknown", {}, JSON))
    yield case("subresource/deep", pod, get(f"{at}/status/more"), get(f"{at}/log/more"))
