"""Lists, watches, deletes, and what users may do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from tools.conformance.api.cases.requests import (
    MERGE,
    NAME,
    SAMPLES,
    UID,
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
from tools.conformance.api.playing import Step
from tools.conformance.area import Case

# A case of a table is one line.
# fmt: off
_FIELD_SELECTORS = {
    "configmaps": ("metadata.name={{ns}}-a", "metadata.name!={{ns}}-a", "metadata.namespace={{ns}}", "data=a", "metadata.name in (a)"),
    "pods": ("spec.nodeName=", "status.phase!=Pending", "spec.hostNetwork=false", "spec.containers=a"),
    "nodes": ("spec.unschedulable=false,metadata.name={{ns}}-a",),
    "events": ("involvedObject.kind=Pod", "involvedObject.uid=", "reason=Seen,type=Normal", "message=a"),
    "jobs": ("status.successful=0",),
    "resourceslices": ("spec.driver=gpu.example.com,metadata.name={{ns}}-a", "spec.nodeName=x", "spec.allNodes=true"),
}
_LISTS = {
    "limit-text": "limit=x",
    "limit-two": "limit=2",
    "limit-selected": "limit=1&labelSelector=n+in+(a,b)",
    "labels-wrong": "labelSelector=n+in+a",
    "continue-wrong": "continue=x",
    "version-text": "resourceVersion=x",
    "version-future": "resourceVersion=999999999",
    "watch-false": "watch=false",
}
_WATCHES = {
    "version-text": "resourceVersion=x",
    "version-old": "resourceVersion=1&timeoutSeconds=1",
    "labels-wrong": "labelSelector=a+in",
    "initial-no-bookmarks": "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=1",
}
"""Queries of watches that end by themselves."""

_HEAD: Object = {"kind": "DeleteOptions", "apiVersion": "v1"}
_KEPT = ["x.example/keeps"]
_OPTIONS: dict[str, Any] = {
    "foreground": _HEAD | {"propagationPolicy": "Foreground"},
    "orphan": _HEAD | {"propagationPolicy": "Orphan"},
    "policy-wrong": _HEAD | {"propagationPolicy": "foreground"},
    "uid": _HEAD | {"preconditions": {"uid": "{{0:metadata.uid}}"}},
    "other-uid": _HEAD | {"preconditions": {"uid": UID}},
    "old-version": _HEAD | {"preconditions": {"resourceVersion": "1"}},
    "grace": _HEAD | {"gracePeriodSeconds": 5},
    "grace-zero": _HEAD | {"gracePeriodSeconds": 0},
    "dry": _HEAD | {"dryRun": ["All"]},
    "other-kind": sample("configmaps"),
}
_ACCEPTS = {
    "table": "application/json;as=Table;v=v1;g=meta.k8s.io",
    "metadata": "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    "metadata-list": "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    "several": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
    "unknown": "text/plain",
}

USER, ROLE = "{{ns}}-anna", "{{ns}}-role"
_RBAC = "rbac.authorization.k8s.io"
_ACCESS = "/apis/authorization.k8s.io/v1"
_READ_PODS: Object = {"apiGroups": [""], "resources": ["pods", "pods/log"], "verbs": ["get", "list"]}
_PATHS = (
    *("/api/v1/namespaces/{{ns}}/pods", "/api/v1/namespaces/{{ns}}/pods/a", "/api/v1/namespaces/{{ns}}/pods/a/log", "/api/v1/pods"),
    *("/api/v1/namespaces/{{ns}}", "/api/v1/nodes/a/status", "/apis/none.example.com/v1/things", "/metrics"),
)
_ASKED: dict[str, Object] = {
    "allowed": {"resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "{{ns}}"}},
    "subresource": {"resourceAttributes": {"verb": "get", "resource": "pods", "subresource": "log", "namespace": "{{ns}}"}},
    "verb": {"resourceAttributes": {"verb": "delete", "resource": "pods", "namespace": "{{ns}}"}},
    "everywhere": {"resourceAttributes": {"verb": "get", "resource": "pods"}},
    "group": {"resourceAttributes": {"verb": "get", "group": "apps", "resource": "pods", "namespace": "{{ns}}"}},
    "path": {"nonResourceAttributes": {"verb": "get", "path": "/openapi/v3"}},
    "other-path": {"nonResourceAttributes": {"verb": "get", "path": "/metrics"}},
    "neither": {},
}


def reading_cases() -> Iterator[Case]:
    """All cases of this module."""
    yield from _lists()
    yield from _watches()
    yield from _deletes()
    yield from _rights()


def _made() -> list[Step]:
    """Three ConfigMaps with a label each."""
    return [create("configmaps", sample("configmaps", f"{{{{ns}}}}-{name}", labels={"n": name})) for name in "abc"]


def _lists() -> Iterator[Case]:
    at = collection("configmaps")
    for plural, texts in _FIELD_SELECTORS.items():
        for text in texts:
            yield case(f"list/fields/{plural}/{text.replace('{{ns}}', 'ns')}", create(plural), get(f"{collection(plural)}?fieldSelector={quote(text, safe='{}')}"))
    for name, query in _LISTS.items():
        yield case(f"list/query/{name}", *_made(), get(f"{at}?{query}"))
    first, rest = get(f"{at}?limit=2"), get(f"{at}?continue={{{{3:metadata.continue}}}}")
    yield case("list/pages/rest", *_made(), first, rest)
    yield case("list/pages/changed-between", *_made(), first, delete("configmaps", name="{{ns}}-c"), rest)
    yield case("list/empty", get(at), get("/api/v1/namespaces/{{ns}}-absent/configmaps"), get("/api/v1/namespaces/{{ns}}/things"))
    yield case("get/absent", get(f"{at}/absent"), get("/apis/apps/v1/namespaces/{{ns}}/deployments/absent"), request("POST", at.replace("{{ns}}", "{{ns}}-absent"), sample("configmaps")))
    for word, accept in _ACCEPTS.items():
        yield case(f"accept/{word}", create("configmaps"), get(path_of("configmaps"), headers={"Accept": accept}), get(at, headers={"Accept": accept}))


def _watches() -> Iterator[Case]:
    at, since = collection("configmaps"), "resourceVersion={{0:metadata.resourceVersion}}"

    def watch(query: str, take: int, **more: Any) -> Step:
        return request("GET", f"{at}?watch=true&{query}", take=take, **more)

    for name, query in _WATCHES.items():
        yield case(f"watch/query/{name}", *_made(), request("GET", f"{at}?watch=true&{query}"))
    changes = [
        patch("configmaps", {"metadata": {"labels": {"n": "z"}}}, MERGE, name="{{ns}}-b"),
        delete("configmaps", name="{{ns}}-c"),
        put("configmaps", sample("configmaps", "{{ns}}-a", labels={"n": "a"}) | {"data": {"a": "1"}}, name="{{ns}}-a"),
    ]
    yield case("watch/since", *_made(), *changes, watch(since, 5))
    yield case("watch/labels", *_made(), *changes, watch(f"{since}&labelSelector=n+in+(b,c)", 4))
    yield case("watch/fields", *_made(), *changes, watch(f"{since}&fieldSelector=metadata.name={{{{ns}}}}-c", 2))
    yield case("watch/zero", *_made(), watch("resourceVersion=0", 3))
    initial = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    yield case("watch/initial", *_made(), watch(initial, 4))
    kept = [create("configmaps", sample("configmaps", finalizers=_KEPT)), delete("configmaps"), patch("configmaps", {"metadata": {"finalizers": None}})]
    yield case("watch/finalizer", *kept, watch(since, 2))
    for word in ("table", "metadata"):
        yield case(f"watch/accept/{word}", *_made(), watch(initial, 4, headers={"Accept": _ACCEPTS[word]}))


def _deletes() -> Iterator[Case]:
    kept, at = sample("configmaps", finalizers=_KEPT), path_of("configmaps")
    for name, options in _OPTIONS.items():
        yield case(f"delete/options/{name}", create("configmaps"), delete("configmaps", options), get(at))
        yield case(f"delete/kept/{name}", create("configmaps", kept), delete("configmaps", options), get(at), delete("configmaps", options))
    yield case("delete/query", create("configmaps"), delete("configmaps", query="?propagationPolicy=Foreground&gracePeriodSeconds=5"), get(at))
    for plural in SAMPLES:
        yield case(f"delete/finalizer/{plural}", create(plural, sample(plural, finalizers=_KEPT)), delete(plural), patch(plural, {"metadata": {"finalizers": None}}, MERGE), get(path_of(plural)))
    for policy in ("Foreground", "Background", "Orphan"):
        for plural in ("deployments", "jobs", "pods"):
            yield case(f"delete/policy/{policy}/{plural}", create(plural), delete(plural, _HEAD | {"propagationPolicy": policy}), get(path_of(plural)))
    gone = delete("configmaps")
    yield case("delete/then", create("configmaps", kept), gone, patch("configmaps", {"metadata": {"finalizers": [*_KEPT, "x.example/more"]}}), create("configmaps"), put("configmaps", sample("configmaps")), get(at))
    yield case("delete/namespace", delete("namespaces", _OPTIONS["dry"], name="kube-system"), create("configmaps"), request("DELETE", "/api/v1/namespaces/{{ns}}"), create("configmaps", sample("configmaps", "{{ns}}-b")))
    bound = sample("pods")
    bound["spec"] |= {"nodeName": "node-1"}
    pod, shorter = get(path_of("pods")), delete("pods", _HEAD | {"gracePeriodSeconds": 2})
    for name in ("foreground", "grace", "grace-zero", "dry"):
        yield case(f"delete/pod/{name}", create("pods", bound), delete("pods", _OPTIONS[name]), pod)
    yield case("delete/pod/shorter", create("pods", bound), delete("pods"), shorter, pod, delete("pods"), delete("pods", _OPTIONS["grace-zero"]), pod)
    ended = request("PATCH", path_of("pods") + "/status", {"status": {"phase": "Succeeded"}}, MERGE)
    yield case("delete/pod/ended", create("pods", bound), ended, delete("pods"), pod)
    makes, left = _made(), get(collection("configmaps") + "?labelSelector=n")
    for name, query in {"all": "", "labels": "?labelSelector=n+in+(a,b)", "dry": "?dryRun=All"}.items():
        yield case(f"deletecollection/{name}", *makes, request("DELETE", collection("configmaps") + query), left)


def _rights() -> Iterator[Case]:
    given = _given(_READ_PODS)
    for path in _PATHS:
        yield case(f"rights/none{path.replace('{{ns}}', 'ns')}", get(path, user=USER))
    yield case("rights/role", *given, *(get(path, user=USER) for path in _PATHS[:4]))
    yield case("rights/star", *_given({"apiGroups": ["*"], "resources": ["*/log"], "verbs": ["*"]}), *(get(path, user=USER) for path in _PATHS[:3]))
    for name, spec in _ASKED.items():
        own = request("POST", f"{_ACCESS}/selfsubjectaccessreviews", _review("SelfSubjectAccessReview", spec), user=USER)
        other = request("POST", f"{_ACCESS}/subjectaccessreviews", _review("SubjectAccessReview", spec | {"user": USER}))
        yield case(f"rights/review/{name}", *given, own, other)
    yield case("rights/of-nobody", request("POST", f"{_ACCESS}/subjectaccessreviews", _review("SubjectAccessReview", _ASKED["path"])))


def _given(rule: Object) -> tuple[Step, ...]:
    """The user has this rule in the namespace of the case."""
    asked = {"verb": rule["verbs"][0], "group": rule["apiGroups"][0], "resource": rule["resources"][0], "namespace": "{{ns}}"}
    # kube-apiserver reads bindings through watches of its own, so it takes a moment until they count.
    counts = _review("SubjectAccessReview", {"user": USER, "resourceAttributes": asked})
    role = {"roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": ROLE}, "subjects": [{"apiGroup": _RBAC, "kind": "User", "name": USER}]}
    return (
        request("POST", f"/apis/{_RBAC}/v1/clusterroles", {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": ROLE}, "rules": [rule]}),
        request("POST", f"/apis/{_RBAC}/v1/namespaces/{{{{ns}}}}/rolebindings", {"apiVersion": f"{_RBAC}/v1", "kind": "RoleBinding", "metadata": {"name": NAME}, **role}),
        request("POST", f"{_ACCESS}/subjectaccessreviews", counts, until="status.allowed", only=["kind"]),
    )


def _review(kind: str, spec: Object) -> Object:
    return {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
