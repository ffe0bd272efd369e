"""What a webhook is asked and may answer: AdmissionReview of admission.k8s.io, versions v1 and v1beta1.

Go: k8s.io/apiserver, pkg/admission/plugin/webhook/request/admissionreview.go and errors/statuserror.go.
"""

from __future__ import annotations

import base64
import binascii
import json
import string
from dataclasses import dataclass
from typing import Any

from envtest.embedded.admission.writes import kind_of
from envtest.embedded.api.resources import Resource
from envtest.embedded.api.statuses import Refused, not_registered, status_body
from envtest.embedded.schema.bodies import BodyError, object_of, read_json
from kubernetes_rules.admission.writes import Write

Object = dict[str, Any]

_GROUP = "admission.k8s.io"
REVIEW_VERSIONS = ("v1", "v1beta1")
"""The versions of AdmissionReview that an API server sends."""

_API_VERSIONS = tuple(f"{_GROUP}/{version}" for version in REVIEW_VERSIONS)
_KIND = "AdmissionReview"
_BAD_REQUEST = 400
_JSON_PATCH = "JSONPatch"


class Misunderstood(Exception):
    """A webhook answered something that is no valid AdmissionReview."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer of a webhook: whether it allows the write, else the Status to answer with.

    ``patch`` has the operations of a JSON patch, which may be none. ``warnings`` are for the client.
    """

    allowed: bool
    result: Object
    patch: tuple[Any, ...] = ()
    warnings: tuple[str, ...] = ()


def review_of(write: Write, resource: Resource, called: Resource, version: str, uid: str) -> Object:
    """The AdmissionReview about a write to a resource.

    ``called`` is the resource that the webhook's rules name; it differs from that of the request where the
    webhook takes equivalent ones.
    """
    subresource = write.subresource
    optional = {"subResource": subresource, "requestSubResource": subresource, "name": write.name}
    body: Object = {
        "uid": uid,
        "kind": kind_of(called, subresource),
        "resource": _shown(called),
        "requestKind": kind_of(resource, subresource),
        "requestResource": _shown(resource),
        **{key: value for key, value in (*optional.items(), ("namespace", write.namespace)) if value},
        "operation": write.operation,
        "userInfo": write.user,
        "object": write.item,
        "oldObject": write.old,
        "dryRun": write.is_dry,
        "options": write.options,
    }
    return {"kind": _KIND, "apiVersion": f"{_GROUP}/{version}", "request": body}


def _shown(resource: Resource) -> Object:
    return {"group": resource.group, "version": resource.version, "resource": resource.plural}


def verdict_of(data: bytes, version: str, uid: str, name: str, *, mutates: bool) -> Verdict:
    """What a webhook answered, from the body of its answer; raises Misunderstood.

    ``name`` is that of the webhook, for the message of a denial.
    """
    try:
        review = _parsed(data, version)
        response = review.get("response") or {}
        patch = base64.b64decode(response.get("patch") or "", validate=True)
    except binascii.Error as error:
        text = "illegal base64 data at input byte"
        raise Misunderstood(f"failed to call webhook: {text} {_wrong_byte(response['patch'])}") from error
    except (BodyError, AttributeError, TypeError) as error:
        text = f"couldn't get version/kind; json parse error: {error}"
        raise Misunderstood(f"failed to call webhook: {text}") from error
    if not response:
        raise Misunderstood("received invalid webhook response: webhook response was absent")
    if version == "v1":
        _check(review, response, uid, mutates=mutates)
    return Verdict(
        allowed=response.get("allowed") is True,
        result=_denial(name, response.get("status") or {}),
        patch=_operations(patch, response.get("patchType") or _JSON_PATCH) if mutates and patch else (),
        warnings=tuple(response.get("warnings") or ()),
    )


def _parsed(data: bytes, version: str) -> Object:
    """The AdmissionReview in the body; raises Misunderstood and BodyError."""
    review = object_of(read_json(data))
    found, kind = review.get("apiVersion"), review.get("kind")
    if found and kind and (found not in _API_VERSIONS or kind != _KIND):
        raise Misunderstood(f"failed to call webhook: {not_registered(kind, found)}")
    if found and kind and found != f"{_GROUP}/{version}":
        names = f"({found.rpartition('/')[2]}.{_KIND}) to ({version}.{_KIND})"
        raise Misunderstood(f"failed to call webhook: converting {names}: unknown conversion")
    return review


def _wrong_byte(text: str) -> int:
    """Where Go finds the first fault of base64: a foreign character, or the end."""
    known = f"{string.ascii_letters}{string.digits}+/="
    foreign = (index for index, one in enumerate(text) if one not in known)
    return next(foreign, len(text))


def _check(review: Object, response: Object, uid: str, *, mutates: bool) -> None:
    """Raises Misunderstood where the answer breaks a rule of v1, which v1beta1 does not have."""
    patch, patch_type = response.get("patch"), response.get("patchType")
    group, _, version = str(review.get("apiVersion") or "/").rpartition("/")
    found = f"{group}/{version}, Kind={review.get('kind') or ''}"
    wanted = f"{_GROUP}/v1, Kind={_KIND}"
    if response.get("uid") != uid:
        text = f'expected response.uid="{uid}", got "{response.get("uid") or ""}"'
    elif found != wanted:
        text = f"expected webhook response of {wanted}, got {found}"
    elif not mutates and patch:
        text = "validating webhook may not return response.patch"
    elif not mutates and patch_type is not None:
        text = "validating webhook may not return response.patchType"
    elif patch and patch_type is None:
        text = "webhook returned response.patch but not response.patchType"
    elif not patch and patch_type is not None:
        text = "webhook returned response.patchType but not response.patch"
    elif patch_type == "":
        text = 'webhook returned invalid response.patchType of ""'
    else:
        return
    raise Misunderstood(f"received invalid webhook response: {text}")


def _operations(patch: bytes, patch_type: str) -> tuple[Any, ...]:
    if patch_type != _JSON_PATCH:
        raise Misunderstood(f'unsupported patch type "{patch_type}"')
    try:
        operations = json.loads(patch)
    except ValueError as error:
        raise Misunderstood(f"received undecodable patch in webhook response: {error}") from error
    if not isinstance(operations, list) or not all(isinstance(one, dict) for one in operations):
        text = "json: cannot unmarshal object into Go value of type jsonpatch.Patch"
        raise Misunderstood(f"received undecodable patch in webhook response: {text}")
    return tuple(operations)


def _denial(name: str, status: Object) -> Object:
    """The Status with which a denied write is answered (ToStatusErr)."""
    code, message, reason = status.get("code") or 0, status.get("message"), status.get("reason")
    text = f'admission webhook "{name}" denied the request'
    text += f": {message or reason}" if message or reason else " without explanation"
    return status_body(max(code, _BAD_REQUEST), text, reason or "", status.get("details"))


def refused_by(verdict: Verdict) -> Refused:
    """The refusal of a write that a webhook denied."""
    result = verdict.result
    return Refused(result["code"], result["message"], result.get("reason", ""), result.get("details"))
