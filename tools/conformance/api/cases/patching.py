"""Patches: JSON, merge and strategic; what they do, and how broken ones are refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tools.conformance.api.cases.writing import (
    APPLY,
    JSON,
    JSON_PATCH,
    MERGE,
    STRATEGIC,
    YAML,
    Object,
    case,
    collection,
    create,
    get,
    patch,
    path_of,
    request,
    sample,
)
from tools.conformance.area import Case

# A case of a table is one line.
# fmt: off
_LABELLED = sample("configmaps", labels={"app": "web", "tier": "1"}, finalizers=["x.example/a", "x.example/b"])

_MERGES: dict[str, Any] = {
    "label": {"metadata": {"labels": {"new": "1"}}},
    "remove-label": {"metadata": {"labels": {"app": None}}},
    "remove-labels": {"metadata": {"labels": None}},
    "remove-absent": {"metadata": {"labels": {"absent": None}}},
    "data": {"data": {"color": "blue", "more": "x"}},
    "remove-data": {"data": None},
    "empty": {},
    "list": [],
    "text": '"text"',
    "number": "1",
    "null": "null",
    "broken": "{",
    "nothing": "",
    "yaml": "data:\n  color: blue\n",
    "two-values": "{} {}",
    "name": {"metadata": {"name": "{{ns}}-b"}},
    "remove-name": {"metadata": {"name": None}},
    "namespace": {"metadata": {"namespace": "other"}},
    "uid": {"metadata": {"uid": "00000000-0000-4000-8000-000000000001"}},
    "version": {"metadata": {"resourceVersion": "{{0:metadata.resourceVersion}}"}, "data": {"a": "b"}},
    "old-version": {"metadata": {"resourceVersion": "1"}, "data": {"a": "b"}},
    "kind": {"kind": "Secret"},
    "api-version": {"apiVersion": "apps/v1"},
    "unknown-field": {"colour": "red"},
    "wrong-type": {"data": {"a": 1}},
    "wrong-shape": {"data": []},
    "invalid-key": {"data": {"a b": "c"}},
    "finalizers": {"metadata": {"finalizers": ["x.example/c"]}},
    "remove-metadata": {"metadata": None},
    "metadata-text": {"metadata": "a"},
    "twice": '{"data":{"a":"1","a":"2"}}',
}
"""Merge patches, sent as strategic ones too."""

_OPERATIONS: dict[str, Any] = {
    "add": [{"op": "add", "path": "/data/new", "value": "1"}],
    "add-null": [{"op": "add", "path": "/data/new", "value": None}],
    "add-no-value": [{"op": "add", "path": "/data/new"}],
    "add-no-parent": [{"op": "add", "path": "/binaryData/new", "value": "1"}],
    "add-end": [{"op": "add", "path": "/metadata/finalizers/-", "value": "x.example/c"}],
    "add-middle": [{"op": "add", "path": "/metadata/finalizers/1", "value": "x.example/c"}],
    "add-far": [{"op": "add", "path": "/metadata/finalizers/9", "value": "x.example/c"}],
    "add-negative": [{"op": "add", "path": "/metadata/finalizers/-1", "value": "x.example/c"}],
    "add-word": [{"op": "add", "path": "/metadata/finalizers/x", "value": "x.example/c"}],
    "add-root": [{"op": "add", "path": "", "value": {}}],
    "replace": [{"op": "replace", "path": "/data/color", "value": "blue"}],
    "replace-absent": [{"op": "replace", "path": "/data/absent", "value": "1"}],
    "replace-no-parent": [{"op": "replace", "path": "/absent/absent", "value": "1"}],
    "replace-far": [{"op": "replace", "path": "/metadata/finalizers/9", "value": "x.example/c"}],
    "remove": [{"op": "remove", "path": "/data/color"}],
    "remove-absent": [{"op": "remove", "path": "/data/absent"}],
    "remove-no-parent": [{"op": "remove", "path": "/absent/absent"}],
    "remove-far": [{"op": "remove", "path": "/metadata/finalizers/9"}],
    "remove-first": [{"op": "remove", "path": "/metadata/finalizers/0"}],
    "remove-root": [{"op": "remove", "path": ""}],
    "test": [{"op": "test", "path": "/data/color", "value": "red"}, {"op": "remove", "path": "/data/color"}],
    "test-fails": [{"op": "test", "path": "/data/color", "value": "blue"}],
    "test-absent": [{"op": "test", "path": "/data/absent", "value": "blue"}],
    "test-null": [{"op": "test", "path": "/data/absent", "value": None}],
    "test-map": [{"op": "test", "path": "/data", "value": {"size": "10", "color": "red"}}],
    "move": [{"op": "move", "from": "/data/color", "path": "/data/colour"}],
    "move-absent": [{"op": "move", "from": "/data/absent", "path": "/data/colour"}],
    "move-no-from": [{"op": "move", "path": "/data/colour"}],
    "copy": [{"op": "copy", "from": "/data/color", "path": "/data/colour"}],
    "copy-absent": [{"op": "copy", "from": "/data/absent", "path": "/data/colour"}],
    "escaped": [{"op": "add", "path": "/metadata/annotations", "value": {"a/b": "1"}}, {"op": "replace", "path": "/metadata/annotations/a~1b", "value": "2"}],
    "no-slash": [{"op": "add", "path": "data/new", "value": "1"}],
    "no-path": [{"op": "add", "value": "1"}],
    "no-op": [{"path": "/data/new", "value": "1"}],
    "unknown-op": [{"op": "set", "path": "/data/new", "value": "1"}],
    "upper-op": [{"op": "Add", "path": "/data/new", "value": "1"}],
    "op-number": [{"op": 1, "path": "/data/new", "value": "1"}],
    "path-number": [{"op": "add", "path": 1, "value": "1"}],
    "unknown-member": [{"op": "add", "path": "/data/new", "value": "1", "more": 1}],
    "empty": [],
    "object": {"op": "add", "path": "/data/new", "value": "1"},
    "texts": ["add"],
    "nulls": [None],
    "text": '"text"',
    "null": "null",
    "broken": "[",
    "nothing": "",
    "name": [{"op": "replace", "path": "/metadata/name", "value": "{{ns}}-b"}],
    "remove-name": [{"op": "remove", "path": "/metadata/name"}],
    "kind": [{"op": "replace", "path": "/kind", "value": "Secret"}],
    "remove-kind": [{"op": "remove", "path": "/kind"}],
    "version-tested": [{"op": "test", "path": "/metadata/resourceVersion", "value": "{{0:metadata.resourceVersion}}"}, {"op": "add", "path": "/data/new", "value": "1"}],
    "second-fails": [{"op": "add", "path": "/data/new", "value": "1"}, {"op": "remove", "path": "/data/absent"}],
    "wrong-type": [{"op": "add", "path": "/data/new", "value": 1}],
    "unknown-field": [{"op": "add", "path": "/colour", "value": 1}],
}
"""JSON patches of a ConfigMap."""


def _container(name: str, **fields: Any) -> Object:
    return {"name": name, **fields}


def _pods(**spec: Any) -> Object:
    return {"spec": {"template": {"spec": spec}}}


_THREE = sample("deployments")
_THREE["spec"]["template"]["spec"] |= {
    "containers": [_container(name, image=name) for name in ("a", "b", "c")],
    "tolerations": [{"key": "one", "operator": "Exists"}],
    "volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "emptyDir": {}}],
    "imagePullSecrets": [{"name": "p"}],
    "nodeSelector": {"disk": "ssd"},
}
_THREE["metadata"]["finalizers"] = ["x.example/a", "x.example/b", "x.example/c"]
_PORTS = [{"containerPort": 80, "protocol": "TCP"}, {"containerPort": 81}]

_STRATEGICS: dict[str, Any] = {
    "image": _pods(containers=[_container("b", image="new")]),
    "new-last": _pods(containers=[_container("d", image="d")]),
    "new-and-old": _pods(containers=[_container("d", image="d"), _container("a", image="new")]),
    "two-new": _pods(containers=[_container("e", image="e"), _container("d", image="d")]),
    "reversed": _pods(containers=[_container("c", image="1"), _container("a", image="2")]),
    "delete": _pods(containers=[{"name": "b", "$patch": "delete"}]),
    "delete-absent": _pods(containers=[{"name": "z", "$patch": "delete"}]),
    "delete-and-add": _pods(containers=[{"name": "a", "$patch": "delete"}, _container("d", image="d")]),
    "replace-list": _pods(containers=[_container("d", image="d"), {"$patch": "replace"}]),
    "replace-item": _pods(containers=[{"name": "a", "image": "x", "$patch": "replace"}]),
    "merge-item": _pods(containers=[{"name": "a", "image": "x", "$patch": "merge"}]),
    "unknown-directive": _pods(containers=[{"name": "a", "$patch": "change"}]),
    "directive-number": {"spec": {"$patch": 1}},
    "directive-unknown": {"spec": {"$patch": "change"}},
    "no-key": _pods(containers=[{"image": "x"}]),
    "key-number": _pods(containers=[{"name": 1}]),
    "text-in-list": _pods(containers=["a"]),
    "null-in-list": _pods(containers=[None]),
    "list-is-map": _pods(containers={"name": "a"}),
    "map-is-list": {"spec": {"template": []}},
    "empty-list": _pods(containers=[]),
    "null-list": _pods(containers=None),
    "order": _pods(**{"$setElementOrder/containers": [{"name": "c"}, {"name": "a"}, {"name": "b"}]}),
    "order-and-item": _pods(**{"$setElementOrder/containers": [{"name": "c"}, {"name": "a"}, {"name": "b"}], "containers": [_container("a", image="new")]}),
    "order-new": _pods(**{"$setElementOrder/containers": [{"name": "d"}, {"name": "a"}, {"name": "b"}, {"name": "c"}], "containers": [_container("d", image="d")]}),
    "order-some": _pods(**{"$setElementOrder/containers": [{"name": "c"}, {"name": "a"}], "containers": [_container("a", image="new")]}),
    "order-unknown": _pods(**{"$setElementOrder/containers": [{"name": "z"}, {"name": "a"}]}),
    "order-lacks-item": _pods(**{"$setElementOrder/containers": [{"name": "a"}, {"name": "b"}], "containers": [_container("c", image="new")]}),
    "order-of-texts": _pods(**{"$setElementOrder/containers": ["a"]}),
    "order-is-map": _pods(**{"$setElementOrder/containers": {}}),
    "order-and-delete": _pods(**{"$setElementOrder/containers": [{"name": "c"}, {"name": "a"}], "containers": [{"name": "b", "$patch": "delete"}]}),
    "order-of-finalizers": {"metadata": {"$setElementOrder/finalizers": ["x.example/c", "x.example/a", "x.example/b"]}},
    "order-and-new-finalizer": {"metadata": {"$setElementOrder/finalizers": ["x.example/d", "x.example/c", "x.example/a", "x.example/b"], "finalizers": ["x.example/d"]}},
    "finalizers": {"metadata": {"finalizers": ["x.example/d"]}},
    "finalizers-twice": {"metadata": {"finalizers": ["x.example/a"]}},
    "delete-finalizer": {"metadata": {"$deleteFromPrimitiveList/finalizers": ["x.example/b"]}},
    "delete-absent-finalizer": {"metadata": {"$deleteFromPrimitiveList/finalizers": ["x.example/z"]}},
    "delete-no-list": {"metadata": {"$deleteFromPrimitiveList/finalizers": "x.example/b"}},
    "delete-from-absent": {"metadata": {"$deleteFromPrimitiveList/absent": ["x"]}},
    "move-finalizer": {"metadata": {"$deleteFromPrimitiveList/finalizers": ["x.example/b"], "finalizers": ["x.example/d"]}},
    "retain": {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}},
    "retain-lacks": {"spec": {"strategy": {"$retainKeys": ["rollingUpdate"], "type": "Recreate"}}},
    "retain-text": {"spec": {"strategy": {"$retainKeys": "type", "type": "Recreate"}}},
    "without-retain": {"spec": {"strategy": {"type": "Recreate"}}},
    "volume-source": _pods(volumes=[{"name": "v", "hostPath": {"path": "/x"}}]),
    "volume-source-retained": _pods(volumes=[{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}]),
    "volumes-and-new": _pods(volumes=[{"name": "x", "emptyDir": {}}, {"name": "w", "emptyDir": {"medium": "Memory"}}]),
    "tolerations": _pods(tolerations=[{"key": "two", "operator": "Exists"}]),
    "env": _pods(containers=[_container("a", env=[{"name": "A", "value": "1"}, {"name": "B", "value": "2"}])]),
    "ports": _pods(containers=[_container("a", ports=_PORTS)]),
    "pull-secrets": _pods(imagePullSecrets=[{"name": "q"}, {"name": "p"}]),
    "replace-map": {"spec": {"template": {"spec": {"nodeSelector": {"$patch": "replace", "zone": "1"}}}}},
    "delete-map": {"spec": {"template": {"spec": {"nodeSelector": {"$patch": "delete"}}}}},
    "delete-strategy": {"spec": {"strategy": {"$patch": "delete"}}},
    "null-strategy": {"spec": {"strategy": None}},
    "template-labels": {"spec": {"template": {"metadata": {"labels": {"tier": "1"}}}}},
    "replicas": {"spec": {"replicas": 4}},
    "replicas-null": {"spec": {"replicas": None}},
    "replicas-text": {"spec": {"replicas": "4"}},
    "unknown-field": {"spec": {"size": 4}},
    "unknown-map": {"spec": {"size": {"a": {"b": 1}}}},
    "unknown-list": {"spec": {"size": [{"a": 1}]}},
    "delete-all": {"$patch": "delete"},
    "replace-all": {"$patch": "replace", "metadata": {"name": "{{ns}}-a"}},
    "owners": {"metadata": {"ownerReferences": [{"apiVersion": "example.com/v1", "kind": "Thing", "name": "a", "uid": "u-1"}]}},
    "owner-without-uid": {"metadata": {"ownerReferences": [{"apiVersion": "example.com/v1", "kind": "Thing", "name": "a"}]}},
    "owner-delete": {"metadata": {"ownerReferences": [{"uid": "u-1", "$patch": "delete"}]}},
}
"""Strategic merge patches of a Deployment with three containers."""

_TYPES = {
    "none": "",
    "json": JSON,
    "yaml": YAML,
    "text": "text/plain",
    "charset": MERGE + "; charset=utf-8",
    "upper": MERGE.upper(),
    "parameter": MERGE + ";a=b",
    "broken": "merge",
    "empty-parameter": MERGE + ";",
    "two": f"{MERGE}, {STRATEGIC}",
    "cbor-apply": "application/apply-patch+cbor",
    "apply": APPLY,
}
_QUERIES = {
    "dry": "dryRun=All",
    "dry-wrong": "dryRun=x",
    "strict": "fieldValidation=Strict",
    "ignore": "fieldValidation=Ignore",
    "validation-wrong": "fieldValidation=x",
    "force": "force=true",
    "force-wrong": "force=x",
    "manager": "fieldManager=me",
    "manager-too-long": "fieldManager=" + "m" * 129,
}


def patching_cases() -> Iterator[Case]:
    """Cases of PATCH but for those of server-side apply."""
    for name, body in _MERGES.items():
        for word, kind in (("merge", MERGE), ("strategic", STRATEGIC)):
            yield case(f"patch/{word}/{name}", create("configmaps", _LABELLED), patch("configmaps", body, kind), get(path_of("configmaps")))
    for name, body in _OPERATIONS.items():
        yield case(f"patch/json/{name}", create("configmaps", _LABELLED), patch("configmaps", body, JSON_PATCH), get(path_of("configmaps")))
    for name, body in _STRATEGICS.items():
        yield case(f"patch/lists/{name}", create("deployments", _THREE), patch("deployments", body, STRATEGIC))
    for name, kind in _TYPES.items():
        yield case(f"patch/type/{name}", create("configmaps"), patch("configmaps", {"data": {"a": "1"}}, kind))
    for name, query in _QUERIES.items():
        body = {"data": {"color": "blue"}, "colour": 1}
        yield case(f"patch/query/{name}", create("configmaps"), patch("configmaps", body, MERGE, f"?{query}"), get(path_of("configmaps")))
    yield from _elsewhere()


def _elsewhere() -> Iterator[Case]:
    for word, kind, body in (
        ("merge", MERGE, {"data": {"a": "1"}}),
        ("strategic", STRATEGIC, {"data": {"a": "1"}}),
        ("json", JSON_PATCH, [{"op": "add", "path": "/data", "value": {}}]),
    ):
        yield case(f"patch/absent/{word}", patch("configmaps", body, kind))
        yield case(f"patch/collection/{word}", request("PATCH", collection("configmaps"), body, kind))
        yield case(
            f"patch/same-keeps-the-version/{word}",
            create("configmaps", sample("configmaps") | {"data": {"a": "1"}}),
            patch("configmaps", {} if word != "json" else [], kind),
            patch("configmaps", {"data": {"a": "1"}} if word != "json" else [], kind),
        )
    yield case(
        "patch/json/too-many",
        create("configmaps"),
        patch("configmaps", [["[", 1], ['{"op":"test","path":"/kind","value":"ConfigMap"},', 10_000], ['{"op":"remove","path":"/data"}]', 1]], JSON_PATCH),
    )
    invalid = {"spec": {"replicas": -1}}
    yield case("patch/invalid/merge", create("deployments"), patch("deployments", invalid, MERGE))
    yield case("patch/invalid/strategic", create("deployments"), patch("deployments", invalid, STRATEGIC))
    grown = [{"op": "add", "path": "/spec/template/spec/containers/-", "value": {"name": "b", "image": "b"}}]
    yield case("patch/json/container", create("deployments"), patch("deployments", grown, JSON_PATCH))
    yield case("patch/merge/containers", create("deployments", _THREE), patch("deployments", _pods(containers=[_container("z", image="z")])))
    for plural in ("nodes", "pods", "resourceclaims", "leases", "secrets"):
        for word, kind in (("merge", MERGE), ("strategic", STRATEGIC)):
            yield case(
                f"patch/kinds/{plural}/{word}",
                create(plural),
                patch(plural, {"metadata": {"labels": {"a": "b"}}}, kind),
                patch(plural, {"metadata": {"labels": None}, "status": {"phase": "x"}}, kind),
            )
