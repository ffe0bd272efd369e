"""Deletes: propagation, preconditions, graces, finalizers, dry runs, and whole collections."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tools.conformance.api.cases.writing import (
    MERGE,
    NAME,
    SAMPLES,
    Object,
    case,
    collection,
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
_UID = "00000000-0000-4000-8000-000000000001"
_HEAD: Object = {"kind": "DeleteOptions", "apiVersion": "v1"}
_KEPT = ["x.example/keeps"]

_OPTIONS: dict[str, Any] = {
    "foreground": _HEAD | {"propagationPolicy": "Foreground"},
    "background": _HEAD | {"propagationPolicy": "Background"},
    "orphan": _HEAD | {"propagationPolicy": "Orphan"},
    "policy-wrong": _HEAD | {"propagationPolicy": "foreground"},
    "policy-empty": _HEAD | {"propagationPolicy": ""},
    "policy-null": _HEAD | {"propagationPolicy": None},
    "orphaned": _HEAD | {"orphanDependents": True},
    "not-orphaned": _HEAD | {"orphanDependents": False},
    "both": _HEAD | {"orphanDependents": True, "propagationPolicy": "Orphan"},
    "uid": _HEAD | {"preconditions": {"uid": "{{0:metadata.uid}}"}},
    "other-uid": _HEAD | {"preconditions": {"uid": _UID}},
    "empty-uid": _HEAD | {"preconditions": {"uid": ""}},
    "version": _HEAD | {"preconditions": {"resourceVersion": "{{0:metadata.resourceVersion}}"}},
    "old-version": _HEAD | {"preconditions": {"resourceVersion": "1"}},
    "both-preconditions": _HEAD | {"preconditions": {"uid": _UID, "resourceVersion": "1"}},
    "grace": _HEAD | {"gracePeriodSeconds": 5},
    "grace-zero": _HEAD | {"gracePeriodSeconds": 0},
    "grace-negative": _HEAD | {"gracePeriodSeconds": -1},
    "grace-text": _HEAD | {"gracePeriodSeconds": "5"},
    "dry": _HEAD | {"dryRun": ["All"]},
    "dry-wrong": _HEAD | {"dryRun": ["Some"]},
    "dry-text": _HEAD | {"dryRun": "All"},
    "dry-empty": _HEAD | {"dryRun": []},
    "no-head": {"propagationPolicy": "Foreground"},
    "kind-only": {"kind": "DeleteOptions", "gracePeriodSeconds": 0},
    "other-kind": sample("configmaps"),
    "other-version": _HEAD | {"apiVersion": "meta.k8s.io/v1"},
    "own-group": _HEAD | {"apiVersion": "apps/v1"},
    "unknown-field": _HEAD | {"colour": 1},
    "empty": {},
    "null": "null",
    "list": "[]",
    "text": '"text"',
    "broken": "{",
    "ignore-unreadable": _HEAD | {"ignoreStoreReadErrorWithClusterBreakingPotential": True},
}
_QUERIES = {
    "foreground": "propagationPolicy=Foreground",
    "background": "propagationPolicy=Background",
    "orphan": "propagationPolicy=Orphan",
    "policy-wrong": "propagationPolicy=x",
    "policy-empty": "propagationPolicy=",
    "orphaned": "orphanDependents=true",
    "orphaned-wrong": "orphanDependents=x",
    "grace": "gracePeriodSeconds=5",
    "grace-text": "gracePeriodSeconds=x",
    "grace-empty": "gracePeriodSeconds=",
    "grace-negative": "gracePeriodSeconds=-1",
    "grace-huge": "gracePeriodSeconds=99999999999999999999",
    "dry": "dryRun=All",
    "dry-wrong": "dryRun=x",
    "uid": "uid=x",
    "precondition": "preconditions.uid=x",
}


def deleting_cases() -> Iterator[Case]:
    """Cases of DELETE."""
    for name, options in _OPTIONS.items():
        yield case(f"delete/options/{name}", create("configmaps"), delete("configmaps", options), get(path_of("configmaps")))
        kept = sample("configmaps", finalizers=_KEPT)
        yield case(f"delete/kept/{name}", create("configmaps", kept), delete("configmaps", options), get(path_of("configmaps")), delete("configmaps", options))
    for name, query in _QUERIES.items():
        yield case(f"delete/query/{name}", create("configmaps"), delete("configmaps", query=f"?{query}"), get(path_of("configmaps")))
    yield case("delete/query-and-body", create("configmaps"), delete("configmaps", _OPTIONS["dry"], "?propagationPolicy=x"), get(path_of("configmaps")))
    for plural in SAMPLES:
        kept = sample(plural, finalizers=_KEPT)
        yield case(f"delete/finalizer/{plural}", create(plural, kept), delete(plural), patch(plural, {"metadata": {"finalizers": None}}, MERGE), get(path_of(plural)))
        yield case(f"delete/absent/{plural}", delete(plural))
    for policy in ("Foreground", "Background", "Orphan"):
        for plural in ("deployments", "jobs", "pods", "resourceclaims"):
            yield case(f"delete/policy/{policy}/{plural}", create(plural), delete(plural, _HEAD | {"propagationPolicy": policy}), get(path_of(plural)))
    yield from _pods()
    yield from _kept()
    yield from _collections()


def _pods() -> Iterator[Case]:
    bound = sample("pods")
    bound["spec"] |= {"nodeName": "node-1"}
    at = get(path_of("pods"))
    for name, options in _OPTIONS.items():
        if name.startswith(("grace", "dry", "uid", "foreground", "orphan")):
            yield case(f"delete/bound-pod/{name}", create("pods", bound), delete("pods", options), at)
    own = {**bound, "spec": {**bound["spec"], "terminationGracePeriodSeconds": 7}}
    yield case("delete/pod/own-grace", create("pods", own), delete("pods"), at)
    yield case("delete/pod/twice", create("pods", bound), delete("pods"), delete("pods"), at)
    shorter = delete("pods", _HEAD | {"gracePeriodSeconds": 2})
    yield case("delete/pod/shorter", create("pods", bound), delete("pods"), shorter, at)
    longer = delete("pods", _HEAD | {"gracePeriodSeconds": 90})
    yield case("delete/pod/longer", create("pods", bound), delete("pods"), longer, at)
    yield case("delete/pod/then-now", create("pods", bound), delete("pods"), delete("pods", _OPTIONS["grace-zero"]), at)
    ended = request("PATCH", path_of("pods") + "/status", {"status": {"phase": "Succeeded"}}, MERGE)
    yield case("delete/pod/ended", create("pods", bound), ended, delete("pods"), at)
    kept = sample("pods", finalizers=_KEPT)
    kept["spec"] |= {"nodeName": "node-1"}
    yield case("delete/pod/kept", create("pods", kept), delete("pods"), delete("pods", _OPTIONS["grace-zero"]), at)


def _kept() -> Iterator[Case]:
    """What may still be done with an object that finalizers keep."""
    kept = create("configmaps", sample("configmaps", finalizers=_KEPT))
    gone = delete("configmaps")
    yield case("delete/then/update", kept, gone, put("configmaps", sample("configmaps", finalizers=_KEPT, labels={"a": "b"})))
    yield case("delete/then/add-finalizer", kept, gone, patch("configmaps", {"metadata": {"finalizers": [*_KEPT, "x.example/more"]}}))
    yield case("delete/then/create", kept, gone, create("configmaps"))
    yield case("delete/then/undo", kept, gone, patch("configmaps", {"metadata": {"deletionTimestamp": None}}))
    yield case("delete/then/remove-finalizer", kept, gone, put("configmaps", sample("configmaps")), get(path_of("configmaps")))
    dry = patch("configmaps", {"metadata": {"finalizers": []}}, MERGE, "?dryRun=All")
    yield case("delete/then/dry", kept, gone, dry, get(path_of("configmaps")))
    for name in ("default", "kube-system", "kube-public", "kube-node-lease"):
        yield case(f"delete/namespace/{name}", delete("namespaces", _OPTIONS["dry"], name=name))
    yield case(
        "delete/namespace/full",
        create("configmaps"),
        request("DELETE", "/api/v1/namespaces/{{ns}}"),
        create("configmaps", sample("configmaps", "{{ns}}-b")),
        get("/api/v1/namespaces/{{ns}}"),
        request("DELETE", "/api/v1/namespaces/{{ns}}"),
    )


def _collections() -> Iterator[Case]:
    makes = [create("configmaps", sample("configmaps", f"{{{{ns}}}}-{name}", labels={"n": name})) for name in "abc"]
    at = collection("configmaps")
    left = get(at + "?labelSelector=n")
    for name, query in {
        "all": "",
        "labels": "?labelSelector=n+in+(a,b)",
        "labels-wrong": "?labelSelector=n+in+a",
        "fields": "?fieldSelector=metadata.name={{ns}}-a",
        "fields-wrong": "?fieldSelector=data=x",
        "none": "?labelSelector=n=z",
        "limit": "?limit=2",
        "dry": "?dryRun=All",
        "version": "?resourceVersion=1",
        "version-match": "?resourceVersionMatch=Exact",
        "version-zero": "?resourceVersion=0",
        "grace": "?gracePeriodSeconds=x",
        "timeout": "?timeoutSeconds=x",
    }.items():
        yield case(f"deletecollection/{name}", *makes, request("DELETE", at + query), left)
    for name in ("foreground", "orphan", "dry", "policy-wrong", "other-uid", "broken", "other-kind"):
        yield case(f"deletecollection/options/{name}", *makes, request("DELETE", at, _OPTIONS[name]), left)
    kept = create("configmaps", sample("configmaps", "{{ns}}-d", labels={"n": "d"}, finalizers=_KEPT))
    yield case("deletecollection/kept", *makes, kept, request("DELETE", at), left)
    for plural in ("namespaces", "nodes", "services", "pods"):
        everywhere = collection(plural).replace("/namespaces/{{ns}}", "")
        yield case(
            f"deletecollection/kinds/{plural}",
            create(plural, sample(plural, NAME, labels={"n": "{{ns}}"})),
            request("DELETE", f"{collection(plural)}?labelSelector=n={{{{ns}}}}"),
            get(path_of(plural)),
        )
        yield case(f"deletecollection/everywhere/{plural}", request("DELETE", everywhere + "?labelSelector=n={{ns}}"))
