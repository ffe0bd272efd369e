"""Random cases: requests about one object, selectors of random words, queries and bodies with faults."""

from __future__ import annotations

import json
from random import Random
from typing import Any
from urllib.parse import quote

from tools.conformance.api.cases.writing import (
    APPLY,
    JSON_PATCH,
    MERGE,
    NAME,
    STRATEGIC,
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
from tools.conformance.api.connection import Step
from tools.conformance.area import Case

# fmt: off
_KEYS, _VALUES = ("a", "b", "c", "color"), ("1", "2", "red", "")
_FINALIZERS = ("x.example/a", "x.example/b", "x.example/c", "x.example/d")
_WORDS = ("app", "tier", "web", "in", "notin", "=", "==", "!=", "!", "(", ")", ",", "<", ">", " ", "7", "-", "x.example/a", "exists")
_FIELD_WORDS = ("metadata.name", "metadata.namespace", "={{ns}}-a", "!=", "==", "=", ",", "a", "\\", "spec.x", " ")
_MANAGERS = ("one", "two", "three")
_QUERIES = ("", "", "", "dryRun=All", "fieldValidation=Strict", "fieldValidation=Ignore", "fieldManager=me", "dryRun=x", "fieldValidation=x", "pretty=1")
_MORE = ("limit=1", "limit=0", "limit=x", "resourceVersion=x", "resourceVersionMatch=Exact", "watch=0", "continue=x", "timeoutSeconds=1")


def random_case(rng: Random) -> Case:
    """A case of a random kind, the same one from the same seed."""
    name, make = rng.choice(_KINDS)
    return case(f"random/{name}", *make(rng))


def _some(rng: Random, values: tuple[str, ...]) -> list[str]:
    return rng.sample(values, rng.randint(0, len(values)))


def _texts(rng: Random) -> dict[str, str]:
    return {key: rng.choice(_VALUES) for key in _some(rng, _KEYS)}


def _metadata(rng: Random) -> Object:
    metadata: Object = {"name": NAME}
    if labels := _texts(rng):
        metadata["labels"] = labels
    if rng.random() < 0.5 and (finalizers := _some(rng, _FINALIZERS)):
        metadata["finalizers"] = finalizers
    return metadata


def _config_map(rng: Random) -> Object:
    item = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _metadata(rng)}
    return item | ({"data": data} if (data := _texts(rng)) else {})


def _container(rng: Random, name: str) -> Object:
    found: Object = {"name": name, "image": rng.choice(("a", "b"))}
    if rng.random() < 0.4:
        found["args"] = _some(rng, ("x", "y"))
    if rng.random() < 0.4:
        found["env"] = [{"name": key, "value": rng.choice(_VALUES)} for key in _some(rng, ("A", "B", "C"))]
    if rng.random() < 0.4:
        found["ports"] = [{"containerPort": 10 * ord(name) + port, "protocol": "TCP"} for port in rng.sample((1, 2, 3), rng.randint(1, 3))]
    return {key: value for key, value in found.items() if value != []}


def _containers(rng: Random, *, least: int = 1) -> list[Object]:
    return [_container(rng, name) for name in rng.sample("abcd", rng.randint(least, 4))]


def _deployment(rng: Random) -> Object:
    item = sample("deployments")
    item["spec"]["template"]["spec"] = {"containers": _containers(rng)}
    return item


def _query(rng: Random) -> str:
    query = rng.choice(_QUERIES)
    return f"?{query}" if query else ""


def _value(rng: Random, depth: int = 2) -> Any:
    """A random value for a merge patch."""
    if depth and rng.random() < 0.5:
        return {key: _value(rng, depth - 1) for key in _some(rng, _KEYS)}
    return rng.choice((None, "1", "2", 1, True, [], ["x.example/a"], {}))


def _merge_patch(rng: Random, *, wrong: bool = True) -> Any:
    """A merge patch; a strategic one has other words for wrong types, which left_out.py lists."""
    body: Object = {}
    if rng.random() < 0.7:
        body["data"] = {key: rng.choice((None, *_VALUES)) for key in _some(rng, _KEYS)}
    if rng.random() < 0.5:
        body["metadata"] = {"labels": {key: rng.choice((None, *_VALUES)) for key in _some(rng, _KEYS)}}
    if wrong and rng.random() < 0.2:
        body[rng.choice(("data", "metadata", "immutable", "colour", "binaryData"))] = _value(rng)
    return body


def _operation(rng: Random) -> Object:
    path = rng.choice(("/data/a", "/data/b", "/data", "/metadata/labels/a", "/metadata/labels", "/metadata/finalizers/0", "/metadata/finalizers/-", "/metadata/finalizers/3", "/none/none", ""))
    operation: Object = {"op": rng.choice(("add", "replace", "remove", "test", "copy", "move")), "path": path}
    if operation["op"] in ("copy", "move"):
        operation["from"] = rng.choice(("/data/a", "/data/b", "/metadata/labels/a", "/metadata/finalizers/0"))
    elif operation["op"] != "remove":
        operation["value"] = _FINALIZERS[rng.randrange(4)] if "finalizers" in path else rng.choice(("1", "red", {"a": "1"}))
    return operation


def _list_patch(rng: Random) -> Any:
    """A strategic merge patch of containers, with directives."""
    containers: list[Object] = _containers(rng, least=0)
    for item in containers:
        if rng.random() < 0.2:
            item["$patch"] = rng.choice(("delete", "replace", "merge", "x"))
        if rng.random() < 0.3:
            item.pop("image")
    spec: Object = {"containers": containers}
    if rng.random() < 0.4:
        spec["$setElementOrder/containers"] = [{"name": name} for name in rng.sample("abcd", rng.randint(0, 4))]
    body: Object = {"spec": {"template": {"spec": spec}}}
    if rng.random() < 0.3 and "$" not in str(spec):
        # What comes first of adding and deleting one of them is left to chance in Kubernetes.
        added = _some(rng, _FINALIZERS)
        rest = tuple(one for one in _FINALIZERS if one not in added)
        more = rng.choice((("$deleteFromPrimitiveList/finalizers", rest), ("$setElementOrder/finalizers", _FINALIZERS)))
        body["metadata"] = {"finalizers": added, more[0]: _some(rng, more[1])}
    return body


def _selecting(rng: Random) -> list[Step]:
    labels = {"app": rng.choice(("web", "7")), "tier": "1"}
    steps = [create("configmaps", sample("configmaps", labels=labels)), create("configmaps", sample("configmaps", "{{ns}}-b", labels={"in": "web"}))]
    for _ in range(4):
        text = "".join(rng.choice(_WORDS) for _ in range(rng.randint(1, 8)))
        steps.append(get(f"{collection('configmaps')}?labelSelector={quote(text)}"))
    text = "".join(rng.choice(_FIELD_WORDS) for _ in range(rng.randint(1, 6)))
    return [*steps, get(f"{collection('configmaps')}?fieldSelector={quote(text, safe='{}')}")]


def _listing(rng: Random) -> list[Step]:
    steps = [create("configmaps", sample("configmaps", f"{{{{ns}}}}-{name}")) for name in "abc"]
    return [*steps, *(get(f"{collection('configmaps')}?{'&'.join(rng.sample(_MORE, rng.randint(1, 2)))}") for _ in range(3))]


def _patching(rng: Random) -> list[Step]:
    steps = [create("configmaps", _config_map(rng), _query(rng))]
    for _ in range(rng.randint(1, 4)):
        kind = rng.choice((MERGE, STRATEGIC, JSON_PATCH))
        body = [_operation(rng) for _ in range(rng.randint(1, 3))] if kind == JSON_PATCH else _merge_patch(rng, wrong=kind == MERGE)
        steps.append(patch("configmaps", body, kind, _query(rng)))
    return [*steps, get(path_of("configmaps"))]


def _ordering(rng: Random) -> list[Step]:
    return [create("deployments", _deployment(rng)), *(patch("deployments", _list_patch(rng), STRATEGIC) for _ in range(2))]


def _applying(rng: Random) -> list[Step]:
    plural, make = rng.choice((("configmaps", _config_map), ("deployments", _deployment)))
    steps: list[Step] = []
    for index in range(rng.randint(2, 5)):
        if index == 0 or rng.random() < 0.7:
            query = f"?fieldManager={rng.choice(_MANAGERS)}{rng.choice(('', '', '&force=true', '&dryRun=All'))}"
            steps.append(request("PATCH", path_of(plural) + query, make(rng), APPLY))
        elif rng.random() < 0.5:
            steps.append(put(plural, make(rng), "?fieldManager=editor"))
        else:
            body = _merge_patch(rng) if plural == "configmaps" else {"spec": {"replicas": rng.randint(0, 3)}}
            steps.append(patch(plural, body, MERGE, "?fieldManager=patcher"))
    return steps


def _deleting(rng: Random) -> list[Step]:
    plural = rng.choice(("configmaps", "pods", "leases"))
    finalizers = _some(rng, _FINALIZERS) if rng.random() < 0.5 else []
    item = sample(plural)
    if finalizers:
        item["metadata"]["finalizers"] = finalizers
    steps = [create(plural, item)]
    for _ in range(rng.randint(1, 3)):
        options: Object = {}
        if rng.random() < 0.5:
            options["propagationPolicy"] = rng.choice(("Foreground", "Background", "Orphan", "x"))
        if rng.random() < 0.3:
            options["gracePeriodSeconds"] = rng.choice((0, 5, -1))
        if rng.random() < 0.3:
            options["preconditions"] = {rng.choice(("uid", "resourceVersion")): rng.choice(("{{0:metadata.uid}}", "1"))}
        # Of what is being deleted a dry run shows an empty object, see left_out.py.
        if len(steps) == 1 and rng.random() < 0.3:
            options["dryRun"] = [rng.choice(("All", "x"))]
        steps += [delete(plural, options or None), get(path_of(plural))]
    return steps


def _breaking(rng: Random) -> list[Step]:
    """A body with a letter that is lost, doubled or changed."""
    text = json.dumps(_config_map(rng))
    for _ in range(rng.randint(1, 2)):
        at = rng.randrange(len(text))
        text = text[:at] + rng.choice(("", text[at] * 2, "}", "]", '"', ",", ":", "\\", "0", "[", "{")) + text[at + 1 :]
    return [create("configmaps", text, rng.choice(("", "?fieldValidation=Strict"))), get(path_of("configmaps"))]


_KINDS = (
    ("selecting", _selecting), ("listing", _listing), ("patching", _patching), ("ordering", _ordering),
    ("applying", _applying), ("deleting", _deleting), ("breaking", _breaking),
)
