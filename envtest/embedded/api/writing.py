"""The rules of a write: reads the body, fills in what the server decides, and checks the result."""

from __future__ import annotations

import secrets
import uuid
from typing import Any

from envtest.embedded.api import subresources
from envtest.embedded.api.defaults import default_status, defaulted, first_status, now
from envtest.embedded.api.requests import MOST_DIGITS, Request
from envtest.embedded.api.resources import Resource
from envtest.embedded.api.statuses import Refused, details_of, invalid, not_registered, plain_go_error
from envtest.embedded.schema.decoding import Decoder, DecodingError
from envtest.embedded.schema.types import FieldType, type_of, zero_of
from kubernetes_rules.validation import field as field_errors
from kubernetes_rules.validation.dra_kinds import status_update_errors_of
from kubernetes_rules.validation.field import FieldError, unique
from kubernetes_rules.validation.kinds import created_errors, updated_errors
from kubernetes_rules.validation.pods import pod_status_errors

Object = dict[str, Any]

# A name of 63 characters, which fits into a label, has five random ones (apimachinery, names.generate).
_NAME_BASE_CHARACTERS = 58
_FREE_METADATA = ("labels", "annotations", "finalizers", "ownerReferences")
_KEPT_BY_STATUS = {
    "deployments": ("labels",),
    "pods": ("ownerReferences",),
    **dict.fromkeys(("resourceclaims", "devicetaintrules"), _FREE_METADATA),
}
"""The metadata that a write of the status leaves alone; of all other kinds it can change them, too."""

_KEPT_METADATA = (
    "name",
    "namespace",
    "uid",
    "creationTimestamp",
    "generation",
)
_KEPT_AT_DELETION = ("deletionTimestamp", "deletionGracePeriodSeconds")
# Without vowels and digits that look like them: no words come about (apimachinery, util/rand).
_NAME_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_GENERATION = frozenset(
    {
        *("pods", "resourceslices", "deviceclasses", "devicetaintrules"),
        *("deployments", "replicasets", "daemonsets", "jobs", "poddisruptionbudgets"),
        *("priorityclasses", "networkpolicies", "statefulsets", "endpointslices"),
    }
)
_CONDITIONAL_UPDATE = frozenset(
    {
        *("leases", "poddisruptionbudgets", "devicetaintrules"),
    }
)
"""The resources that cannot be updated without a resourceVersion (AllowUnconditionalUpdate)."""

_MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"

_OTHER_NAMESPACE = "the namespace of the provided object does not match the namespace sent on the request"
_OF_CONTENT = ("", subresources.SCALE)
"""The subresources (empty: the object itself) whose writes change the spec."""


def kind_of(resource: Resource) -> FieldType:
    """The type of a resource's objects."""
    found = type_of(resource.api_version, resource.kind)
    assert found is not None, resource
    return found


def read_body(request: Request, resource: Resource, body: Any, warnings: list[str]) -> Object:
    """A body as its own copy, without unknown fields; raises Refused (400).

    Unknown fields are refused, warned of or ignored as the query's ``fieldValidation`` says.
    """
    if not isinstance(body, dict):
        raise Refused(400, "the body of the request has to be an object")
    head = f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: '
    try:
        item, problems = _decoded(resource, body)
    except DecodingError as error:
        raise Refused(400, f"{head}{error}") from error
    # Warn is what the server does where the client does not say.
    mode = request.query.get("fieldValidation") or "Warn"
    if problems and mode == "Strict":
        raise Refused(400, f"{head}strict decoding error: {', '.join(problems)}")
    if mode == "Warn":
        warnings += problems
    return _placed(request, resource, item)


def _placed(request: Request, resource: Resource, item: Object) -> Object:
    """An object that was read, in the form in which it is stored; raises Refused (400)."""
    metadata = item.setdefault("metadata", {})
    if request.namespace and (metadata.get("namespace") or request.namespace) != request.namespace:
        raise Refused(400, _OTHER_NAMESPACE)
    if not resource.namespaced:
        metadata.pop("namespace", None)
    return item


def _decoded(resource: Resource, body: Object) -> tuple[Object, list[str]]:
    """An object by its type, and what strict decoding refuses of it; raises DecodingError."""
    api_version, kind = found = (
        body.get("apiVersion") or resource.api_version,
        body.get("kind") or resource.kind,
    )
    if found != (resource.api_version, resource.kind):
        if isinstance(kind, str) and isinstance(api_version, str) and type_of(api_version, kind) is not None:
            raise DecodingError(f"it is a {kind} of {api_version}")
        raise DecodingError(not_registered(kind, api_version))
    decoder = Decoder()
    item: Object = decoder.decode(body, kind_of(resource))
    return item | {"apiVersion": api_version, "kind": kind}, decoder.problems


def read_config(request: Request, resource: Resource, body: Any) -> Object:
    """What is to be applied, as its own copy; raises Refused (400; 500 for wrong fields, as Kubernetes)."""
    if not isinstance(body, dict | None):
        raise Refused(400, f"error decoding patch: it is a {type(body).__name__}, no object")
    config = body or {}
    if isinstance(config.get("metadata"), dict) and config["metadata"].get("managedFields") is not None:
        raise Refused(400, "metadata.managedFields must be nil")
    found = (config.get("apiVersion"), config.get("kind"))
    if found != (resource.api_version, resource.kind):
        raise Refused(400, f"invalid object type: {found[0]}, Kind={found[1]}")
    decoder = Decoder(completes=False)
    try:
        item: Object = decoder.decode(config, kind_of(resource)) | {"apiVersion": found[0], "kind": found[1]}
    except DecodingError as error:
        raise plain_go_error(f"failed to create typed patch object: {error}") from error
    if decoder.problems:
        raise plain_go_error(f"failed to create typed patch object: {', '.join(decoder.problems)}")
    return _placed(request, resource, item)


def check_place(request: Request, resource: Resource, config: Object, *, is_new: bool) -> None:
    """Check that the config is about the object in the request's path; raises Refused (400, 409)."""
    metadata = config["metadata"]
    if is_new:
        nobody = {"metadata": {"name": request.name, "uid": ""}}
        check_preconditions(resource, nobody, {"uid": metadata.get("uid")})
    if is_new or metadata.get("name"):
        check_name(request, metadata)


def read_patched(
    request: Request, resource: Resource, item: Object, problems: list[str], warnings: list[str]
) -> Object:
    """An object as a patch has made it, without unknown fields; raises Refused (400, 422).

    ``problems`` are those of the patch itself (strict validation).
    """
    try:
        item, unknown = _decoded(resource, item)
    except DecodingError as error:
        raise invalid("", "", "", [field_errors.invalid("patch", None, str(error))]) from error
    problems = problems + unknown
    mode = request.query.get("fieldValidation") or "Warn"
    if problems and mode == "Strict":
        text = f"strict decoding error: {', '.join(problems)}"
        raise invalid("", "", "", [field_errors.invalid("patch", None, text)])
    if mode == "Warn":
        # Each attempt finds the same; one warning is enough.
        warnings += [text for text in problems if text not in warnings]
    item = _placed(request, resource, item)
    check_name(request, item["metadata"])
    return item


def check_name(request: Request, metadata: Object) -> None:
    """Raises Refused (400) when an object that is to replace another has not its name."""
    if not metadata.get("name"):
        head = f"the name of the object ({request.name} based on URL) was undeterminable"
        raise Refused(400, f"{head}: name must be provided")
    if metadata["name"] != request.name:
        head = f"the name of the object ({metadata['name']}) does not match"
        raise Refused(400, f"{head} the name on the URL ({request.name})")


def completed(resource: Resource, item: Object) -> Object:
    """A copy of an object that was put together, with what Go's json always writes."""
    decoded: Object = Decoder().decode(item, kind_of(resource))
    return decoded


def prepare_create(
    request: Request, resource: Resource, item: Object, disabled_gates: frozenset[str]
) -> Object:
    """The new object with name, UID, time, defaults and first status; changed in place."""
    metadata = item["metadata"]
    if not metadata.get("name") and metadata.get("generateName"):
        suffix = "".join(secrets.choice(_NAME_ALPHABET) for _ in range(5))
        metadata["name"] = metadata["generateName"][:_NAME_BASE_CHARACTERS] + suffix
    if request.namespace:
        metadata["namespace"] = request.namespace
    else:
        metadata.pop("namespace", None)
    for name in ("resourceVersion", "selfLink", *_KEPT_AT_DELETION):
        metadata.pop(name, None)
    # Whatever the client said of these fields does not count.
    metadata["uid"] = str(uuid.uuid4())
    metadata["creationTimestamp"] = now()
    if resource.plural in _GENERATION:
        metadata["generation"] = 1
    # A kubelet registers its Node together with a status; of other kinds a new object has none of its own.
    if resource.plural != "nodes":
        item.pop("status", None)
    item = defaulted(item, resource.plural, disabled_gates, None)
    kind = kind_of(resource).fields.get("status")
    if kind is not None and kind.unset and "status" not in item:
        item["status"] = {**zero_of(kind), **first_status(resource.plural, item)}
    return item


def check_create(resource: Resource, item: Object) -> None:
    """Raises Refused (422) when the new object is against the rules."""
    _refuse(resource, item, created_errors(resource.group, item, namespaced=resource.namespaced))


def prepare_update(
    request: Request, resource: Resource, stored: Object, wanted: Object, disabled_gates: frozenset[str]
) -> Object:
    """``stored`` after the update: a write of the status changes the status alone, others all else."""
    old = stored["metadata"]
    if request.subresource == "status":
        item = _with_status(resource, stored, wanted)
    elif request.subresource == "finalize":
        # Nothing but the finalizers of a namespace is written through this subresource.
        finalizers = (wanted.get("spec") or {}).get("finalizers") or []
        item = {**stored, "spec": {**(stored.get("spec") or {}), "finalizers": finalizers}}
        if not finalizers:
            del item["spec"]["finalizers"]
        item["metadata"] = dict(stored["metadata"])
    else:
        item = _with_content(stored, wanted)
    metadata = item["metadata"]
    # Owners that a client leaves out stay as they are.
    if not metadata.get("managedFields"):
        metadata.pop("managedFields", None)
        if "managedFields" in old:
            metadata["managedFields"] = old["managedFields"]
    # Put in here, so that an update that changes nothing is equal to what is stored.
    metadata["resourceVersion"] = old["resourceVersion"]
    if request.subresource in _OF_CONTENT:
        item = defaulted(item, resource.plural, disabled_gates, stored)
        if "generation" in old and _is_other(resource, item, stored):
            item["metadata"]["generation"] = old["generation"] + 1
    return item


def _needs_version(request: Request, resource: Resource) -> bool:
    """Whether the object cannot be updated without saying its version."""
    return resource.plural in _CONDITIONAL_UPDATE and request.subresource != subresources.SCALE


def _is_other(resource: Resource, item: Object, stored: Object) -> bool:
    """Whether metadata.generation counts the change: of the spec, or a Deployment's annotations."""
    if item.get("spec") != stored.get("spec"):
        return True
    annotations = [one["metadata"].get("annotations") or {} for one in (item, stored)]
    return resource.plural == "deployments" and annotations[0] != annotations[1]


def _with_status(resource: Resource, stored: Object, wanted: Object) -> Object:
    """The stored object with the wanted status, and for most kinds with the wanted metadata."""
    old = stored["metadata"]
    item = {**stored, "status": wanted.get("status"), "metadata": _with_identity(wanted["metadata"], old)}
    if item["status"] is None:
        del item["status"]
    for name in _KEPT_BY_STATUS.get(resource.plural, ()):
        item["metadata"].pop(name, None)
        if name in old:
            item["metadata"][name] = old[name]
    if resource.plural == "resourceclaims":
        _drop_deallocated(item, stored)
    elif resource.plural in ("pods", "nodes", "namespaces"):
        default_status(item, stored)
    return item


def _with_content(stored: Object, wanted: Object) -> Object:
    """The wanted object with the identity of the stored one, and with its status if that is written apart."""
    item = {key: value for key, value in wanted.items() if key != "status"}
    if "status" in stored:
        item["status"] = stored["status"]
    item["metadata"] = _with_identity(wanted["metadata"], stored["metadata"])
    return item


def _with_identity(metadata: Object, old: Object) -> Object:
    """The wanted metadata, with what no client can change as it was."""
    found = {key: value for key, value in metadata.items() if key not in (*_KEPT_METADATA, "selfLink")}
    return found | {key: old[key] for key in (*_KEPT_METADATA, *_KEPT_AT_DELETION) if key in old}


def check_update(request: Request, resource: Resource, item: Object, stored: Object) -> None:
    """Check an update; raises Refused (422)."""
    errors: list[FieldError] = []
    if request.subresource in _OF_CONTENT:
        errors = updated_errors(resource.group, item, stored, namespaced=resource.namespaced)
    elif request.subresource == "status" and resource.group == "resource.k8s.io":
        errors = status_update_errors_of(item, stored)
    elif (request.subresource, resource.plural) == ("status", "pods"):
        errors = unique(pod_status_errors(item, stored))
    _refuse(resource, item, errors)


def _refuse(resource: Resource, item: Object, errors: list[FieldError]) -> None:
    if errors:
        raise invalid(resource.group, item["kind"], item["metadata"].get("name") or "", errors)


def check_update_preconditions(request: Request, resource: Resource, stored: Object, wanted: Object) -> None:
    """Raises Refused when an update is of another object (409), or of another version (409, 422, 500)."""
    text = wanted.get("resourceVersion") or "0"
    if not (text.isdecimal() and text.isascii() and len(text) <= MOST_DIGITS):
        raise plain_go_error(f'strconv.ParseUint: parsing "{text}": invalid syntax')
    check_preconditions(resource, stored, {**wanted, "resourceVersion": text if int(text) else ""})
    if int(text) == 0 and _needs_version(request, resource):
        errors = [field_errors.invalid("metadata.resourceVersion", 0, "must be specified for an update")]
        raise invalid(resource.group, resource.plural, request.name, errors)


def check_preconditions(resource: Resource, stored: Object, wanted: Object, kind: str = "") -> None:
    """Raises Refused (409) when the object is another one, or has changed since.

    ``kind`` is what the answer says that it is about, by default the name of the resource.
    """
    metadata = stored["metadata"]
    for name, text in (
        ("uid", "Precondition failed: the UID is another one"),
        ("resourceVersion", _MODIFIED),
    ):
        if wanted.get(name) and wanted[name] != metadata[name]:
            head = f'Operation cannot be fulfilled on {resource.qualified_name} "{metadata["name"]}": '
            details = details_of(resource.group, kind or resource.plural, metadata["name"])
            raise Refused(409, head + text, details=details)


def check_applied_identity(resource: Resource, stored: Object, config: Object) -> None:
    """Raises Refused (422) when an apply names the UID of another object than the one that is there."""
    uid = config["metadata"].get("uid")
    if uid and uid != stored["metadata"]["uid"]:
        errors = [field_errors.invalid("metadata.uid", uid, "field is immutable")]
        raise invalid(resource.group, resource.kind, stored["metadata"]["name"], errors)


def _drop_deallocated(claim: Object, stored: Object) -> None:
    """Remove the status of devices that are no longer allocated, as the API server does."""
    status = claim.get("status") or {}
    lost = _allocated(stored) - _allocated(claim)
    devices = status.get("devices") or []
    kept = [device for device in devices if _device_id(device) not in lost]
    if len(kept) != len(devices):
        claim["status"] = {key: value for key, value in status.items() if key != "devices"}
        if kept:
            claim["status"]["devices"] = kept


def _allocated(claim: Object) -> set[tuple[str, ...]]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    return {_device_id(result) for result in (allocation.get("devices") or {}).get("results") or []}


def _device_id(holder: Object) -> tuple[str, ...]:
    return tuple(holder.get(key) or "" for key in ("driver", "pool", "device", "shareID"))
