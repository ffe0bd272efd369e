"""Says in the words of admission what a request writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from envtest.embedded.access.gate import Gate
from envtest.embedded.api.admission import NAMESPACES, Attributes
from envtest.embedded.api.reading import shown
from envtest.embedded.api.requests import User
from envtest.embedded.api.resources import Catalogue, Resource
from kubernetes_rules.admission.writes import Write
from kubernetes_rules.rbac import Access

if TYPE_CHECKING:
    from kubernetes_rules.cel.library_authorization import Authorize, Check

Object = dict[str, Any]

_OPTIONS = {"CREATE": "CreateOptions", "UPDATE": "UpdateOptions", "DELETE": "DeleteOptions"}
"""The kinds of options by operation; a patch is an update here, too."""


def write_of(attributes: Attributes, catalogue: Catalogue, called: Resource | None = None) -> Write:
    """A write as rules and expressions see it.

    ``called`` is another resource of the same objects, in whose version they are to be.
    """
    resource, request = attributes.resource, attributes.request
    item, old = (
        None if one is None else form_of(attributes, called or resource, one)
        for one in (attributes.item, attributes.old)
    )
    return Write(
        group=resource.group,
        version=resource.version,
        kind=kind_of(resource, request.subresource)["kind"],
        resource=resource.plural,
        subresource=request.subresource,
        namespace=_namespace_of(attributes),
        name=attributes.name,
        operation=attributes.operation,
        item=item,
        old=old,
        user=_user_info(request.user),
        options=_options_of(attributes),
        is_dry=attributes.is_dry,
        is_custom=False,
        others=_others(resource, catalogue),
    )


def may(gate: Gate) -> Authorize:
    """Says whether the user of an expression may do something, and the reason."""

    def decide(check: Check) -> tuple[bool, str]:
        user = User(check.user["username"], tuple(check.user.get("groups") or ()))
        place = (check.group, check.resource, check.subresource, check.namespace, check.name, check.path)
        return gate.decide(user, Access(check.verb, *place))

    return decide


def form_of(attributes: Attributes, called: Resource, item: Object) -> Object:
    """An object as admission sees it: in the version of ``called``, complete where a client's body is not."""
    request = attributes.request
    kind = kind_of(called, request.subresource)
    version = f"{kind['group']}/{kind['version']}" if kind["group"] else kind["version"]
    form = {"kind": kind["kind"], "apiVersion": version, **shown(called, item, request.subresource)}
    if request.namespace:
        form["metadata"] = {**(form.get("metadata") or {}), "namespace": request.namespace}
    return form


def kind_of(resource: Resource, subresource: str) -> dict[str, str]:
    """Group, version and kind of the body of a write to a resource or its subresource."""
    kind = next((kind for name, kind, _ in resource.subresources if name == subresource), resource.kind)
    group, version = resource.group_version_of(kind)
    return {"group": group, "version": version, "kind": kind}


def _namespace_of(attributes: Attributes) -> str:
    """The namespace of the object; that of a Namespace is its own name."""
    is_namespace = attributes.resource.collection == NAMESPACES
    return attributes.name if is_namespace else attributes.request.namespace


def _user_info(user: User) -> Object:
    """The UserInfo of authentication.k8s.io."""
    fields = {"username": user.name, "groups": list(user.groups)}
    extra = {"authentication.kubernetes.io/node-name": [user.node]} if user.node else {}
    return {key: value for key, value in (*fields.items(), ("extra", extra)) if value}


def _others(resource: Resource, catalogue: Catalogue) -> tuple[tuple[str, str], ...]:
    """The other groups and versions under which the same objects are served."""
    if resource.plural != "events":
        return ()
    equals = (one for one in catalogue.resources if one.collection == resource.collection)
    return tuple((one.group, one.version) for one in equals if one != resource)


def _options_of(attributes: Attributes) -> Object:
    query = attributes.request.query
    options = {key: value for key, value in attributes.options.items() if key not in ("kind", "apiVersion")}
    if attributes.is_dry:
        options["dryRun"] = ["All"]
    if attributes.operation != "DELETE":
        options |= {name: query[name] for name in ("fieldManager", "fieldValidation") if name in query}
    return {"kind": _OPTIONS[attributes.operation], "apiVersion": "meta.k8s.io/v1", **options}
