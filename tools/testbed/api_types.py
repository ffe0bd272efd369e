"""Writes the types of the embedded API server from Kubernetes' sources: OpenAPI documents, two modules.

python -m tools.testbed.api_types KUBERNETES/api/openapi-spec/v3 API APIMACHINERY
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

TYPES_FILE = Path(__file__).parents[2] / "envtest/embedded/schema/types.json"

Schema = dict[str, Any]

_DOCUMENTS = {
    "api__v1_openapi.json": (
        ("v1", ("Pod", "Binding", "Node", "Namespace", "Event", "ConfigMap", "ServiceAccount")),
        ("v1", ("ResourceQuota", "LimitRange", "Service", "Secret", "Endpoints", "PersistentVolumeClaim")),
        ("policy/v1", ("Eviction",)),
        ("authentication.k8s.io/v1", ("TokenRequest",)),
    ),
    "apis__admissionregistration.k8s.io__v1_openapi.json": (
        (
            "admissionregistration.k8s.io/v1",
            (
                *("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
                "ValidatingWebhookConfiguration",
            ),
        ),
    ),
    "apis__apps__v1_openapi.json": (
        ("apps/v1", ("Deployment", "DaemonSet", "ReplicaSet", "StatefulSet", "ControllerRevision")),
        ("autoscaling/v1", ("Scale",)),
    ),
    "apis__authentication.k8s.io__v1_openapi.json": (
        ("authentication.k8s.io/v1", ("SelfSubjectReview", "TokenReview")),
    ),
    "apis__authorization.k8s.io__v1_openapi.json": (
        ("authorization.k8s.io/v1", ("LocalSubjectAccessReview", "SelfSubjectAccessReview")),
        ("authorization.k8s.io/v1", ("SelfSubjectRulesReview", "SubjectAccessReview")),
    ),
    "apis__batch__v1_openapi.json": (("batch/v1", ("Job",)),),
    "apis__coordination.k8s.io__v1_openapi.json": (("coordination.k8s.io/v1", ("Lease",)),),
    "apis__discovery.k8s.io__v1_openapi.json": (("discovery.k8s.io/v1", ("EndpointSlice",)),),
    "apis__networking.k8s.io__v1_openapi.json": (("networking.k8s.io/v1", ("NetworkPolicy",)),),
    "apis__node.k8s.io__v1_openapi.json": (("node.k8s.io/v1", ("RuntimeClass",)),),
    "apis__policy__v1_openapi.json": (("policy/v1", ("PodDisruptionBudget",)),),
    "apis__rbac.authorization.k8s.io__v1_openapi.json": (
        ("rbac.authorization.k8s.io/v1", ("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")),
    ),
    "apis__scheduling.k8s.io__v1_openapi.json": (("scheduling.k8s.io/v1", ("PriorityClass",)),),
    "apis__resource.k8s.io__v1_openapi.json": (
        ("resource.k8s.io/v1", ("ResourceClaim", "ResourceClaimTemplate", "ResourceSlice")),
        ("resource.k8s.io/v1", ("DeviceClass", "DeviceTaintRule")),
    ),
}
_SPECIAL = {
    "Quantity": "quantity",
    "Time": "time",
    "MicroTime": "microTime",
    "IntOrString": "intOrString",
    "FieldsV1": "any",
    "RawExtension": "any",
    "JSON": "any",
}
_SCALARS = {
    ("integer", "int32"): "int32",
    ("integer", None): "int64",
    ("integer", "int64"): "int64",
    ("string", "byte"): "bytes",
}
"""The shapes of types with a format; others are named as OpenAPI names their type."""

_STRUCT = re.compile(r"^type (\w+) struct \{$(.*?)^\}$", re.MULTILINE | re.DOTALL)
_GO_FIELD = re.compile(r'^[ \t]+(?:\w+[ \t]+)?(\S+)[ \t]+`.*?json:"([\w$-]*),?([^"]*)"', re.MULTILINE)
"""A field of a struct in Go: its type, its name in JSON and the options behind the name."""

_MESSAGE = re.compile(r"^message (\w+) \{$(.*?)^\}$", re.MULTILINE | re.DOTALL)
# Only fields; ``oneof`` and nested messages do not occur in Kubernetes' protobuf.
_FIELD = re.compile(r"^  (?:optional |repeated )?(map<string, ?[\w.]+>|[\w.]+) (\w+) = (\d+);$", re.MULTILINE)


def main(folder: Path, api: Path, apimachinery: Path) -> None:
    """Write the types that the served kinds are made of, one a line."""
    kinds: dict[str, dict[str, str]] = {}
    types: dict[str, Any] = {}
    for document, wanted in _DOCUMENTS.items():
        schemas = json.loads((folder / document).read_text())["components"]["schemas"]
        for api_version, names in wanted:
            group, _, version = api_version.rpartition("/")
            for name in names:
                root = _kind(schemas, group, version, name)
                kinds.setdefault(api_version, {})[name] = _short(root)
                _collect(schemas, root, types)
    tags: dict[str, Any] = {}
    for name in sorted(types):
        folders = (api, apimachinery)
        _collect_tags(folders, name, types[name], tags)
        sources = _folder(folders, name).glob("types*.go")
        text = "\n".join(path.read_text() for path in sorted(sources))
        _mark_written(dict(_STRUCT.findall(text)), name.rpartition(".")[2], types[name])
    head = f'{{"kinds":{json.dumps(kinds, sort_keys=True)},\n"types":{{\n'
    text = head + _lines(types) + '\n},\n"tags":{\n' + _lines(tags) + "\n}}\n"
    TYPES_FILE.write_text(text)


def _lines(entries: dict[str, Any]) -> str:
    return ",\n".join(
        f"{json.dumps(name)}:{json.dumps(entries[name], separators=(',', ':'))}" for name in sorted(entries)
    )


def _collect_tags(
    folders: tuple[Path, Path], name: str, fields: dict[str, Any], tags: dict[str, Any]
) -> None:
    """The protobuf tags of a type's ``fields``; a part that JSON has inline names its own type."""
    package, _, message = name.rpartition(".")
    text = (_folder(folders, name) / "generated.proto").read_text()
    found = tags[name] = {}
    for kind, name_in_protobuf, number in _FIELD.findall(dict(_MESSAGE.findall(text))[message]):
        # JSON has webhooks for Webhooks.
        small = name_in_protobuf[0].lower() + name_in_protobuf[1:]
        field = name_in_protobuf if name_in_protobuf in fields else small
        if field in fields:
            found[number] = [field, *(["bytes"] if "bytes" in kind else [])]
        # A struct that Go embeds: JSON shows its fields here, protobuf sends it as a message.
        elif kind[0].isupper():
            found[number] = ["", f"{package}.{kind}"]
            _collect_tags(folders, f"{package}.{kind}", fields, tags)


def _folder(folders: tuple[Path, Path], name: str) -> Path:
    """Where the Go package of a type is."""
    package = name.rpartition(".")[0]
    is_meta = package.partition(".")[0] == "meta"
    return (folders[1] / "pkg/apis" if is_meta else folders[0]) / package.replace(".", "/")


def _mark_written(structs: dict[str, str], struct: str, fields: dict[str, Any]) -> None:
    """Mark how Go's json writes ``fields`` that are unset: as their zero (!), as null (?), or not at all (-).

    Without a mark are pointers: of them it writes a zero that is set, and nothing where none is.
    """
    for kind, name, options in _GO_FIELD.findall(structs.get(struct, "")):
        if not name:
            # A struct that Go embeds: JSON has its fields here.
            _mark_written(structs, kind, fields)
        spec = fields.get(name)
        # The option omitempty has no effect on structs.
        is_struct = not kind.startswith(("*", "[", "map")) and (
            (isinstance(spec, dict) and "ref" in spec)
            or spec in ("quantity", "time", "microTime", "intOrString")
        )
        is_pointer, is_left_out = kind.startswith("*"), "omitempty" in options and not is_struct
        if spec is None or "omitzero" in options or (is_pointer and is_left_out):
            continue
        mark = "?" if is_pointer else "-" if is_left_out else "!"
        fields[name] = spec + mark if isinstance(spec, str) else {**spec, "unset": mark}


def _kind(schemas: Schema, group: str, version: str, kind: str) -> str:
    wanted = {"group": group, "version": version, "kind": kind}
    return next(
        name
        for name, schema in schemas.items()
        if wanted in schema.get("x-kubernetes-group-version-kind", []) and name.endswith(f".{kind}")
    )


def _short(name: str) -> str:
    """``core.v1.Pod`` for ``io.k8s.api.core.v1.Pod``: unique, and no longer than it has to be."""
    prefixes = ("io.k8s.api.", "io.k8s.apimachinery.pkg.apis.")
    return next((name.removeprefix(one) for one in prefixes if name.startswith(one)), name)


def _collect(schemas: Schema, name: str, types: dict[str, Any]) -> None:
    if _short(name) in types:
        return
    schema = schemas[name]
    fields = types[_short(name)] = {}
    for field, value in schema.get("properties", {}).items():
        fields[field] = _spec(schemas, value, types)


def _spec(schemas: Schema, value: Schema, types: dict[str, Any]) -> Any:
    """What types.json says of a field: the shape of a scalar, or a map with ref, list or map."""
    # OpenAPI v3 wraps a $ref so, to put a default or a description beside it.
    if len(value.get("allOf", ())) == 1:
        value = {**value["allOf"][0], **{key: item for key, item in value.items() if key != "allOf"}}
    if "$ref" in value:
        name = value["$ref"].rpartition("/")[2]
        last = name.rpartition(".")[2]
        if last in _SPECIAL:
            return _SPECIAL[last]
        _collect(schemas, name, types)
        target = schemas[name]
        atomic = "atomic" in (value.get("x-kubernetes-map-type"), target.get("x-kubernetes-map-type"))
        return {"ref": _short(name), **({"atomic": True} if atomic else {}), **_patch(value)}
    if value.get("type") == "array":
        spec = {"list": _spec(schemas, value["items"], types), **_patch(value)}
        # All other lists are atomic: server-side apply replaces them as a whole.
        if value.get("x-kubernetes-list-type") in ("map", "set"):
            spec["keys"] = value.get("x-kubernetes-list-map-keys", [])
        return spec
    if value.get("type") == "object":
        atomic = value.get("x-kubernetes-map-type") == "atomic"
        values = _spec(schemas, value.get("additionalProperties") or {}, types)
        return {"map": values, **({"atomic": True} if atomic else {})}
    kind = value.get("type", "any")
    return _SCALARS.get((kind, value.get("format")), kind)


def _patch(value: Schema) -> dict[str, str]:
    names = {"x-kubernetes-patch-strategy": "strategy", "x-kubernetes-patch-merge-key": "merge"}
    return {short: value[name] for name, short in names.items() if name in value}


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
