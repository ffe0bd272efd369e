"""Describes the API to clients: groups, versions and resources."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from typing import Any

from envtest.embedded.api.resources import GROUPS, VERSION, Resource, of_group

Object = dict[str, Any]

AGGREGATED = "apidiscovery.k8s.io"
"""In the Accept header of a client that wants all groups in one answer (aggregated discovery)."""

_BUILD: Object = {
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "linux/amd64",
}

_STORED_AS = {"devicetaintrules": "v1beta2"}
"""The versions in which kube-apiserver 1.37 stores kinds, where they are not v1."""


def version(minor: str) -> Object:
    """What ``/version`` answers for Kubernetes 1 and a minor version, which may end with a plus."""
    number = minor.rstrip("+")
    oldest = {"minCompatibilityMinor": str(int(number) - 1)} if number.isdecimal() else {}
    return {
        "major": "1",
        "minor": minor,
        "emulationMajor": "1",
        "emulationMinor": number,
        "minCompatibilityMajor": "1",
        **oldest,
        "gitVersion": f"v1.{number}.1",
        **_BUILD,
    }


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
            return _aggregated(GROUPS)
        case ["apis"]:
            groups = [_group(name) for name in GROUPS]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        case ["api", "v1"]:
            return _resource_list("")
        case ["apis", name] if name in GROUPS:
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(name)}
        case ["apis", name, "v1"] if name in GROUPS:
            return _resource_list(name)
    return None


def _group(name: str) -> Object:
    version = {"groupVersion": f"{name}/{VERSION}", "version": VERSION}
    return {"name": name, "versions": [version], "preferredVersion": version}


def _resource_list(group: str) -> Object:
    entries: list[Object] = []
    for resource in of_group(group):
        entry: Object = {
            "name": resource.plural,
            "singularName": resource.singular,
            "namespaced": resource.namespaced,
            "kind": resource.kind,
            "verbs": list(resource.verbs),
        }
        # Reviews are stored nowhere.
        if resource.verbs != ("create",):
            entry["storageVersionHash"] = _storage_hash(resource)
        entries.append(entry | _other_names(resource))
        for name, kind, verbs in resource.subresources:
            entries.append(
                {
                    "name": f"{resource.plural}/{name}",
                    "singularName": "",
                    "namespaced": resource.namespaced,
                    "kind": kind,
                    "verbs": list(verbs),
                    **_other_group(resource, kind),
                }
            )
    return {
        "kind": "APIResourceList",
        # The list of the core group has none.
        **({"apiVersion": "v1"} if group else {}),
        "groupVersion": f"{group}/{VERSION}" if group else VERSION,
        "resources": entries,
    }


def _storage_hash(resource: Resource) -> str:
    """Tells clients when the storage version changes (StorageVersionHash in apiserver/pkg/endpoints)."""
    version = _STORED_AS.get(resource.plural, resource.version)
    text = f"{resource.collection[0]}/{version}/{resource.kind}"
    return base64.b64encode(hashlib.sha256(text.encode()).digest()[:8]).decode()


def _aggregated(names: Sequence[str]) -> Object:
    items = [
        {
            "metadata": {"name": name} if name else {},
            "versions": [
                {
                    "version": VERSION,
                    "resources": [_entry(one) for one in of_group(name)],
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
        "responseKind": _kind(resource, resource.kind),
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": list(resource.verbs),
    }
    entry |= _other_names(resource)
    if resource.subresources:
        entry["subresources"] = [
            {"subresource": name, "responseKind": _kind(resource, kind), "verbs": list(verbs)}
            for name, kind, verbs in resource.subresources
        ]
    return entry


def _other_names(resource: Resource) -> Object:
    """Short names and categories, by which kubectl knows the resource as well; left out where empty."""
    found = {"shortNames": resource.short_names, "categories": resource.categories}
    return {key: list(names) for key, names in found.items() if names}


def _other_group(resource: Resource, kind: str) -> Object:
    """Group and version of a subresource's kind where they are not the resource's."""
    group, version = resource.group_version_of(kind)
    return {} if group == resource.group else {"group": group, "version": version}


def _kind(resource: Resource, kind: str) -> Object:
    group, version = resource.group_version_of(kind)
    if (group, version) == (resource.group, resource.version):
        # Of its own kinds kube-apiserver leaves out what the place in the document says.
        group = version = ""
    return {"group": group, "version": version, "kind": kind}
