"""Definitions of custom kinds for tests, and their objects."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GROUP = "example.com"
GADGETS = f"/apis/{GROUP}/v1/namespaces/default/gadgets"

OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def version(name: str = "v1", *, storage: bool = True, schema: Object | None = None, **more: Any) -> Object:
    """A served version; its objects may have any spec unless a schema says otherwise."""
    root = {"type": "object", "properties": {"spec": schema or OPEN, "status": OPEN}}
    return {"name": name, "served": True, "storage": storage, "schema": {"openAPIV3Schema": root}, **more}


def definition(*versions: Object, plural: str = "gadgets", kind: str = "Gadget", **names: Any) -> Object:
    """A definition of a kind of objects in namespaces."""
    spec = {
        "group": GROUP,
        "names": {"plural": plural, "kind": kind, **names},
        "scope": "Namespaced",
        "versions": list(versions) or [version()],
    }
    about = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    return {**about, "metadata": {"name": f"{plural}.{GROUP}"}, "spec": spec}


def gadget(name: str, api_version: str = f"{GROUP}/v1", **spec: Any) -> Object:
    """An object of the kind."""
    return {"apiVersion": api_version, "kind": "Gadget", "metadata": {"name": name}, "spec": spec}
