"""Does what the verbs of the API do to the store, and answers or refuses as kube-apiserver would.

Not kept: field ownership, quantities and schema validation, and admission of any kind.
"""

from __future__ import annotations

import base64
import copy
import json
import secrets
import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from envtest.embedded.defaults import defaulted
from envtest.embedded.patching import APPLY, patched
from envtest.embedded.selectors import field_selector, label_selector
from envtest.embedded.statuses import Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from envtest.embedded.requests import Request
    from envtest.embedded.store import Collection, Key, Store

Object = dict[str, Any]

_NAME_BASE_CHARACTERS = 58
_KEPT_METADATA = ("uid", "creationTimestamp", "generation", "deletionTimestamp", "selfLink")
_NAME_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


class Verbs:
    """The verbs of the API over one store. Thread-safe.

    ``missing_selectors`` are field selectors that an older server would answer 400.
    ``disabled_gates`` are feature gates whose fields are dropped on write.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.missing_selectors: frozenset[str] = frozenset()
        self.disabled_gates: frozenset[str] = frozenset()

    def get(self, request: Request) -> Object:
        """One object."""
        return self._shown(request, self._existing(request))

    def list(self, request: Request) -> Object:
        """The objects that the selectors select, in pages when ``limit`` asks for them."""
        selects = self.selection(request)
        start, version = self._continued(request)
        with self._store.changed:
            found = [(key, item) for key, item in self._store.items(collection_of(request)) if selects(item)]
            version = version or self._store.resource_version
        rest = [(key, item) for key, item in found if start is None or key > start]
        limit = int(request.query.get("limit") or 0) or len(rest)
        page = rest[:limit]
        metadata: Object = {"resourceVersion": str(version)}
        if len(rest) > limit:
            token = json.dumps({"rv": version, "after": page[-1][0]})
            metadata["continue"] = base64.urlsafe_b64encode(token.encode()).decode()
            metadata["remainingItemCount"] = len(rest) - limit
        kind = found[0][1].get("kind", "") if found else request.resource.rstrip("s").capitalize()
        return {
            "kind": f"{kind}List",
            "apiVersion": request.api_version,
            "metadata": metadata,
            "items": [self._shown(request, item) for _, item in page],
        }

    def selection(self, request: Request) -> Callable[[Object], bool]:
        """The predicate of the request's namespace and selectors; raises Refused (400)."""
        by_field = field_selector(
            request.query.get("fieldSelector", ""), request.resource, self.missing_selectors
        )
        by_label = label_selector(request.query.get("labelSelector", ""))

        def selects(item: Object) -> bool:
            namespace = item["metadata"].get("namespace", "")
            in_namespace = not request.namespace or namespace == request.namespace
            return in_namespace and by_field(item) and by_label(item)

        return selects

    def create(self, request: Request, body: Object) -> Object:
        """Store a new object with name, UID and creation time."""
        item = self._read(request, body)
        metadata = item.setdefault("metadata", {})
        if not metadata.get("name"):
            if not metadata.get("generateName"):
                raise Refused(422, f"{request.resource}: name or generateName is required")
            suffix = "".join(secrets.choice(_NAME_ALPHABET) for _ in range(5))
            metadata["name"] = metadata["generateName"][:_NAME_BASE_CHARACTERS] + suffix
        if request.namespace:
            metadata["namespace"] = request.namespace
        metadata.pop("resourceVersion", None)
        metadata["uid"] = str(uuid.uuid4())
        metadata["creationTimestamp"] = _now()
        if "spec" in item:
            metadata["generation"] = 1
        if request.resource != "nodes":
            item.pop("status", None)
        with self._store.changed:
            key = (request.namespace, metadata["name"])
            if self._store.get(collection_of(request), key) is not None:
                raise Refused(409, f"{request.resource} {key[1]!r} already exists", "AlreadyExists")
            return self._shown(request, self._store.put(collection_of(request), key, item))

    def update(self, request: Request, body: Object) -> Object:
        """Replace the object, or only its status, unless it changed since ``body`` was read."""
        with self._store.changed:
            stored = self._existing(request)
            return self._write(request, stored, self._read(request, body))

    def patch(self, request: Request, patch: Any, content_type: str) -> Object:
        """Patch the object; an apply patch creates it when it is not there."""
        with self._store.changed:
            stored = self._store.get(collection_of(request), key_of(request))
            if stored is None:
                if content_type != APPLY or request.subresource:
                    raise self._not_found(request)
                metadata = {**patch.get("metadata", {}), "name": request.name}
                return self.create(request, {**patch, "metadata": metadata})
            return self._write(request, stored, patched(stored, patch, content_type))

    def delete(self, request: Request, options: Object) -> Object:
        """Delete the object, or mark it for deletion while finalizers keep it."""
        with self._store.changed:
            stored = self._existing(request)
            _check_preconditions(request, stored, options.get("preconditions") or {})
            return self._shown(request, self._remove(collection_of(request), key_of(request), stored))

    def deletecollection(self, request: Request) -> Object:
        """Delete all objects that the selectors select."""
        selects = self.selection(request)
        with self._store.changed:
            chosen = [entry for entry in self._store.items(collection_of(request)) if selects(entry[1])]
            for key, item in chosen:
                self._remove(collection_of(request), key, item)
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}

    def _remove(self, collection: Collection, key: Key, stored: Object) -> Object:
        if not stored["metadata"].get("finalizers"):
            return self._store.remove(collection, key)
        if "deletionTimestamp" in stored["metadata"]:
            return stored
        marked = {**stored["metadata"], "deletionTimestamp": _now()}
        return self._store.put(collection, key, {**stored, "metadata": marked})

    def _write(self, request: Request, stored: Object, wanted: Object) -> Object:
        """Put ``wanted`` in the place of ``stored``: the rules of an update."""
        old, new = stored["metadata"], dict(wanted.get("metadata") or {})
        _check_preconditions(request, stored, new)
        if new.get("name", request.name) != request.name:
            raise Refused(400, "the name of the object is not that of the path")
        item = copy.deepcopy(stored if request.subresource else wanted)
        if request.subresource == "status":
            item["status"] = copy.deepcopy(wanted.get("status"))
        elif "status" in stored:
            item["status"] = stored["status"]
        else:
            item.pop("status", None)
        metadata = item["metadata"] = {**(old if request.subresource else new), "name": request.name}
        metadata.update({name: old[name] for name in _KEPT_METADATA if name in old})
        if "namespace" in old:
            metadata["namespace"] = old["namespace"]
        metadata["resourceVersion"] = old["resourceVersion"]
        item = defaulted(item, request.resource, self.disabled_gates, stored)
        if item.get("spec") != stored.get("spec") and "generation" in old:
            metadata["generation"] = old["generation"] + 1
        if item == stored:
            return self._shown(request, stored)
        if "deletionTimestamp" in metadata and not metadata.get("finalizers"):
            return self._shown(request, self._store.remove(collection_of(request), key_of(request)))
        return self._shown(request, self._store.put(collection_of(request), key_of(request), item))

    def _read(self, request: Request, body: Object) -> Object:
        """A body as it is stored: its own copy, with defaults, without the fields of disabled gates."""
        if body.get("apiVersion", request.api_version) != request.api_version:
            raise Refused(400, f"the body is no object of {request.api_version}")
        return defaulted(copy.deepcopy(body), request.resource, self.disabled_gates, None)

    def _existing(self, request: Request) -> Object:
        stored = self._store.get(collection_of(request), key_of(request))
        if stored is None:
            raise self._not_found(request)
        return stored

    def _not_found(self, request: Request) -> Refused:
        return Refused(404, f'{request.resource} "{request.name}" not found')

    def _continued(self, request: Request) -> tuple[tuple[str, str] | None, int]:
        """Where a page starts and the version of its list; raises Refused (410) after a compaction."""
        token = request.query.get("continue")
        if not token:
            return None, 0
        content = json.loads(base64.urlsafe_b64decode(token))
        if content["rv"] < self._store.compacted:
            raise Refused(410, "the provided continue parameter is too old")
        return (content["after"][0], content["after"][1]), content["rv"]

    def _shown(self, request: Request, item: Object) -> Object:
        """The object in the version that was asked for."""
        return {**item, "apiVersion": request.api_version}


def collection_of(request: Request) -> Collection:
    """Where the request's objects are stored."""
    return request.group, request.resource


def key_of(request: Request) -> Key:
    """Which object the request names."""
    return request.namespace, request.name


def _check_preconditions(request: Request, stored: Object, wanted: Object) -> None:
    for name in ("uid", "resourceVersion"):
        if wanted.get(name) and wanted[name] != stored["metadata"][name]:
            raise Refused(409, f"{request.resource} {request.name!r}: the {name} is another one")


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
