"""Carries out the verbs of the API on the store, and answers or refuses as kube-apiserver does.

Objects are validated by ``kubernetes_rules.validation.kinds``, which says what is left out; resource.k8s.io
is validated in full. A status is decoded by its type, and not validated beyond that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from envtest.embedded.api import admission, subresources, writing
from envtest.embedded.api.admission import Quotas
from envtest.embedded.api.defaults import ALPHA_GATES, now
from envtest.embedded.api.patching import APPLY, STRATEGIC, patched
from envtest.embedded.api.reading import asked_version, list_page, not_found, shown, too_large_version
from envtest.embedded.api.removal import Removal, evict
from envtest.embedded.api.requests import (
    Request,
    check_write_options,
    delete_options,
    is_dry,
    query_flag,
)
from envtest.embedded.api.resources import Resource, find_resource
from envtest.embedded.api.selecting import selection
from envtest.embedded.api.server_side_apply import Manager, after_update, applied, without_times
from envtest.embedded.api.statuses import Refused, details_of, plain_go_error
from envtest.embedded.api.store import Key, Store
from kubernetes_rules.deletion import Deletion

Object = dict[str, Any]
Warnings = list[str]

_PODS = ("", "pods")
_SUCCESS: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
_ANSWERED_WITH_OBJECTS = frozenset(
    {
        *((("", name)) for name in ("namespaces", "pods", "resourcequotas", "serviceaccounts", "services")),
        *(("resource.k8s.io", f"resource{name}") for name in ("claims", "claimtemplates", "slices")),
        ("resource.k8s.io", "deviceclasses"),
    }
)
"""The resources whose DELETE answers the object that is gone, not a Status (ReturnDeletedObject in Go)."""

_EVERYWHERE = ("list", "watch")
_INTO_CONTAINERS = frozenset({"exec", "attach", "portforward"})
"""The subresources of pods by which kubectl enters a container."""


def _no_check(_request: Request, _item: Object, _old: Object) -> None:
    """Everybody may write everything."""


class Verbs:
    """The verbs of the API over one store. Thread-safe; every verb raises Refused.

    ``missing_selectors`` are field selectors that are refused (400), as an older server does. The fields of
    feature gates in ``disabled_gates`` are dropped on write. Writing verbs add to ``warnings`` the texts of
    Warning headers. ``answers`` are the answers to reviews, whose creation stores nothing, by resource.
    ``check_claim_rights`` raises Refused where a user may not write a claim's status so: the request, the
    claim as it is to be, and as it is.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.answers: Mapping[str, Callable[[Request, Object], Object]] = {}
        self.check_claim_rights: Callable[[Request, Object, Object], None] = _no_check
        self._quotas = Quotas(store)
        self._removal = Removal(store, self._quotas)
        self.missing_selectors: frozenset[str] = frozenset()
        self.disabled_gates: frozenset[str] = ALPHA_GATES

    @property
    def removal(self) -> Removal:
        """Deletes from the store, to be called while that is held."""
        return self._removal

    def get(self, request: Request, resource: Resource, at_version: int | None = None) -> Object:
        """One object; ``at_version`` is an earlier version that is to be shown."""
        if asked_version(request) > self._store.resource_version:
            raise too_large_version(asked_version(request), self._store.resource_version)
        if at_version is None:
            return shown(self._existing(request, resource), request.subresource)
        past = dict(self._store.at_version(resource.collection, at_version))
        if key_of(request) not in past:
            raise not_found(resource, request.name)
        return past[key_of(request)]

    def list(self, request: Request, resource: Resource, at_version: int | None = None) -> Object:
        """The objects that the selectors select, in pages when ``limit`` asks for them."""
        return list_page(self._store, request, resource, self.missing_selectors, at_version)

    def selection(self, request: Request, resource: Resource) -> Callable[[Object], bool]:
        """The predicate of the request's namespace and selectors."""
        return selection(request, resource, self.missing_selectors)

    def create(self, request: Request, resource: Resource, body: Any, warnings: Warnings) -> Object:
        """Store a new object with name, UID and creation time, or bind or evict a pod."""
        check_write_options(request)
        if request.subresource:
            return self._create_subresource(request, resource, body)
        item = writing.read_body(request, resource, body, warnings)
        self._warn_without_effect(resource, warnings)
        answer = self.answers.get(resource.plural)
        return self._add(request, resource, item) if answer is None else answer(request, item)

    def update(self, request: Request, resource: Resource, body: Any, warnings: Warnings) -> Object:
        """Replace the object, or only its status, unless it changed since ``body`` was read."""
        check_write_options(request)
        taken = body_resource(request, resource)
        read = [writing.read_body(request, taken, body, warnings)]
        writing.check_name(request, read[0]["metadata"])
        self._warn_without_effect(resource, warnings)

        def change(stored: Object) -> Object:
            # Preparing changes what was read, so a further attempt reads the body again.
            wanted = read.pop() if read else writing.read_body(request, taken, body, [])
            return (
                subresources.scaled(stored, wanted) if request.subresource == subresources.SCALE else wanted
            )

        return self._changed(request, resource, change)

    def patch(
        self,
        request: Request,
        resource: Resource,
        patch: Any,
        content_type: str,
        warnings: Warnings,
    ) -> tuple[bool, Object]:
        """Patch the object; an apply patch creates it if it is not there.

        Returns whether the object was created, and the object.
        """
        check_write_options(request, is_apply=content_type == APPLY)
        self._warn_without_effect(resource, warnings)
        taken = body_resource(request, resource)
        if content_type == APPLY and taken is resource:
            return self._apply(request, resource, writing.read_config(request, resource, patch))

        def change(stored: Object) -> Object:
            before = shown(stored, request.subresource)
            problems: list[str] = []
            item = patched(before, patch, content_type, writing.kind_of(taken), problems)
            if content_type == STRATEGIC:
                # Its result keeps the kind, whatever the patch says.
                item |= {"apiVersion": taken.api_version, "kind": taken.kind}
            wanted = writing.read_patched(request, taken, item, problems, warnings)
            writing.check_applied_identity(resource, stored, wanted)
            return (
                subresources.scaled(stored, wanted) if request.subresource == subresources.SCALE else wanted
            )

        return False, self._changed(request, resource, change)

    def delete(self, request: Request, resource: Resource, body: Any, warnings: Warnings) -> Object:
        """Delete the object, or mark it while it has finalizers or a grace; ``body`` is DeleteOptions.

        Returns the object, or a Status of most kinds once it is gone.
        """
        options = delete_options(request, body)
        _warn_of_preserved(resource, options, warnings)
        admission.admit_delete(resource, request.name)
        while True:
            stored = self._existing(request, resource)
            last = self._deleted(request, resource, stored, options)
            if last is not None:
                break
        if last.is_over and resource.collection not in _ANSWERED_WITH_OBJECTS:
            details = details_of(resource.group, resource.plural, request.name)
            return _SUCCESS | {"details": {**details, "uid": stored["metadata"]["uid"]}}
        return last.item

    def deletecollection(self, request: Request, resource: Resource, body: Any, warnings: Warnings) -> Object:
        """Delete all objects that the selectors select, and answer their list; ``body`` is DeleteOptions."""
        options = delete_options(request, body)
        _warn_of_preserved(resource, options, warnings)
        listed = self.list(replace(request, verb="list"), resource)
        for item in listed["items"]:
            metadata = item["metadata"]
            key = (metadata.get("namespace", ""), metadata["name"])
            one = replace(request, verb="delete", namespace=key[0], name=key[1])
            # An object may be gone already, together with its owner.
            while (stored := self._store.get(resource.collection, key)) is not None:
                if self._deleted(one, resource, stored, options) is not None:
                    break
        return listed

    def _deleted(
        self, request: Request, resource: Resource, stored: Object, options: Object
    ) -> Deletion | None:
        """Delete ``stored``; None where it has changed meanwhile, so try again."""
        dry = is_dry(request, options)
        writing.check_preconditions(resource, stored, options.get("preconditions") or {}, resource.kind)
        with self._store.changed:
            if self._store.get(resource.collection, key_of(request)) is not stored:
                return None
            return self._removal.delete(resource.collection, key_of(request), options, dry=dry)

    def _create_subresource(self, request: Request, resource: Resource, body: Object) -> Object:
        while True:
            pod = self._existing(request, resource)
            options: Object = {}
            if request.subresource == "eviction":
                options = subresources.eviction_options(request, body)
                writing.check_preconditions(resource, pod, options.get("preconditions") or {})
            else:
                wanted = subresources.bound(request, resource, pod, body)
            dry = is_dry(request, options)
            with self._store.changed:
                if self._store.get(resource.collection, key_of(request)) is not pod:
                    continue
                if request.subresource == "eviction":
                    evict(self._store, self._removal, pod, options, dry=dry)
                elif not dry:
                    self._store.put(resource.collection, key_of(request), wanted)
            return {**_SUCCESS, "code": 201}

    def _add(self, request: Request, resource: Resource, item: Object) -> Object:
        """Store the new object, which has been read, if the rules and admission allow it."""
        dry = is_dry(request, {})
        version = item["metadata"].get("resourceVersion")
        if resource.namespaced:
            # Admission that changes the object comes before validation, quota behind it, as in
            # kube-apiserver.
            name = item["metadata"].get("name") or ""
            admission.admit_namespace(self._store, resource, request.namespace, name)
        if resource.collection == _PODS:
            admission.complete_pod(self._store, item, request.namespace)
        item = writing.prepare_create(request, resource, item, self.disabled_gates)
        name = item["metadata"].get("name") or ""
        writing.check_create(resource, item)
        if not dry and request.verb == "create" and str(version or "").lstrip("0").isdecimal():
            raise plain_go_error("resourceVersion should not be set on objects to be created")
        key = (request.namespace, name)
        with self._store.changed:
            # An object that is invalid and has a taken name is refused as invalid.
            there = self._store.get(resource.collection, key)
            if there is not None:
                details = details_of(resource.group, resource.plural, name)
                ends = "deletionTimestamp" in there["metadata"]
                text = f'{resource.qualified_name} "{name}" already exists'
                text = f"object is being deleted: {text}" if ends else text
                raise Refused(409, text, "AlreadyExists", details)
            if resource.namespaced:
                # Asked again, since it may have begun to end.
                admission.admit_namespace(self._store, resource, request.namespace, name)
            admission.admit_admin_access(self._store, item, None)
            self._quotas.admit(resource, item)
            if dry:
                return item
            stored = self._store.put(resource.collection, key, item)
            self._quotas.refresh(request.namespace)
        return stored

    def _apply(self, request: Request, resource: Resource, config: Object) -> tuple[bool, Object]:
        manager = Manager(request.query["fieldManager"], "Apply", request.subresource)
        force = query_flag(request, "force")

        def merged_with(stored: Object | None) -> Object:
            kind, has_status = writing.kind_of(resource), resource.has("status")
            merged = applied(stored, config, kind, manager, now(), force=force, has_status=has_status)
            return writing.completed(resource, merged)

        def change(stored: Object) -> Object:
            writing.check_place(request, resource, config, is_new=False)
            writing.check_applied_identity(resource, stored, config)
            writing.check_preconditions(resource, stored, config["metadata"])
            return merged_with(stored)

        if self._store.get(resource.collection, key_of(request)) is None:
            if request.subresource:
                raise not_found(resource, request.name)
            writing.check_place(request, resource, config, is_new=True)
            merged = merged_with(None)
            merged["metadata"] |= {**config["metadata"], "name": request.name}
            try:
                return True, self._add(request, resource, merged)
            except Refused as refused:
                # Somebody else has created it meanwhile, so it is to be changed.
                if refused.body.get("reason") != "AlreadyExists":
                    raise
        return False, self._changed(request, resource, change, is_apply=True)

    def _changed(
        self,
        request: Request,
        resource: Resource,
        change: Callable[[Object], Object],
        *,
        is_apply: bool = False,
    ) -> Object:
        """Store what ``change`` makes of the stored object, and try again while others write in between.

        As kube-apiserver does it (GuaranteedUpdate): rules hold up no other writes.
        """
        while True:
            stored = self._existing(request, resource)
            wanted = change(stored)
            writing.check_update_preconditions(request, resource, stored, wanted["metadata"])
            item = self._prepared(request, resource, stored, wanted, is_apply=is_apply)
            # An update that changes nothing is not written: the resourceVersion stays, watches send nothing.
            if item == stored or is_dry(request, {}):
                return shown(item, request.subresource)
            with self._store.changed:
                if self._store.get(resource.collection, key_of(request)) is stored:
                    return self._put(request, resource, item)

    def _prepared(
        self,
        request: Request,
        resource: Resource,
        stored: Object,
        wanted: Object,
        *,
        is_apply: bool,
    ) -> Object:
        """``wanted`` as it can be stored in the place of ``stored``; ``stored`` itself if nothing changes."""
        if (resource.plural, request.subresource) == ("resourceclaims", "status"):
            self.check_claim_rights(request, wanted, stored)
        item = writing.prepare_update(request, resource, stored, wanted, self.disabled_gates)
        if is_apply and not wanted["metadata"].get("managedFields"):
            # The last owner has let go of everything.
            item["metadata"].pop("managedFields", None)
        if resource.collection == _PODS and not request.subresource:
            admission.keep_priority(item, stored)
            admission.admit_tolerations(item)
        changes = item != stored and not (is_apply and without_times(item) == without_times(stored))
        if changes:
            writing.check_update(request, resource, item, stored)
            admission.admit_admin_access(self._store, item, stored)
        if not changes:
            return stored
        if not is_apply:
            name = request.query.get("fieldManager") or request.client or "unknown"
            manager = Manager(name, "Update", request.subresource)
            item = after_update(stored, item, writing.kind_of(resource), manager, now())
        return item

    def _put(self, request: Request, resource: Resource, item: Object) -> Object:
        """Store the changed object, or remove it with its last finalizer. The store is held."""
        metadata = item["metadata"]
        # The object goes with the write that removes the last finalizer, unless a kubelet still has to end
        # it.
        is_over = not metadata.get("finalizers") and not metadata.get("deletionGracePeriodSeconds")
        # A namespace has finalizers in its spec as well, which its controller removes.
        if resource.collection == admission.NAMESPACES and (item.get("spec") or {}).get("finalizers"):
            is_over = False
        if "deletionTimestamp" in metadata and is_over:
            self._removal.remove(resource.collection, key_of(request))
            # The answer is what was asked for, which was never stored.
            return shown(item, request.subresource)
        stored = self._store.put(resource.collection, key_of(request), item)
        self._quotas.refresh(request.namespace)
        return shown(stored, request.subresource)

    @staticmethod
    def _warn_without_effect(resource: Resource, warnings: Warnings) -> None:
        """Warn the client that the object which it writes has no effect in this cluster."""
        if resource.without_effect:
            warnings.append(
                f"a {resource.kind} has no effect in the embedded cluster: {resource.without_effect}"
            )

    def _existing(self, request: Request, resource: Resource) -> Object:
        stored = self._store.get(resource.collection, key_of(request))
        if stored is None:
            raise not_found(resource, request.name)
        return stored


def resource_of(request: Request) -> Resource:
    """The resource that the request is for; raises Refused (404, 405)."""
    resource = find_resource(request.group, request.version, request.resource)
    if resource is None or not resource.has(request.subresource) or not _is_place(request, resource):
        raise Refused(404, _why_not_found(resource, request.subresource), details={})
    # Across namespaces there is only list and watch.
    everywhere = resource.namespaced and not request.namespace
    if request.verb not in (_EVERYWHERE if everywhere else resource.verbs_of(request.subresource)):
        raise Refused(405, "the server does not allow this method on the requested resource", details={})
    return resource


def _is_place(request: Request, resource: Resource) -> bool:
    """Whether the path is one of the resource: with a namespace where it has any, and only there."""
    # Reviews are stored nowhere, so they have no objects with paths of their own.
    if request.name and not request.subresource and resource.verbs == ("create",):
        return False
    if not resource.namespaced:
        return not request.namespace
    return bool(request.namespace or not request.name)


def _why_not_found(resource: Resource | None, subresource: str) -> str:
    if resource is not None and resource.collection == _PODS and subresource in _INTO_CONTAINERS:
        return "the embedded cluster has no containers to enter: kubectl logs shows what their commands print"
    return "the server could not find the requested resource"


def body_resource(request: Request, resource: Resource) -> Resource:
    """The resource that the body is of, such as a Scale; most subresources take that of the request."""
    return subresources.KINDS.get(request.subresource, resource)


def _warn_of_preserved(resource: Resource, options: Object, warnings: Warnings) -> None:
    """Warn a client that does not say what becomes of the pods of a Job that it deletes."""
    is_said = "propagationPolicy" in options
    if resource.collection == ("batch", "jobs") and not is_said:
        text = "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background "
        warnings.append(f"{text}to remove them or set propagationPolicy=Orphan to suppress this warning")


def key_of(request: Request) -> Key:
    """Namespace and name of the object that the request is about."""
    return request.namespace, request.name
