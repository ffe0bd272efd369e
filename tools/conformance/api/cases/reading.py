"""Lists and watches: selectors, pages, versions, bookmarks, initial events, ends."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

from tools.conformance.api.cases.writing import (
    MERGE,
    case,
    collection,
    create,
    delete,
    get,
    patch,
    put,
    request,
    sample,
)
from tools.conformance.api.connection import Step
from tools.conformance.area import Case

# A case of a table is one line.
# fmt: off
_LABEL_SELECTORS = (
    "app",
    "!app",
    "app=web",
    "app==web",
    "app!=web",
    "app in (web)",
    "app in (web,db)",
    "app notin (web)",
    "app = web",
    "app  ==  web",
    "app!= web",
    " app ",
    "app in(web)",
    "app in ( web , db )",
    "app notin(web)",
    "app in (web),tier=1",
    "app=web,tier!=1",
    "app=web, tier",
    "pg>0",
    "pg>10",
    "pg<100",
    "pg > 5",
    "pg<5,app",
    "pg>x",
    "pg>",
    "pg>1.5",
    "pg>9223372036854775808",
    "a=b=c",
    "!!a",
    "pg=1,",
    ",app",
    "app,,tier",
    ",",
    "app=",
    "app!=",
    "=web",
    "==",
    "!",
    "!app=web",
    "app in",
    "app in ()",
    "app in (,)",
    "app in (web",
    "app in web)",
    "app in (web))",
    "app notin ()",
    "app web",
    "app (web)",
    "(app)",
    "app in (web) tier",
    "in",
    "in=1",
    "notin in (web)",
    "in in (in)",
    "x.example/app=web",
    "x.example/",
    "/app",
    "a/b/c",
    "x_y.Example/app",
    "-app",
    "app=-web",
    "app=we b",
    'app="web"',
    "app='web'",
    "app=web;tier",
    "app=é",
    "é",
    "app in (é)",
    "app\t=\nweb",
    "app=" + "a" * 64,
    "a" * 64,
    "a" * 300 + "/b",
    "app>=1",
    "app<=1",
    "app=>1",
    "app!web",
    "app !in (web)",
    "app NOTIN (web)",
    "app In (web)",
    "app=web,app=db",
    "app,!app",
    "app=web,app in (web)",
    "app===web",
    "a.b=c",
    "app in (web,)",
    "app in (,web)",
    "app notin (web,,db)",
    "metadata.name=a",
    "app=web&tier",
    "0",
    "0=0",
    "A=B",
    "app=in",
    "app in (in,notin)",
    "app=web)",
    "app=(web",
    "!app,!tier",
    "! app",
    "!(app)",
    "app!=web,!pg",
)
_FIELD_SELECTORS = {
    "configmaps": (
        "metadata.name={{ns}}-a",
        "metadata.name!={{ns}}-a",
        "metadata.name=={{ns}}-a",
        "metadata.namespace={{ns}}",
        "metadata.name={{ns}}-a,metadata.namespace={{ns}}",
        "metadata.name",
        "metadata.name=",
        "=a",
        ",",
        "data=a",
        "metadata.labels=a",
        "metadata.name in (a)",
        "metadata.name={{ns}}-a,",
        "metadata.name = {{ns}}-a",
        "metadata.uid=a",
        "name=a",
        "metadata.name=a=b",
        "metadata.name=a\\,b",
        "metadata.name=a\\b",
        "metadata.name>a",
        "!metadata.name",
        "metadata.name!==a",
        "metadata.name={{ns}}-a,metadata.name={{ns}}-b",
    ),
    "pods": (
        "spec.nodeName=",
        "spec.nodeName=a",
        "status.phase=Pending",
        "status.phase!=Pending",
        "spec.restartPolicy=Always",
        "spec.schedulerName=default-scheduler",
        "spec.serviceAccountName=default",
        "spec.hostNetwork=false",
        "status.podIP=",
        "status.podIPs=",
        "status.nominatedNodeName=",
        "spec.containers=a",
        "status.podIP=1,spec.x=1",
    ),
    "nodes": ("spec.unschedulable=false,metadata.name={{ns}}-a", "spec.unschedulable=true,metadata.name={{ns}}-a", "status.phase=a"),
    "events": ("involvedObject.kind=Pod", "type=Normal", "reason=Seen", "source=", "involvedObject.uid=", "reportingComponent=", "message=a"),
    "secrets": ("type=Opaque", "type=other", "data=a"),
    "namespaces": ("status.phase=Active,metadata.name={{ns}}-a", "status.phase=Terminating,metadata.name={{ns}}-a", "spec.x=a", "name={{ns}}-a"),
    "jobs": ("status.successful=0", "status.successful=1"),
    "replicasets": ("status.replicas=0", "status.replicas=1"),
    "resourceslices": ("spec.driver=gpu.example.com,metadata.name={{ns}}-a", "spec.nodeName=x", "spec.pool.name=x", "spec.allNodes=true"),
    "deployments": ("metadata.name={{ns}}-a", "status.replicas=0"),
}
_LISTS = {
    "limit-text": "limit=x",
    "limit-zero": "limit=0",
    "limit-negative": "limit=-1",
    "limit-float": "limit=1.5",
    "limit-empty": "limit=",
    "limit-huge": "limit=99999999999999999999",
    "limit-exact": "limit=3",
    "limit-two": "limit=2",
    "limit-selected": "limit=1&labelSelector=n+in+(a,b)",
    "limit-field": "limit=1&fieldSelector=metadata.name!={{ns}}-a",
    "continue-wrong": "continue=x",
    "continue-empty": "continue=",
    "continue-other": "continue=e30",
    "continue-and-version": "continue=e30&resourceVersion=1",
    "version-empty": "resourceVersion=",
    "version-own": "resourceVersion={{2:metadata.resourceVersion}}",
    "version-text": "resourceVersion=x",
    "version-negative": "resourceVersion=-1",
    "version-future": "resourceVersion=999999999",
    "exact": "resourceVersion={{1:metadata.resourceVersion}}&resourceVersionMatch=Exact",
    "exact-limited": "resourceVersion={{1:metadata.resourceVersion}}&resourceVersionMatch=Exact&limit=1",
    "exact-zero": "resourceVersion=0&resourceVersionMatch=Exact",
    "exact-none": "resourceVersionMatch=Exact",
    "exact-future": "resourceVersion=999999999&resourceVersionMatch=Exact",
    "exact-old": "resourceVersion=1&resourceVersionMatch=Exact",
    "newer": "resourceVersion={{1:metadata.resourceVersion}}&resourceVersionMatch=NotOlderThan",
    "newer-zero": "resourceVersion=0&resourceVersionMatch=NotOlderThan",
    "newer-limited": "resourceVersion={{1:metadata.resourceVersion}}&resourceVersionMatch=NotOlderThan&limit=1",
    "newer-future": "resourceVersion=999999999&resourceVersionMatch=NotOlderThan",
    "newer-none": "resourceVersionMatch=NotOlderThan",
    "match-wrong": "resourceVersion=1&resourceVersionMatch=x",
    "match-empty": "resourceVersion=0&resourceVersionMatch=",
    "match-and-continue": "resourceVersion=1&resourceVersionMatch=Exact&continue=e30",
    "timeout": "timeoutSeconds=5",
    "timeout-text": "timeoutSeconds=x",
    "timeout-zero": "timeoutSeconds=0",
    "initial": "sendInitialEvents=true",
    "initial-false": "sendInitialEvents=false",
    "initial-matched": "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=0",
    "initial-wrong": "sendInitialEvents=x",
    "bookmarks": "allowWatchBookmarks=true",
    "watch-false": "watch=false",
    "watch-zero": "watch=0",
    "watch-wrong": "watch=x&timeoutSeconds=1",
    "watch-upper": "watch=FALSE",
    "pretty": "pretty=true",
    "several-labels": "labelSelector=n=a&labelSelector=n=b",
    "unknown": "colour=red",
    "both-selectors": "labelSelector=n=a&fieldSelector=metadata.name={{ns}}-b",
    "semicolon": "labelSelector=n=a;limit=1",
    "escape-wrong": "labelSelector=%zz",
    "shards": "shardSelector=x",
}
_WATCHES = {
    "version-text": "resourceVersion=x",
    "version-future": "resourceVersion=999999999&timeoutSeconds=1",
    "version-old": "resourceVersion=1&timeoutSeconds=1",
    "timeout-text": "timeoutSeconds=x",
    "limit": "limit=x",
    "labels-wrong": "labelSelector=a+in",
    "fields-wrong": "fieldSelector=data=a",
    "match-alone": "resourceVersionMatch=NotOlderThan",
    "match-version": "resourceVersion=1&resourceVersionMatch=NotOlderThan",
    "match-exact": "resourceVersion=1&resourceVersionMatch=Exact",
    "initial-alone": "sendInitialEvents=true",
    "initial-false-alone": "sendInitialEvents=false",
    "initial-exact": "sendInitialEvents=true&resourceVersionMatch=Exact",
    "initial-wrong-match": "sendInitialEvents=true&resourceVersionMatch=x",
    "initial-wrong": "sendInitialEvents=x&resourceVersionMatch=NotOlderThan&timeoutSeconds=1",
    "initial-no-bookmarks": "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=1",
    "continue": "continue=x",
}
"""Queries of watches that end by themselves."""


def reading_cases() -> Iterator[Case]:
    """Cases of GET on collections."""
    yield from _selectors()
    yield from _pages()
    yield from _watches()


def _made() -> list[Step]:
    """Three ConfigMaps with a label each."""
    return [create("configmaps", sample("configmaps", f"{{{{ns}}}}-{name}", labels={"n": name})) for name in "abc"]


def _selectors() -> Iterator[Case]:
    labels: list[dict[str, str]] = [{"app": "web", "tier": "1", "pg": "7"}, {"app": "db", "in": "1"}, {"x.example/app": "web", "pg": "x"}, {}]
    makes = [create("configmaps", sample("configmaps", f"{{{{ns}}}}-{index}", **({"labels": one} if one else {}))) for index, one in enumerate(labels)]
    at = collection("configmaps")
    for number, text in enumerate(_LABEL_SELECTORS):
        yield case(f"list/labels/{number:03}", *makes, get(f"{at}?labelSelector={quote(text)}"))
    for plural, texts in _FIELD_SELECTORS.items():
        for number, text in enumerate(texts):
            yield case(f"list/fields/{plural}/{number:02}", create(plural), get(f"{collection(plural)}?fieldSelector={quote(text, safe='{}')}"))


def _pages() -> Iterator[Case]:
    at = collection("configmaps")
    for name, query in _LISTS.items():
        yield case(f"list/query/{name}", *_made(), get(f"{at}?{query}"))
    pages = [get(f"{at}?limit=1&fieldSelector=metadata.name!=kube-root-ca.crt")]
    yield case(
        "list/pages/one-by-one", *_made(), *pages, get(f"{at}?limit=1&continue={{{{3:metadata.continue}}}}"), get(f"{at}?limit=1&continue={{{{4:metadata.continue}}}}")
    )
    first = get(f"{at}?limit=2")
    rest = get(f"{at}?continue={{{{3:metadata.continue}}}}")
    yield case("list/pages/rest", *_made(), first, rest)
    yield case("list/pages/count", *_made(), get(f"{at}?limit=1"))
    yield case("list/pages/changed-between", *_made(), first, delete("configmaps", name="{{ns}}-c"), rest)
    yield case("list/pages/added-between", *_made(), first, create("configmaps", sample("configmaps", "{{ns}}-d")), rest)
    yield case("list/pages/with-version", *_made(), first, get(f"{at}?continue={{{{3:metadata.continue}}}}&resourceVersion={{{{0:metadata.resourceVersion}}}}"))
    yield case("list/pages/with-version-zero", *_made(), first, get(f"{at}?continue={{{{3:metadata.continue}}}}&resourceVersion=0"))
    yield case("list/pages/with-match", *_made(), first, get(f"{at}?continue={{{{3:metadata.continue}}}}&resourceVersionMatch=Exact"))
    yield case(
        "list/exact/before-delete",
        *_made(),
        delete("configmaps", name="{{ns}}-a"),
        get(f"{at}?resourceVersion={{{{2:metadata.resourceVersion}}}}&resourceVersionMatch=Exact"),
    )
    yield case("list/empty", get(at), get(collection("pods")), get(collection("deployments")))
    yield case("list/absent-namespace", get("/api/v1/namespaces/{{ns}}-absent/configmaps"))
    yield case("list/everywhere", *_made(), get("/api/v1/configmaps?labelSelector=n&fieldSelector=metadata.namespace={{ns}}"))
    yield case("list/absent-kind", get("/api/v1/namespaces/{{ns}}/things"), get("/apis/example.com/v1/things"))
    for name, query in {"future": "resourceVersion=999999999", "text": "resourceVersion=x", "empty": "resourceVersion="}.items():
        yield case(f"get/query/{name}", create("configmaps"), get(f"{at}/{{{{ns}}}}-a?{query}"))
    yield case("get/absent", get(f"{at}/absent"), get("/apis/apps/v1/namespaces/{{ns}}/deployments/absent"))
    yield case("get/watch", create("configmaps"), request("GET", f"{at}/{{{{ns}}}}-a?watch=true&timeoutSeconds=1", take=1))
    for plural in ("configmaps", "pods", "nodes", "deployments", "resourceslices"):
        at_kind = collection(plural)
        yield case(f"list/kinds/{plural}", create(plural, sample(plural, labels={"n": "{{ns}}"})), get(f"{at_kind}?labelSelector=n={{{{ns}}}}"))


def _watches() -> Iterator[Case]:
    at = collection("configmaps")

    def watch(query: str, take: int) -> Step:
        return request("GET", f"{at}?watch=true&{query}", take=take)

    for name, query in _WATCHES.items():
        yield case(f"watch/query/{name}", *_made(), request("GET", f"{at}?watch=true&{query}"))
    since = "resourceVersion={{0:metadata.resourceVersion}}"
    changes = [
        patch("configmaps", {"metadata": {"labels": {"n": "z"}}}, MERGE, name="{{ns}}-b"),
        delete("configmaps", name="{{ns}}-c"),
        put("configmaps", sample("configmaps", "{{ns}}-a", labels={"n": "a"}) | {"data": {"a": "1"}}, name="{{ns}}-a"),
    ]
    yield case("watch/since", *_made(), *changes, watch(since, 5))
    yield case("watch/labels", *_made(), *changes, watch(f"{since}&labelSelector=n+in+(b,c)", 4))
    yield case("watch/labels-into", *_made(), *changes, watch(f"{since}&labelSelector=n=z", 1))
    yield case("watch/fields", *_made(), *changes, watch(f"{since}&fieldSelector=metadata.name={{{{ns}}}}-c", 2))
    yield case("watch/none", *_made(), watch("fieldSelector=metadata.name!=x", 3))
    yield case("watch/zero", *_made(), watch("resourceVersion=0", 3))
    yield case("watch/one", *_made(), watch("watch=1&labelSelector=n=b", 1))
    initial = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
    yield case("watch/initial", *_made(), watch(f"{initial}&allowWatchBookmarks=true", 4))
    yield case("watch/initial-zero", *_made(), watch(f"{initial}&allowWatchBookmarks=true&resourceVersion=0", 4))
    yield case("watch/initial-own", *_made(), watch(f"{initial}&allowWatchBookmarks=true&resourceVersion={{{{1:metadata.resourceVersion}}}}", 4))
    yield case("watch/initial-labels", *_made(), watch(f"{initial}&allowWatchBookmarks=true&labelSelector=n=b", 2))
    yield case("watch/initial-nothing", watch(f"{initial}&allowWatchBookmarks=true", 1))
    yield case("watch/initial-false", *_made(), watch(f"sendInitialEvents=false&resourceVersionMatch=NotOlderThan&{since}", 2))
    yield case("watch/path", *_made(), request("GET", f"/api/v1/watch/namespaces/{{{{ns}}}}/configmaps?{since}", take=2))
    yield case("watch/path-one", *_made(), request("GET", f"/api/v1/watch/namespaces/{{{{ns}}}}/configmaps/{{{{ns}}}}-b?{since}", take=1))
    kept = [create("configmaps", sample("configmaps", finalizers=["x.example/keeps"])), delete("configmaps"), patch("configmaps", {"metadata": {"finalizers": None}})]
    yield case("watch/finalizer", *kept, watch(since, 2))
    for word, accept in (
        ("table", "application/json;as=Table;v=v1;g=meta.k8s.io"),
        ("metadata", "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"),
        ("metadata-list", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"),
        ("yaml", "application/yaml"),
        ("stream", "application/json;stream=watch"),
        ("unknown", "text/plain"),
    ):
        yield case(f"watch/accept/{word}", *_made(), *changes, request("GET", f"{at}?watch=true&{since}&timeoutSeconds=2", take=3, headers={"Accept": accept}))
        yield case(
            f"watch/accept-initial/{word}",
            *_made(),
            request("GET", f"{at}?watch=true&{initial}&allowWatchBookmarks=true&timeoutSeconds=2", take=4, headers={"Accept": accept}),
        )
    for plural in ("pods", "nodes", "deployments", "events", "leases"):
        yield case(
            f"watch/kinds/{plural}",
            create(plural),
            patch(plural, {"metadata": {"labels": {"a": "b"}}}),
            delete(plural, {"gracePeriodSeconds": 0}),
            request("GET", f"{collection(plural)}?watch=true&{since}&fieldSelector=metadata.name={{{{ns}}}}-a", take=2),
        )
