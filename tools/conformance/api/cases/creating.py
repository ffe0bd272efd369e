"""Creates and updates: what is answered, what is refused, dry runs, and how strictly fields are validated."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tools.conformance.api.cases.writing import (
    NAME,
    SAMPLES,
    Object,
    case,
    collection,
    create,
    delete,
    get,
    path_of,
    put,
    request,
    sample,
)
from tools.conformance.area import Case

# A case of a table is one line.
# fmt: off
WIDELY_USED = ("configmaps", "secrets", "pods", "nodes", "deployments", "leases", "resourceclaims", "deviceclasses")
_UID = "00000000-0000-4000-8000-000000000001"

_QUERIES = {
    "dry": "dryRun=All",
    "dry-empty": "dryRun=",
    "dry-wrong": "dryRun=Some",
    "dry-twice": "dryRun=All&dryRun=All",
    "dry-two-values": "dryRun=All&dryRun=Some",
    "strict": "fieldValidation=Strict",
    "warn": "fieldValidation=Warn",
    "ignore": "fieldValidation=Ignore",
    "validation-wrong": "fieldValidation=strict",
    "both-wrong": "fieldValidation=x&dryRun=y",
    "manager": "fieldManager=me",
    "manager-too-long": "fieldManager=" + "m" * 129,
    "manager-unprintable": "fieldManager=a%01b",
    "pretty": "pretty=true",
    "unknown-parameter": "unknown=1",
    "force": "force=true",
}
"""Queries of writes."""

_METADATA: dict[str, Any] = {
    "no-metadata": None,
    "no-name": {},
    "null-name": {"name": None},
    "empty-name": {"name": ""},
    "upper-name": {"name": "{{ns}}-A"},
    "dot-name": {"name": ".."},
    "slash-name": {"name": "a/b"},
    "long-name": {"name": "{{ns}}" + "a" * 250},
    "generated": {"generateName": "{{ns}}-"},
    "generated-long": {"generateName": "{{ns}}" + "b" * 60},
    "generated-upper": {"generateName": "{{ns}}-G-"},
    "name-and-generated": {"name": NAME, "generateName": "{{ns}}-g-"},
    "version": {"name": NAME, "resourceVersion": "1"},
    "version-text": {"name": NAME, "resourceVersion": "x"},
    "uid": {"name": NAME, "uid": _UID},
    "own-times": {
        "name": NAME,
        "creationTimestamp": "2001-01-01T00:00:00Z",
        "deletionTimestamp": "2001-01-01T00:00:00Z",
        "deletionGracePeriodSeconds": 5,
        "generation": 7,
        "selfLink": "/x",
    },
    "labels": {"name": NAME, "labels": {"a": "b", "x.example/y": ""}, "annotations": {"n": "any thing"}},
    "label-key": {"name": NAME, "labels": {"a b": "c"}},
    "label-value": {"name": NAME, "labels": {"a": "-"}},
    "label-number": {"name": NAME, "labels": {"a": 1}},
    "label-null": {"name": NAME, "labels": {"a": None}},
    "labels-list": {"name": NAME, "labels": []},
    "annotation-key": {"name": NAME, "annotations": {"a/b/c": "d"}},
    "annotation-true": {"name": NAME, "annotations": {"a": True}},
    "finalizer": {"name": NAME, "finalizers": ["a.example/b"]},
    "finalizer-plain": {"name": NAME, "finalizers": ["b"]},
    "finalizer-wrong": {"name": NAME, "finalizers": ["a b"]},
    "finalizers-text": {"name": NAME, "finalizers": "a"},
    "owner": {"name": NAME, "ownerReferences": [{"apiVersion": "example.com/v1", "kind": "Thing", "name": "a", "uid": _UID}]},
    "owner-empty": {"name": NAME, "ownerReferences": [{}]},
    "owner-two-controllers": {
        "name": NAME,
        "ownerReferences": [{"apiVersion": "example.com/v1", "kind": "Thing", "name": name, "uid": _UID, "controller": True} for name in "ab"],
    },
    "owner-event": {"name": NAME, "ownerReferences": [{"apiVersion": "v1", "kind": "Event", "name": "a", "uid": _UID}]},
    "namespace-same": {"name": NAME, "namespace": "{{ns}}"},
    "namespace-other": {"name": NAME, "namespace": "other"},
    "managed-wrong": {"name": NAME, "managedFields": [{"manager": "a", "operation": "Guess"}]},
    "unknown-field": {"name": NAME, "colour": "red"},
    "list": [],
    "text": "a",
}
"""Metadata of new objects."""

_HEADS: dict[str, Object] = {
    "no-kind": {"kind": ""},
    "no-version": {"apiVersion": ""},
    "neither": {"kind": "", "apiVersion": ""},
    "other-kind": {"kind": "Secret"},
    "unknown-kind": {"kind": "Thing"},
    "list-kind": {"kind": "ConfigMapList"},
    "lower-kind": {"kind": "configmap"},
    "other-version": {"apiVersion": "v2"},
    "other-group": {"apiVersion": "apps/v1"},
    "three-parts": {"apiVersion": "a/b/c"},
    "kind-number": {"kind": 1},
    "version-list": {"apiVersion": []},
}
"""The heads of objects that are sent where a ConfigMap belongs."""


def creating_cases() -> Iterator[Case]:
    """Cases of POST and PUT."""
    for plural in SAMPLES:
        yield case(f"create/sample/{plural}", create(plural), get(path_of(plural)), create(plural), delete(plural))
    for plural in ("configmaps", "deployments"):
        for name, query in _QUERIES.items():
            unknown = {**sample(plural), "colour": "red"}
            yield case(f"create/query/{name}/{plural}", create(plural, unknown, f"?{query}"), get(path_of(plural)))
    for name, query in _QUERIES.items():
        item = sample("configmaps") | {"data": {"color": "blue"}, "size": 1}
        yield case(f"update/query/{name}", create("configmaps"), put("configmaps", item, f"?{query}"), get(path_of("configmaps")))
    for plural in ("configmaps", "pods", "deviceclasses"):
        for name, metadata in _METADATA.items():
            item = sample(plural)
            item["metadata"] = metadata
            yield case(f"create/metadata/{name}/{plural}", create(plural, item))
    for name, head in _HEADS.items():
        yield case(f"create/head/{name}", create("configmaps", sample("configmaps") | head), create("configmaps"), put("configmaps", sample("configmaps") | head))
    yield from _places()
    yield from _updates()
    yield from _repeated()


def _places() -> Iterator[Case]:
    """Objects that are sent to the wrong place."""
    for plural in ("configmaps", "leases"):
        absent = collection(plural).replace("{{ns}}", "{{ns}}-absent")
        yield case(f"create/absent-namespace/{plural}", request("POST", absent, sample(plural)))
        everywhere = collection(plural).replace("/namespaces/{{ns}}", "")
        yield case(f"create/no-namespace/{plural}", request("POST", everywhere, sample(plural)), request("POST", everywhere, sample(plural, namespace="{{ns}}")))
        yield case(f"create/named/{plural}", request("POST", path_of(plural), sample(plural)))
        yield case(f"update/collection/{plural}", request("PUT", collection(plural), sample(plural)))
        yield case(f"update/absent/{plural}", put(plural, sample(plural)), get(path_of(plural)))
        yield case(f"update/absent-uid/{plural}", put(plural, sample(plural, uid=_UID)))
        yield case(f"update/absent-version/{plural}", put(plural, sample(plural, resourceVersion="5")))
    for plural in ("nodes", "deviceclasses"):
        yield case(
            f"create/namespace-given/{plural}",
            create(plural, sample(plural, namespace="{{ns}}")),
            request("POST", f"/{collection(plural)[1:].replace('v1/', 'v1/namespaces/{{ns}}/')}", sample(plural)),
        )
    for body in ("", "null", "{}", "[]", '"text"', "1", "true"):
        yield case(f"create/body/{body or 'nothing'}", create("configmaps", body))
        yield case(f"update/body/{body or 'nothing'}", create("configmaps"), put("configmaps", body))


def _updates() -> Iterator[Case]:
    changes: dict[str, Object] = {
        "same": {},
        "uid": {"uid": "{{0:metadata.uid}}"},
        "other-uid": {"uid": _UID},
        "version": {"resourceVersion": "{{0:metadata.resourceVersion}}"},
        "old-version": {"resourceVersion": "1"},
        "text-version": {"resourceVersion": "x"},
        "zero-version": {"resourceVersion": "0"},
        "other-name": {"name": "{{ns}}-b"},
        "no-name": {"name": ""},
        "other-namespace": {"namespace": "other"},
        "labels": {"labels": {"a": "b"}},
        "generation": {"generation": 9},
        "creation": {"creationTimestamp": "2001-01-01T00:00:00Z"},
        "deletion": {"deletionTimestamp": "2001-01-01T00:00:00Z"},
        "finalizers": {"finalizers": ["a.example/b"]},
        "generate-name": {"generateName": "g-"},
        "no-managed": {"managedFields": []},
        "managed-empty": {"managedFields": [{}]},
    }
    for plural in WIDELY_USED:
        for name, metadata in changes.items():
            if plural in ("configmaps", "leases") or name in ("same", "uid", "old-version", "labels", "finalizers"):
                item = sample(plural, **({"name": NAME} | metadata))
                yield case(f"update/metadata/{name}/{plural}", create(plural), put(plural, item), get(path_of(plural)))
    contents: dict[str, tuple[str, Object]] = {
        "configmap-data": ("configmaps", {"data": {"new": "1"}}),
        "configmap-none": ("configmaps", {"data": None}),
        "configmap-both": ("configmaps", {"binaryData": {"color": "YQ=="}}),
        "configmap-key": ("configmaps", {"data": {"a b": "c"}}),
        "configmap-number": ("configmaps", {"data": {"a": 1}}),
        "configmap-immutable": ("configmaps", {"immutable": True}),
        "secret-type": ("secrets", {"type": "other"}),
        "secret-text": ("secrets", {"stringData": {"a": "b"}}),
        "secret-base64": ("secrets", {"data": {"a": "!"}}),
        "pod-image": ("pods", {"spec": {"containers": [{"name": "main", "image": "other"}]}}),
        "pod-name": ("pods", {"spec": {"containers": [{"name": "other", "image": "a"}]}}),
        "pod-status": ("pods", {"status": {"phase": "Running"}}),
        "node-status": ("nodes", {"status": {"capacity": {"cpu": "4"}}}),
        "node-taint": ("nodes", {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}),
        "deployment-replicas": ("deployments", {"spec": {**sample("deployments")["spec"], "replicas": 3}}),
        "deployment-selector": ("deployments", {"spec": {**sample("deployments")["spec"], "selector": {"matchLabels": {"app": "db"}}}}),
        "deployment-negative": ("deployments", {"spec": {**sample("deployments")["spec"], "replicas": -1}}),
        "deployment-text": ("deployments", {"spec": {**sample("deployments")["spec"], "replicas": "3"}}),
        "claim-spec": ("resourceclaims", {"spec": {"devices": {}}}),
        "class-selector": ("deviceclasses", {"spec": {"selectors": [{"cel": {"expression": "true"}}]}}),
        "class-broken": ("deviceclasses", {"spec": {"selectors": [{"cel": {"expression": "device."}}]}}),
        "lease-negative": ("leases", {"spec": {"leaseDurationSeconds": -1}}),
        "lease-time": ("leases", {"spec": {"renewTime": "2020-01-01T00:00:00.000000Z"}}),
        "lease-time-short": ("leases", {"spec": {"renewTime": "2020-01-01T00:00:00Z"}}),
    }
    for name, (plural, content) in contents.items():
        yield case(
            f"update/content/{name}", create(plural), put(plural, sample(plural, resourceVersion="{{0:metadata.resourceVersion}}") | content), get(path_of(plural))
        )
        yield case(f"create/content/{name}", create(plural, sample(plural) | content))


def _repeated() -> Iterator[Case]:
    """Writes that follow each other."""
    once = sample("configmaps", resourceVersion="{{0:metadata.resourceVersion}}")
    yield case("update/version-twice", create("configmaps"), put("configmaps", {**once, "data": {"a": "1"}}), put("configmaps", {**once, "data": {"a": "2"}}))
    yield case("update/same-keeps-the-version", create("configmaps"), put("configmaps", once), put("configmaps", once))
    frozen = sample("configmaps") | {"immutable": True}
    yield case(
        "update/immutable",
        create("configmaps", frozen),
        put("configmaps", frozen | {"data": {"other": "1"}}),
        put("configmaps", sample("configmaps")),
        put("configmaps", sample("configmaps", labels={"a": "b"}) | {"immutable": True}),
        delete("configmaps"),
    )
    yield case("create/again-after-delete", create("configmaps"), delete("configmaps"), create("configmaps"), get(path_of("configmaps")))
    invalid = sample("configmaps") | {"data": {"a b": ""}}
    yield case("create/invalid-and-there", create("configmaps"), create("configmaps", invalid))
    yield case("create/dry-and-there", create("configmaps"), create("configmaps", query="?dryRun=All"))
