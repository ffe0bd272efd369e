"""How requests and answers are written: media types, broken bodies, paths, methods, and paths without objects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tools.conformance.api.cases.writing import (
    JSON,
    NAME,
    SAMPLES,
    YAML,
    accepting,
    case,
    collection,
    create,
    get,
    path_of,
    put,
    request,
    sample,
)
from tools.conformance.area import Case

# A case of a table is one line.
# fmt: off
_META = "v=v1;g=meta.k8s.io"
_PROTOBUF = "application/vnd.kubernetes.protobuf"
_ACCEPTS = {
    "json": JSON,
    "yaml": YAML,
    "protobuf": _PROTOBUF,
    "any": "*/*",
    "any-application": "application/*",
    "empty": "",
    "text": "text/plain",
    "html": "text/html",
    "xml-or-any": "text/html,application/xml;q=0.9,*/*;q=0.8",
    "cbor": "application/cbor",
    "json-charset": "application/json; charset=utf-8",
    "json-upper": "APPLICATION/JSON",
    "json-pretty": "application/json;pretty=1",
    "protobuf-or-json": f"{_PROTOBUF},application/json",
    "unknown-or-yaml": "text/plain,application/yaml",
    "quality": "application/yaml;q=0.1,application/json;q=0.9",
    "quality-zero": "application/json;q=0",
    "broken": "application",
    "table": f"application/json;as=Table;{_META}",
    "table-yaml": f"application/yaml;as=Table;{_META}",
    "table-or-json": f"application/json;as=Table;{_META},application/json",
    "table-of-kubectl": f"application/json;as=Table;{_META},application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
    "table-beta": "application/json;as=Table;v=v1beta1;g=meta.k8s.io",
    "table-alpha": "application/json;as=Table;v=v1alpha1;g=meta.k8s.io",
    "table-no-version": "application/json;as=Table;g=meta.k8s.io",
    "table-no-group": "application/json;as=Table;v=v1",
    "table-other-group": "application/json;as=Table;v=v1;g=example.com",
    "metadata": f"application/json;as=PartialObjectMetadata;{_META}",
    "metadata-list": f"application/json;as=PartialObjectMetadataList;{_META}",
    "metadata-beta": "application/json;as=PartialObjectMetadata;v=v1beta1;g=meta.k8s.io",
    "metadata-or-json": f"application/json;as=PartialObjectMetadata;{_META},application/json",
    "metadata-yaml": f"application/yaml;as=PartialObjectMetadata;{_META}",
    "unknown-form": f"application/json;as=Thing;{_META}",
    "unknown-form-or-json": f"application/json;as=Thing;{_META},application/json",
    "status": f"application/json;as=Status;{_META}",
    "unknown-parameter": "application/json;colour=red",
    "stream": "application/json;stream=watch",
    "merge-patch": "application/merge-patch+json",
}
_TYPES = {
    "json": JSON,
    "yaml": YAML,
    "none": "",
    "charset": "application/json; charset=utf-8",
    "upper": "Application/JSON",
    "text": "text/plain",
    "form": "application/x-www-form-urlencoded",
    "any": "*/*",
    "broken": "application",
    "very-broken": ";;",
    "parameter": "application/json;a",
    "two": "application/json, application/yaml",
    "merge-patch": "application/merge-patch+json",
    "protobuf": _PROTOBUF,
    "cbor": "application/cbor",
    "text-yaml": "text/yaml",
    "stream": "application/json;stream=watch",
}
_HEAD = f'{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{NAME}"}}'
_BODIES: dict[str, Any] = {
    "cut": _HEAD,
    "cut-text": _HEAD + ',"data":{"a":"b',
    "trailing-comma": _HEAD + ",}",
    "trailing-text": _HEAD + "} x",
    "trailing-object": _HEAD + "} {}",
    "trailing-bracket": _HEAD + "}}",
    "trailing-newlines": _HEAD + "}\n\n",
    "leading-spaces": "  \n\t" + _HEAD + "}",
    "byte-order-mark": "\ufeff" + _HEAD + "}",
    "single-quotes": "{'apiVersion':'v1'}",
    "comment": "// a\n" + _HEAD + "}",
    "words": "not json",
    "nan": _HEAD + ',"data":{"a":NaN}}',
    "zero-byte": _HEAD + ',"data":{"a":"\x00"}}',
    "escaped-zero": _HEAD + ',"data":{"a":"\\u0000"}}',
    "newline-in-text": _HEAD + ',"data":{"a":"\n"}}',
    "wrong-escape": _HEAD + ',"data":{"a":"\\x"}}',
    "wrong-unicode-escape": _HEAD + ',"data":{"a":"\\u12"}}',
    "invalid-utf8": _HEAD + ',"data":{"a":"\udcff\udcfe"}}',
    "invalid-utf8-in-key": _HEAD + ',"data":{"a\udcff":"b"}}',
    "lone-surrogate": _HEAD + ',"data":{"a":"\\ud800"}}',
    "lone-low-surrogate": _HEAD + ',"data":{"a":"\\udc00x"}}',
    "surrogate-pair": _HEAD + ',"data":{"a":"\\ud83d\\ude00"}}',
    "surrogate-in-label": f'{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{NAME}","annotations":{{"a":"\\ud800"}}}}}}',
    "twice": _HEAD + ',"data":{"a":"1"},"data":{"b":"2"}}',
    "key-twice": _HEAD + ',"data":{"a":"1","a":"2"}}',
    "name-twice": '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"{{ns}}-b","name":"{{ns}}-a"}}',
    "kind-twice": _HEAD + ',"kind":"ConfigMap"}',
    "upper-field": _HEAD + ',"Data":{"a":"1"}}',
    "upper-metadata": '{"apiVersion":"v1","kind":"ConfigMap","Metadata":{"name":"{{ns}}-a"}}',
    "unknown": _HEAD + ',"colour":"red","nested":{"a":1}}',
    "unknown-metadata": '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"{{ns}}-a","colour":1}}',
    "number-for-text": _HEAD + ',"data":{"a":1}}',
    "big-number": _HEAD + ',"data":{"a":123456789012345678901234567890}}',
    "float": _HEAD + ',"data":{"a":1.5}}',
    "true-for-map": _HEAD + ',"data":true}',
    "text-for-map": _HEAD + ',"data":"a"}',
    "list-for-map": _HEAD + ',"data":["a"]}',
    "null-for-map": _HEAD + ',"data":null}',
    "null-in-map": _HEAD + ',"data":{"a":null}}',
    "text-for-flag": _HEAD + ',"immutable":"true"}',
    "number-for-flag": _HEAD + ',"immutable":1}',
    "base64-wrong": _HEAD + ',"binaryData":{"a":"!"}}',
    "base64-number": _HEAD + ',"binaryData":{"a":1}}',
    "base64-unpadded": _HEAD + ',"binaryData":{"a":"YQ"}}',
    "base64-spaces": _HEAD + ',"binaryData":{"a":"YQ=\\n="}}',
    "too-large": [[_HEAD + ',"data":{"a":"', 1], ["x", 3_200_000], ['"}}', 1]],
    "nearly-too-large": [[_HEAD + ',"data":{"a":"', 1], ["x", 1_100_000], ['"}}', 1]],
    "deep": [[_HEAD + ',"data":', 1], ['{"a":', 9_000], ["1", 1], ["}", 9_001]],
    "too-deep": [[_HEAD + ',"data":', 1], ["[", 10_100], ["]", 10_100], ["}", 1]],
    "too-deep-unknown": [[_HEAD + ',"colour":', 1], ['{"a":', 10_100], ["1", 1], ["}", 10_101]],
}
_YAMLS: dict[str, Any] = {
    "plain": f"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {NAME}\ndata:\n  a: b\n",
    "number": f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {NAME}}}\ndata: {{a: 1}}\n",
    "yes": f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {NAME}}}\ndata: {{a: yes}}\n",
    "date": f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {NAME}}}\ndata: {{a: 2020-01-01}}\n",
    "octal": f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {NAME}}}\ndata: {{a: 010}}\n",
    "anchor": f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {NAME}}}\ndata: {{a: &x text, b: *x}}\n",
    "merge": f"x: &x {{a: b}}\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {NAME}}}\ndata: {{<<: *x, c: d}}\n",
    "twice": f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {NAME}}}\ndata: {{a: b}}\ndata: {{c: d}}\n",
    "two-documents": f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {NAME}}}\n---\nkind: Other\n",
    "marker": f"---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {NAME}}}\n",
    "tab": "apiVersion: v1\n\tkind: ConfigMap\n",
    "broken": "a: [",
    "text": "words",
    "nothing": "",
    "list": "- a\n",
    "json": _HEAD + "}",
    "unknown": f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {NAME}}}\ncolour: red\n",
    "number-key": f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {NAME}}}\ndata: {{1: a}}\n",
    "true-key": f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {NAME}}}\ndata: {{true: a}}\n",
    "binary": f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {NAME}}}\nbinaryData: {{a: !!binary YQ==}}\n",
    "block": f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {NAME}}}\ndata:\n  a: |\n    one\n    two\n",
}
_PATHS = (
    "/",
    "/api",
    "/api/",
    "/api/v1",
    "/api/v1/",
    "/api/v2",
    "/apis/apps",
    "/apis/apps/",
    "/apis/apps/v1beta1",
    "/apis/unknown.example.com",
    "/apis/unknown.example.com/v1",
    "/unknown",
    "/version",
    "/version/",
    "/version?pretty=true",
    "/healthz",
    "/healthz/",
    "/healthz/ping",
    "/healthz/unknown",
    "/livez",
    "/livez/ping",
    "/readyz",
    "/readyz/",
    "/readyz/ping",
    "/readyz?exclude=etcd",
    "/readyz?exclude=unknown",
    "/openapi",
    "/openapi/v1",
    "/api/v1/unknown",
    "/api/v1/namespaces/{{ns}}/unknown",
    "/api/v1/configmaps/a",
    "/api/v1/configmaps/a/b",
    "/api/v1/namespaces/{{ns}}/nodes",
    "/api/v1/namespaces/{{ns}}/nodes/a",
    "/apis/v1/configmaps",
    "/api/v1//configmaps",
    "//api/v1/configmaps",
    "/api/v1/namespaces/{{ns}}//configmaps",
    "/api/v1/namespaces/{{ns}}/configmaps/",
    "/api/v1/namespaces/{{ns}}/",
    "/api/v1/namespaces/{{ns}}",
    "/api/v1/namespaces/{{ns}}/configmaps/a/status",
    "/api/v1/namespaces/{{ns}}/configmaps/a/b/c/d",
    "/api/v1/namespaces/{{ns}}/configmaps/a%2Fb",
    "/api/v1/namespaces/{{ns}}/configmaps/a%20b",
    "/api/v1/namespaces/{{ns}}/configmaps/%zz",
    "/api/v1/../v1/nodes/a",
    "/api/v1/./nodes/a",
    "/api/v1/Nodes",
    "/API/v1/nodes",
    "/apis/apps/v1/namespaces/{{ns}}/deployments/a/unknown",
    "/apis/apps/v1/configmaps",
    "/apis/apps/deployments",
    "/apis/events.k8s.io/v1beta1",
    "/apis/batch/v1beta1/jobs",
    "/api/v1/watch",
    "/api/v1/watch/unknown",
    "/api/v1/proxy/nodes/a",
    "/api/v1/namespaces/{{ns}}/pods/a/log",
    "/api/v1/namespaces/{{ns}}/pods/a/exec",
    "/api/v1/namespaces/{{ns}}/pods/a/portforward",
    "/api/v1/nodes/a/proxy/x",
    "/api/v1/bindings",
    "/api/v1/componentstatuses/unknown",
    "/favicon.ico",
    "/index.html",
    "/logs",
    "/swagger.json",
    "/openapi/v3/unknown",
    "/openapi/v3/api/v2",
    "/metrics/unknown",
    "/.well-known/unknown",
    "/debug/pprof",
    "/apis//v1",
    "/apis/apps/v1/namespaces/{{ns}}",
)
_METHODS = ("HEAD", "OPTIONS", "TRACE", "CONNECT", "PUT", "POST", "PATCH", "DELETE", "FETCH", "get")


def speaking_cases() -> Iterator[Case]:
    """Cases of media types, bodies, paths and methods."""
    for name, accept in _ACCEPTS.items():
        yield case(f"accept/get/{name}", create("configmaps"), accepting(path_of("configmaps"), accept))
        yield case(f"accept/list/{name}", create("configmaps", sample("configmaps", labels={"n": "a"})), accepting(collection("configmaps") + "?labelSelector=n", accept))
        yield case(f"accept/create/{name}", request("POST", collection("configmaps"), sample("configmaps"), headers={"Accept": accept}), get(path_of("configmaps")))
        yield case(f"accept/absent/{name}", accepting(path_of("configmaps"), accept))
        if "as=" in accept:
            yield case(f"accept/delete/{name}", create("configmaps"), request("DELETE", path_of("configmaps"), headers={"Accept": accept}), get(path_of("configmaps")))
            yield case(f"accept/update/{name}", create("configmaps"), put("configmaps", sample("configmaps"), headers={"Accept": accept}))
    table = _ACCEPTS["table"]
    for plural in SAMPLES:
        yield case(f"accept/table/{plural}", create(plural), accepting(path_of(plural), table))
    for include in ("None", "Metadata", "Object", "Everything", ""):
        yield case(f"accept/include/{include or 'empty'}", create("configmaps"), accepting(f"{path_of('configmaps')}?includeObject={include}", table))
    yield case("accept/empty-table", accepting(collection("pods"), table), accepting(collection("configmaps") + "?limit=1", table))
    for name, kind in _TYPES.items():
        yield case(f"type/create/{name}", create("configmaps", sample("configmaps"), headers={"Content-Type": kind} if kind else {}, kind=""), get(path_of("configmaps")))
        yield case(f"type/update/{name}", create("configmaps"), request("PUT", path_of("configmaps"), sample("configmaps"), kind))
        yield case(f"type/delete/{name}", create("configmaps"), request("DELETE", path_of("configmaps"), {"kind": "DeleteOptions", "apiVersion": "v1"}, kind))
    for name, body in _BODIES.items():
        yield case(
            f"body/{name}",
            create("configmaps", body),
            get(path_of("configmaps")) | {"only": ["kind", "data", "binaryData", "code"]} if "large" in name else get(path_of("configmaps")),
        )
        if name not in ("too-large", "nearly-too-large"):
            yield case(f"body-strict/{name}", create("configmaps", body, "?fieldValidation=Strict"))
            yield case(f"body-update/{name}", create("configmaps"), request("PUT", path_of("configmaps"), body))
    for name, body in _YAMLS.items():
        yield case(f"yaml/{name}", create("configmaps", body, kind=YAML), get(path_of("configmaps")))
        yield case(f"yaml-strict/{name}", create("configmaps", body, "?fieldValidation=Strict", kind=YAML))
    yield from _paths()


def _paths() -> Iterator[Case]:
    only = ["kind", "apiVersion", "groupVersion", "name", "message", "reason", "code", "status", "details"]
    for path in _PATHS:
        yield case(f"path{path}", get(path, only=[*only, "major"]))
    for path in ("/apis/apps", "/apis/batch", "/apis/coordination.k8s.io"):
        yield case(f"path{path}/whole", get(path))
    for verbose in ("/readyz?verbose", "/livez?verbose=1", "/healthz?verbose"):
        yield case(f"path{verbose}", get(verbose))
    yield case("path/apis", get("/apis", only=["kind", "apiVersion"]), accepting("/apis", "text/plain"), accepting("/api", YAML))
    yield case("path/version-types", accepting("/version", "text/plain") | {"only": ["major"]}, request("POST", "/version", {}))
    for path in (collection("configmaps"), path_of("configmaps"), "/api/v1", "/healthz", "/unknown", "/version", "/api/v1/namespaces/{{ns}}/unknown"):
        for method in _METHODS:
            yield case(f"method/{method}{path}", request(method, path, only=[*only, "major"]))
