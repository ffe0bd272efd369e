"""Creates, updates, patches and applies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tools.conformance.api.cases.requests import (
    JSON_PATCH,
    MERGE,
    NAME,
    SAMPLES,
    STRATEGIC,
    UID,
    YAML,
    Object,
    apply,
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
from tools.conformance.area import Case

# A case of a table is one line.
# fmt: off
_QUERIES = ("dryRun=All", "dryRun=Some", "fieldValidation=Strict", "fieldValidation=Ignore", "fieldValidation=strict", "fieldManager=me")
_METADATA: dict[str, Any] = {
    "no-name": {},
    "upper-name": {"name": "{{ns}}-A"},
    "long-name": {"name": "{{ns}}" + "a" * 250},
    "generated": {"generateName": "{{ns}}-"},
    "version": {"name": NAME, "resourceVersion": "1"},
    "own-times": {"name": NAME, "creationTimestamp": "2001-01-01T00:00:00Z", "deletionTimestamp": "2001-01-01T00:00:00Z", "deletionGracePeriodSeconds": 5, "generation": 7, "uid": UID},
    "labels": {"name": NAME, "labels": {"a": "b", "x.example/y": ""}, "annotations": {"n": "any thing"}},
    "label-key": {"name": NAME, "labels": {"a b": "c"}},
    "label-value": {"name": NAME, "labels": {"a": "-"}},
    "label-number": {"name": NAME, "labels": {"a": 1}},
    "finalizer": {"name": NAME, "finalizers": ["a.example/b"]},
    "finalizer-wrong": {"name": NAME, "finalizers": ["a b"]},
    "owner-empty": {"name": NAME, "ownerReferences": [{}]},
    "owner": {"name": NAME, "ownerReferences": [{"apiVersion": "example.com/v1", "kind": "Thing", "name": "a", "uid": UID}]},
    "namespace-other": {"name": NAME, "namespace": "other"},
    "unknown-field": {"name": NAME, "colour": "red"},
}
"""Metadata of new objects."""

_HEADS: dict[str, Object] = {"no-kind": {"kind": ""}, "other-kind": {"kind": "Secret"}, "unknown-kind": {"kind": "Thing"}, "other-version": {"apiVersion": "v2"}, "kind-number": {"kind": 1}}
_HEAD = f'"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{NAME}"}}'
_BODIES = {
    "cut": f"{{{_HEAD}",
    "text": '"text"',
    "list-for-map": f'{{{_HEAD},"data":[]}}',
    "null-in-map": f'{{{_HEAD},"data":{{"a":null}}}}',
    "number-for-text": f'{{{_HEAD},"data":{{"a":1}}}}',
    "base64-wrong": f'{{{_HEAD},"binaryData":{{"a":"!"}}}}',
}
_YAML = f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {NAME}}}\n"
_YAMLS = {"plain": f"{_YAML}data: {{a: word, b: '1'}}\n", "broken": "a: [", "number": f"{_YAML}data: {{a: 1}}\n", "yes": f"{_YAML}immutable: yes\n"}
_UPDATED: dict[str, Object] = {
    "same": {},
    "other-uid": {"uid": UID},
    "version": {"resourceVersion": "{{0:metadata.resourceVersion}}"},
    "old-version": {"resourceVersion": "1"},
    "other-name": {"name": "{{ns}}-b"},
    "labels": {"labels": {"a": "b"}},
    "creation": {"creationTimestamp": "2001-01-01T00:00:00Z", "generation": 9},
    "deletion": {"deletionTimestamp": "2001-01-01T00:00:00Z"},
    "finalizers": {"finalizers": ["a.example/b"]},
}
_LABELLED = sample("configmaps", labels={"app": "web", "tier": "1"}, finalizers=["x.example/a", "x.example/b"])
_MERGES: dict[str, Any] = {
    "label": {"metadata": {"labels": {"new": "1"}}},
    "remove-label": {"metadata": {"labels": {"app": None}}},
    "remove-labels": {"metadata": {"labels": None}},
    "data": {"data": {"color": "blue", "more": "x"}},
    "remove-data": {"data": None},
    "empty": {},
    "list": [],
    "broken": "{",
    "name": {"metadata": {"name": "{{ns}}-b"}},
    "unknown-field": {"colour": "red"},
    "wrong-type": {"data": {"a": 1}},
    "version": {"metadata": {"resourceVersion": "{{0:metadata.resourceVersion}}"}, "data": {"a": "b"}},
    "old-version": {"metadata": {"resourceVersion": "1"}, "data": {"a": "b"}},
    "finalizers": {"metadata": {"finalizers": ["x.example/c"]}},
}
"""Merge patches, sent as strategic ones too."""

_DATA, _LIST = "/data/", "/metadata/finalizers/"
_OPERATIONS: dict[str, list[Object]] = {
    "add": [{"op": "add", "path": _DATA + "new", "value": "1"}],
    "add-no-parent": [{"op": "add", "path": "/binaryData/new", "value": "1"}],
    "add-end": [{"op": "add", "path": _LIST + "-", "value": "x.example/c"}],
    "add-middle": [{"op": "add", "path": _LIST + "1", "value": "x.example/c"}],
    "add-far": [{"op": "add", "path": _LIST + "9", "value": "x.example/c"}],
    "replace": [{"op": "replace", "path": _DATA + "color", "value": "blue"}],
    "replace-far": [{"op": "replace", "path": _LIST + "9", "value": "x.example/c"}],
    "remove": [{"op": "remove", "path": _DATA + "color"}],
    "remove-absent": [{"op": "remove", "path": _DATA + "absent"}],
    "remove-first": [{"op": "remove", "path": _LIST + "0"}],
    "test": [{"op": "test", "path": _DATA + "color", "value": "red"}, {"op": "remove", "path": _DATA + "color"}],
    "test-fails": [{"op": "test", "path": _DATA + "color", "value": "blue"}],
    "escaped": [{"op": "add", "path": "/metadata/annotations", "value": {"a/b": "1"}}, {"op": "replace", "path": "/metadata/annotations/a~1b", "value": "2"}],
    "unknown-op": [{"op": "set", "path": _DATA + "new", "value": "1"}],
}


def _pods(*containers: Object, **spec: Any) -> Object:
    return {"spec": {"template": {"spec": {**({"containers": list(containers)} if containers else {}), **spec}}}}


def _named(names: str) -> list[Object]:
    return [{"name": name} for name in names]


_THREE = sample("deployments")
_THREE["spec"]["template"]["spec"] |= {
    "containers": [{"name": name, "image": name} for name in "abc"], "tolerations": [{"key": "one", "operator": "Exists"}], "nodeSelector": {"disk": "ssd"},
    "volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "emptyDir": {}}],
}
_THREE["metadata"]["finalizers"] = ["x.example/a", "x.example/b", "x.example/c"]
_ORDER, _LACK = "$setElementOrder/containers", "$deleteFromPrimitiveList/finalizers"
_STRATEGICS: dict[str, Any] = {
    "image": _pods({"name": "b", "image": "new"}),
    "new-last": _pods({"name": "d", "image": "d"}),
    "new-and-old": _pods({"name": "d", "image": "d"}, {"name": "a", "image": "new"}),
    "delete": _pods({"name": "b", "$patch": "delete"}),
    "delete-and-add": _pods({"name": "a", "$patch": "delete"}, {"name": "d", "image": "d"}),
    "replace-list": _pods({"name": "d", "image": "d"}, {"$patch": "replace"}),
    "no-key": _pods({"image": "x"}),
    "empty-list": _pods(containers=[]),
    "unknown-directive": _pods({"name": "a", "$patch": "change"}),
    "order": _pods(**{_ORDER: _named("cab")}),
    "order-and-item": _pods({"name": "a", "image": "new"}, **{_ORDER: _named("cab")}),
    "order-new": _pods({"name": "d", "image": "d"}, **{_ORDER: _named("dabc")}),
    "order-some": _pods({"name": "a", "image": "new"}, **{_ORDER: _named("ca")}),
    "order-and-delete": _pods({"name": "b", "$patch": "delete"}, **{_ORDER: _named("ca")}),
    "finalizers": {"metadata": {"finalizers": ["x.example/d"]}},
    "delete-finalizer": {"metadata": {_LACK: ["x.example/b"]}},
    "move-finalizer": {"metadata": {_LACK: ["x.example/b"], "finalizers": ["x.example/d"]}},
    "order-of-finalizers": {"metadata": {"$setElementOrder/finalizers": ["x.example/d", "x.example/c", "x.example/a", "x.example/b"], "finalizers": ["x.example/d"]}},
    "retain": {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}},
    "volume-source": _pods(volumes=[{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}]),
    "tolerations": _pods(tolerations=[{"key": "two", "operator": "Exists"}]),
    "env": _pods({"name": "a", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]}),
    "ports": _pods({"name": "a", "ports": [{"containerPort": 80, "protocol": "TCP"}, {"containerPort": 81}]}),
    "replace-map": _pods(nodeSelector={"$patch": "replace", "zone": "1"}),
    "delete-map": _pods(nodeSelector={"$patch": "delete"}),
    "template-labels": {"spec": {"template": {"metadata": {"labels": {"tier": "1"}}}}},
    "replicas-null": {"spec": {"replicas": None}},
    "replicas-text": {"spec": {"replicas": "4"}},
    "unknown-field": {"spec": {"size": 4}},
}
"""Strategic merge patches of a Deployment with three containers."""


def _config(**fields: Any) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME}, **fields}


_CONFIGS: dict[str, Any] = {
    "data": _config(data={"a": "1"}),
    "head-only": _config(),
    "other-name": _config(metadata={"name": "{{ns}}-b"}),
    "uid": _config(metadata={"name": NAME, "uid": UID}),
    "version": _config(metadata={"name": NAME, "resourceVersion": "1"}),
    "managed": _config(metadata={"name": NAME, "managedFields": [{"manager": "a", "operation": "Apply", "apiVersion": "v1"}]}),
    "other-kind": _config() | {"kind": "Secret"},
    "null-value": _config(data={"a": None}),
    "labels": _config(metadata={"name": NAME, "labels": {"a": "b"}, "annotations": {"c": "d"}, "finalizers": ["x.example/a"]}),
    "empty-map": _config(data={}),
    "yaml": f"{_YAML}data:\n  a: yes text\n",
    "text": '"text"',
}


def writing_cases() -> Iterator[Case]:
    """All cases of writes."""
    there = create("configmaps")
    for plural in SAMPLES:
        yield case(f"create/sample/{plural}", create(plural), get(path_of(plural)), create(plural), delete(plural))
    for query in _QUERIES:
        yield case(f"create/query/{query}", create("configmaps", {**sample("configmaps"), "colour": "red"}, f"?{query}"), get(path_of("configmaps")))
        yield case(f"update/query/{query}", there, put("configmaps", sample("configmaps") | {"data": {"color": "blue"}, "size": 1}, f"?{query}"), get(path_of("configmaps")))
        yield case(f"patch/query/{query}", there, patch("configmaps", {"data": {"color": "blue"}, "colour": 1}, MERGE, f"?{query}"))
    for plural in ("configmaps", "pods", "deviceclasses"):
        for name, metadata in _METADATA.items():
            yield case(f"create/metadata/{name}/{plural}", create(plural, sample(plural) | {"metadata": metadata}))
    for name, head in _HEADS.items():
        yield case(f"create/head/{name}", create("configmaps", sample("configmaps") | head))
    for name, body in _BODIES.items():
        yield case(f"create/body/{name}", create("configmaps", body))
        yield case(f"create/body-strict/{name}", create("configmaps", body, "?fieldValidation=Strict"))
    for name, body in _YAMLS.items():
        yield case(f"create/yaml/{name}", create("configmaps", body, kind=YAML))
    yield from _updates()
    yield from _patches()
    yield from _applies()
    yield from _subresources()


def _updates() -> Iterator[Case]:
    there = create("configmaps")
    for plural in ("configmaps", "pods", "leases", "resourceclaims"):
        for name, metadata in _UPDATED.items():
            yield case(f"update/metadata/{name}/{plural}", create(plural), put(plural, sample(plural, **({"name": NAME} | metadata))), get(path_of(plural)))
        if plural != "leases":
            yield case(f"update/absent/{plural}", put(plural, sample(plural)), patch(plural, {"metadata": {"labels": {"a": "b"}}}), delete(plural))
    once = sample("configmaps", resourceVersion="{{0:metadata.resourceVersion}}")
    yield case("update/version-twice", there, put("configmaps", {**once, "data": {"a": "1"}}), put("configmaps", {**once, "data": {"a": "2"}}))
    yield case("update/same-keeps-the-version", there, put("configmaps", once), put("configmaps", once), patch("configmaps", {}))
    yield case("update/claim-spec", create("resourceclaims"), put("resourceclaims", sample("resourceclaims", resourceVersion="{{0:metadata.resourceVersion}}") | {"spec": {"devices": {}}}))


def _patches() -> Iterator[Case]:
    for name, body in _MERGES.items():
        for word, kind in (("merge", MERGE), ("strategic", STRATEGIC)):
            yield case(f"patch/{word}/{name}", create("configmaps", _LABELLED), patch("configmaps", body, kind), get(path_of("configmaps")))
    for name, operations in _OPERATIONS.items():
        yield case(f"patch/json/{name}", create("configmaps", _LABELLED), patch("configmaps", operations, JSON_PATCH), get(path_of("configmaps")))
    for name, body in _STRATEGICS.items():
        yield case(f"patch/lists/{name}", create("deployments", _THREE), patch("deployments", body, STRATEGIC))
    yield case("patch/type", create("configmaps"), patch("configmaps", {"data": {"a": "1"}}, "text/plain"))


def _applies() -> Iterator[Case]:
    for name, config in _CONFIGS.items():
        yield case(f"apply/new/{name}", apply("configmaps", config), get(path_of("configmaps")))
        yield case(f"apply/there/{name}", create("configmaps"), apply("configmaps", config))
    for plural in ("secrets", "pods", "nodes", "deployments", "leases", "resourceclaims", "deviceclasses", "jobs"):
        yield case(f"apply/kinds/{plural}", apply(plural, sample(plural)), apply(plural, sample(plural)))
    one, two = "fieldManager=one", "fieldManager=two"

    def data(**values: str) -> Object:
        return _config(data=values)

    first, shared = apply("configmaps", data(a="1", b="1")), apply("configmaps", data(a="1"), two)
    changed = put("configmaps", sample("configmaps") | {"data": {"a": "9", "c": "1"}}, "?fieldManager=editor")
    yield case("apply/again/same", first, first)
    yield case("apply/again/changed", first, apply("configmaps", data(a="2", b="1")))
    yield case("apply/again/dropped", first, apply("configmaps", data(a="1")), apply("configmaps", _config()))
    yield case("apply/two/more", first, apply("configmaps", data(c="1"), two))
    yield case("apply/two/conflicts", first, apply("configmaps", data(a="2"), two), apply("configmaps", data(a="2", b="2"), two))
    yield case("apply/two/forced", first, apply("configmaps", data(a="2"), two + "&force=true"), first)
    yield case("apply/two/shared-dropped", first, shared, apply("configmaps", data(b="1")))
    yield case("apply/two/shared-changed", first, shared, apply("configmaps", data(a="3", b="1")))
    yield case("apply/three/conflict", first, shared, apply("configmaps", data(a="3"), "fieldManager=three"))
    yield case("apply/update", first, changed, first, apply("configmaps", data(a="1", b="1"), one + "&force=true"))
    yield case("apply/update/removes", first, put("configmaps", sample("configmaps") | {"data": {}}), first)
    yield case("apply/patch", first, patch("configmaps", {"data": {"a": "5"}}, MERGE, "?fieldManager=patcher"), first)
    yield case("apply/managed/stripped", first, patch("configmaps", {"metadata": {"managedFields": [{}]}}), apply("configmaps", data(a="2"), two))
    yield case("apply/created", create("configmaps", query="?fieldManager=maker"), first, apply("configmaps", data(color="blue")), apply("configmaps", data(color="blue"), one + "&force=true"))
    yield case("apply/dry", first, apply("configmaps", data(a="2"), one + "&dryRun=All"), get(path_of("configmaps")), apply("configmaps", data(a="2"), two + "&dryRun=All"))
    yield case("apply/no-manager", apply("configmaps", data(a="1"), "force=true"))
    a, b, port = {"name": "a", "image": "a"}, {"name": "b", "image": "b"}, {"containerPort": 80}

    def deployment(*containers: Object, **spec: Any) -> Object:
        item = sample("deployments")
        item["spec"] |= spec
        item["spec"]["template"]["spec"] = {"containers": list(containers)}
        return item

    base = apply("deployments", deployment(a))
    for name, config in {
        "two": deployment(a, b), "order": deployment(b, a), "ports": deployment({**a, "ports": [port, {**port, "protocol": "UDP"}]}), "env": deployment({**a, "env": [{"name": "A", "value": "1"}]}),
        "arguments": deployment({**a, "args": ["x", "y"]}), "replicas": deployment(a, replicas=3), "resources": deployment({**a, "resources": {"limits": {"cpu": "1"}}}),
    }.items():
        yield case(f"apply/lists/{name}", base, apply("deployments", config), apply("deployments", config, two))
    yield case("apply/lists/item-dropped", apply("deployments", deployment(a, b)), apply("deployments", deployment(b)))
    fields = _config(metadata={"name": NAME, "finalizers": ["x.example/a"]})
    yield case("apply/lists/set", apply("configmaps", fields), patch("configmaps", {"metadata": {"finalizers": ["x.example/b"]}}, STRATEGIC), apply("configmaps", fields), apply("configmaps", _config()))
    scaled = patch("deployments", {"spec": {"replicas": 5}}, MERGE, "?fieldManager=scaler")
    yield case("apply/lists/replicas-of-another", base, scaled, apply("deployments", deployment(a, replicas=2)), apply("deployments", deployment(a, b)))
    running: Object = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": NAME}, "status": {"phase": "Running"}}
    failed = running | {"status": {"phase": "Failed"}}
    yield case("apply/status", *(apply("pods", item, f"fieldManager={who}", below) for item, who, below in ((sample("pods"), "one", ""), (running, "kubelet", "/status"), (failed, "other", "/status"))))


def _subresources() -> Iterator[Case]:
    for plural, status in (
        ("pods", {"phase": "Running", "podIP": "10.0.0.1"}), ("nodes", {"capacity": {"cpu": "4"}, "conditions": [{"type": "Ready", "status": "True"}]}), ("deployments", {"replicas": 2, "observedGeneration": 1}), ("resourceclaims", {}),
        ("jobs", {"active": 1, "startTime": "2020-01-01T00:00:00Z"}), ("poddisruptionbudgets", {"disruptionsAllowed": 1, "currentHealthy": 1, "desiredHealthy": 0, "expectedPods": 1}), ("namespaces", {"phase": "Active"}),
    ):
        at, item = path_of(plural) + "/status", sample(plural, labels={"a": "b"}, annotations={"c": "d"}) | {"status": status}
        yield case(f"status/put/{plural}", create(plural), request("PUT", at, item), get(path_of(plural)))
        yield case(f"status/merge/{plural}", create(plural), request("PATCH", at, {"status": status, "metadata": {"labels": {"a": "b"}}}, MERGE))
        yield case(f"status/by-create/{plural}", create(plural, sample(plural) | {"status": status}))
    at, pod = path_of("pods"), create("pods")
    condition = {"status": {"conditions": [{"type": "b", "status": "True"}]}}
    yield case("status/conditions", pod, *(request("PATCH", f"{at}/status", condition | {"status": {"conditions": [{"type": name, "status": "True"}]}}, STRATEGIC) for name in "ab"))
    yield case("status/elsewhere", create("configmaps"), get(path_of("configmaps") + "/status"), request("PUT", f"{at}/status", sample("pods") | condition), request("DELETE", f"{at}/status"))
    scale: Object = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": NAME}, "spec": {"replicas": 4}}
    there, scale_at = create("deployments"), path_of("deployments") + "/scale"
    for name, body in {"four": scale, "zero": scale | {"spec": {"replicas": 0}}, "negative": scale | {"spec": {"replicas": -1}}, "old-version": scale | {"metadata": {"name": NAME, "resourceVersion": "1"}}}.items():
        yield case(f"scale/put/{name}", there, request("PUT", scale_at, body), get(scale_at), get(path_of("deployments")))
    yield case("scale/patch", there, request("PATCH", scale_at, {"spec": {"replicas": 4}}, MERGE), get(scale_at))
    binding: Object = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": NAME}, "target": {"kind": "Node", "name": "node-1"}}
    bind = request("POST", f"{at}/binding", binding)
    yield case("binding/once", pod, bind, get(at), bind)
    yield case("binding/absent", bind, pod, request("POST", f"{at}/binding", binding | {"target": {}}), request("POST", f"{at}/binding", binding | {"metadata": {"name": "b"}}))
    eviction: Object = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": NAME, "namespace": "{{ns}}"}}
    evict = request("POST", f"{at}/eviction", eviction)
    yield case("eviction/absent", evict, pod, evict, get(at))
    yield case("eviction/bound", pod, bind, request("POST", f"{at}/eviction?dryRun=All", eviction), evict, get(at))
    yield case("eviction/grace", pod, bind, request("POST", f"{at}/eviction", eviction | {"deleteOptions": {"gracePeriodSeconds": 5}}), get(at))
    ready = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    yield case("eviction/budget", create("poddisruptionbudgets"), create("pods", sample("pods", labels={"app": "web"})), bind, request("PATCH", f"{at}/status", ready, MERGE), evict)
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAME}, "spec": {"finalizers": []}}
    final = path_of("namespaces") + "/finalize"
    yield case("finalize", request("PUT", final, space), create("namespaces"), delete("namespaces"), request("PUT", final, space), get(path_of("namespaces")))
