"""Answers what clients ask before they ask for objects: groups, versions and resources."""

from __future__ import annotations

import hashlib
from typing import Any

from envtest.embedded.api.resources import RESOURCES, Resource, groups

Object = dict[str, Any]

AGGREGATED = "apidiscovery.k8s.io"
"""What the Accept header names where a client wants all groups in one answer."""

_VERSION: Object = {
    "major": "1",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "linux/amd64",
}


def version(minor: str) -> Object:
    """What ``/version`` tells of a server of Kubernetes 1 and that minor version, perhaps with a plus."""
    return {**_VERSION, "minor": minor, "gitVersion": f"v1.{minor.rstrip('+')}.1"}


def discovery_document(path: str, *, aggregated: bool, address: str) -> Object | None:
    """The document at ``path`` (``/api``, ``/apis``, ``/apis/GROUP``, ``/apis/GROUP/v1``); None elsewhere.

    ``aggregated`` is whether the client takes all groups in one. ``address`` is the server's ``host:port``.
    """
    match path.strip("/").split("/"):
        case ["api"] if aggregated:
            return _aggregated([""])
        case ["api"]:
            addresses = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": addresses}
        case ["apis"] if aggregated:
            return _aggregated(groups())
        case ["apis"]:
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(name) for name in groups()]}
        case ["api", "v1"]:
            return _resource_list("")
        case ["apis", name] if name in groups():
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(name)}
        case ["apis", name, "v1"] if name in groups():
            return _resource_list(name)
    return None


def _group(name: str) -> Object:
    version = {"groupVersion": f"{name}/v1", "version": "v1"}
    return {"name": name, "versions": [version], "preferredVersion": version}


def _resource_list(group: str) -> Object:
    entries: list[Object] = []
    for resource in _of_group(group):
        entry: Object = {
            "name": resource.plural,
            "singularName": resource.singular,
            "namespaced": resource.namespaced,
            "kind": resource.kind,
            "verbs": list(resource.verbs),
            "storageVersionHash": hashlib.sha256(resource.qualified_name.encode()).hexdigest()[:11] + "=",
        }
        if resource.short_names:
            entry["shortNames"] = list(resource.short_names)
        if resource.categories:
            entry["categories"] = list(resource.categories)
        entries.append(entry)
        for name, kind, verbs in resource.subresources:
            entries.append(
                {
                    "name": f"{resource.plural}/{name}",
                    "singularName": "",
                    "namespaced": resource.namespaced,
                    "kind": kind,
                    "verbs": list(verbs),
                    **_foreign(resource, kind),
                }
            )
    group_version = f"{group}/v1" if group else "v1"
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": entries,
    }


def _aggregated(names: list[str]) -> Object:
    items = [
        {
            "metadata": {"name": name, "creationTimestamp": None} if name else {"creationTimestamp": None},
            "versions": [
                {
                    "version": "v1",
                    "resources": [_entry(one) for one in _of_group(name)],
                    "freshness": "Current",
                }
            ],
        }
        for name in names
    ]
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    }


def _entry(resource: Resource) -> Object:
    entry: Object = {
        "resource": resource.plural,
        "responseKind": _kind(resource.group, resource.kind),
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    if resource.subresources:
        entry["subresources"] = [
            {
                "subresource": name,
                "responseKind": _kind(resource.group_version_of(kind)[0], kind),
                "verbs": list(verbs),
            }
            for name, kind, verbs in resource.subresources
        ]
    return entry


def _foreign(resource: Resource, kind: str) -> Object:
    """Group and version of a subresource's kind where they are not the resource's."""
    group, version = resource.group_version_of(kind)
    return {} if group == resource.group else {"group": group, "version": version}


def _kind(group: str, kind: str) -> Object:
    return {"group": group, "version": "v1", "kind": kind}


def _of_group(group: str) -> list[Resource]:
    return [resource for resource in RESOURCES if resource.group == group]
