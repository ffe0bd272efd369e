"""Answers who somebody is, what they may do, and requests for tokens; none of it is stored.

Go: kubernetes/pkg/registry/authorization and authentication, and core/serviceaccount/storage/token.go.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from envtest.embedded.access.gate import Gate
from envtest.embedded.access.tokens import AUDIENCE
from envtest.embedded.api.defaults import now
from envtest.embedded.api.reading import not_found
from envtest.embedded.api.requests import Request, User
from envtest.embedded.api.resources import Catalogue
from envtest.embedded.api.statuses import Refused, details_of, invalid
from envtest.embedded.api.store import Store
from envtest.embedded.api.verbs import Verbs
from kubernetes_rules.rbac import FULL_AUTHORITY, Access
from kubernetes_rules.validation import field as field_errors

Object = dict[str, Any]

_ACCESS, _IDENTITY = "authorization.k8s.io", "authentication.k8s.io"
_DEFAULT_SECONDS, _LEAST_SECONDS, _MOST_SECONDS = 3600, 600, 1 << 32
_ONE_OF_TWO = "exactly one of nonResourceAttributes or resourceAttributes must be specified"


class Reviews:
    """The answers; ``install`` gives them to the verbs of a server."""

    def __init__(self, gate: Gate, store: Store, catalogue: Catalogue) -> None:
        self._gate = gate
        self._store = store
        self._catalogue = catalogue

    def install(self, verbs: Verbs) -> None:
        """Answer creations of reviews and tokens from now on."""
        verbs.answers |= {
            (_ACCESS, "selfsubjectaccessreviews", ""): self._own_access,
            (_ACCESS, "subjectaccessreviews", ""): self._access,
            (_ACCESS, "localsubjectaccessreviews", ""): self._access,
            (_ACCESS, "selfsubjectrulesreviews", ""): self._own_rules,
            (_IDENTITY, "selfsubjectreviews", ""): self._own_identity,
            (_IDENTITY, "tokenreviews", ""): self._token_review,
            ("", "serviceaccounts", "token"): self._token,
        }

    def _own_access(self, request: Request, review: Object) -> Object:
        return self._decided(review, request.user, _review_errors(request, review))

    def _access(self, request: Request, review: Object) -> Object:
        spec = review.get("spec") or {}
        errors = _review_errors(request, review)
        if not spec.get("user") and not spec.get("groups"):
            text = "at least one of user or group must be specified"
            errors.append(field_errors.invalid("spec.user", "", text))
        asked = spec.get("resourceAttributes") or {}
        if request.namespace and asked and asked.get("namespace", "") != request.namespace:
            errors.append(
                field_errors.invalid(
                    "spec.resourceAttributes.namespace",
                    asked.get("namespace", ""),
                    "must match metadata.namespace",
                )
            )
        path = spec.get("nonResourceAttributes")
        if request.namespace and path is not None:
            text = "disallowed on this kind of request"
            errors.append(field_errors.invalid("spec.nonResourceAttributes", _go_form(path), text))
        extra = tuple((key, tuple(values)) for key, values in (spec.get("extra") or {}).items())
        user = User(spec.get("user", ""), tuple(spec.get("groups") or ()), spec.get("uid", ""), extra)
        return self._decided(review, user, errors)

    def _decided(self, review: Object, user: User, errors: list[field_errors.FieldError]) -> Object:
        if errors:
            # kube-apiserver takes the kind from an object that has lost it by then.
            raise invalid(_ACCESS, "", "", errors)
        allowed, reason = self._gate.decide(user, _asked(review["spec"]))
        return {**review, "status": {"allowed": allowed, **({"reason": reason} if reason else {})}}

    def _own_rules(self, request: Request, review: Object) -> Object:
        namespace = (review.get("spec") or {}).get("namespace")
        if not namespace:
            raise Refused(400, "no namespace on request")
        rules = list(FULL_AUTHORITY)
        if self._gate.has_rbac:
            rules = [grant.rule for grant in self._gate.grants(request.user, namespace)]
        status = {
            "resourceRules": [
                _picked(rule, "verbs", "apiGroups", "resources", "resourceNames")
                for rule in rules
                if rule.get("resources")
            ],
            "nonResourceRules": [
                _picked(rule, "verbs", "nonResourceURLs") for rule in rules if rule.get("nonResourceURLs")
            ],
            "incomplete": False,
        }
        return {**review, "spec": {}, "status": status}

    def _own_identity(self, request: Request, review: Object) -> Object:
        metadata = {"creationTimestamp": now()}
        return {**review, "metadata": metadata, "status": {"userInfo": user_info(request.user)}}

    def _token_review(self, _request: Request, review: Object) -> Object:
        spec = review.get("spec") or {}
        token = spec.get("token")
        if not token:
            raise Refused(400, "token is required for TokenReview in authentication")
        wanted = spec.get("audiences") or [AUDIENCE]
        found = self._gate.tokens.user_of(token, wanted)
        if found is None and AUDIENCE in wanted:
            # The tokens of users are for the API server alone.
            user = self._gate.user_of_token(token)
            found = None if user is None else (user, [AUDIENCE])
        if found is None:
            return {**review, "status": {"user": {}, "error": "invalid bearer token"}}
        status = {"authenticated": True, "user": user_info(found[0]), "audiences": found[1]}
        return {**review, "status": status}

    def _token(self, request: Request, body: Object) -> Object:
        account = self._existing("serviceaccounts", request.namespace, request.name)
        metadata, spec = body.get("metadata") or {}, body.get("spec") or {}
        seconds = spec.get("expirationSeconds")
        seconds = _DEFAULT_SECONDS if seconds is None else seconds
        audiences = spec.get("audiences") or [AUDIENCE]
        errors = [
            field_errors.invalid(
                f"metadata.{key}", metadata[key], f"must match the service account {key} if specified"
            )
            for key, value in (("name", request.name), ("namespace", request.namespace))
            if metadata.get(key) not in (None, "", value)
        ]
        if seconds < _LEAST_SECONDS:
            text = "may not specify a duration less than 10 minutes"
            errors.append(field_errors.invalid("spec.expirationSeconds", seconds, text))
        if seconds > _MOST_SECONDS:
            text = "may not specify a duration larger than 2^32 seconds"
            errors.append(field_errors.invalid("spec.expirationSeconds", seconds, text))
        if errors:
            name = request.name if errors[0].field.startswith("metadata") else ""
            raise invalid(_IDENTITY, "TokenRequest", name, errors[:1] if name else errors)
        bound = self._bound(request, spec.get("boundObjectRef"))
        token = self._gate.tokens.issue(account, seconds, audiences, **bound)
        end = (datetime.now(UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
        identity = {key: account["metadata"][key] for key in ("name", "namespace", "uid")}
        return {
            **body,
            "metadata": {**metadata, **identity, "creationTimestamp": now()},
            "spec": {"boundObjectRef": None, **spec, "audiences": audiences, "expirationSeconds": seconds},
            "status": {"token": token, "expirationTimestamp": end},
        }

    def _bound(self, request: Request, reference: Object | None) -> dict[str, Object]:
        """The objects that a token is bound to, by their kinds; a pod's node comes with the pod."""
        if reference is None:
            return {}
        kind, name = reference.get("kind", ""), reference.get("name", "")
        if reference.get("apiVersion", "v1") != "v1" or kind not in ("Pod", "Node", "Secret"):
            group, _, version = reference.get("apiVersion", "").rpartition("/")
            raise Refused(400, f"cannot bind token to object of type {group}/{version}, Kind={kind}")
        item = self._existing(f"{kind.lower()}s", "" if kind == "Node" else request.namespace, name)
        uid = reference.get("uid")
        if uid and uid != item["metadata"]["uid"]:
            text = (
                f'Operation cannot be fulfilled on {kind} "{name}": the UID in the bound object reference '
                f"({uid}) does not match the UID in record. The object might have been deleted and then "
                "recreated"
            )
            raise Refused(409, text, details=details_of("", kind, name))
        if kind != "Pod":
            return {kind.lower(): item}
        spec = item.get("spec") or {}
        if spec.get("serviceAccountName") != request.name:
            text = (
                f'cannot bind token for serviceaccount "{request.name}" to pod running with different '
                "serviceaccount name."
            )
            raise Refused(400, text)
        if not spec.get("nodeName"):
            return {"pod": item}
        node = self._store.get(("", "nodes"), ("", spec["nodeName"]))
        return {"pod": item, "node": node or {"metadata": {"name": spec["nodeName"]}}}

    def _existing(self, plural: str, namespace: str, name: str) -> Object:
        resource = self._catalogue.find("", "v1", plural)
        assert resource is not None, plural
        found = self._store.get(resource.collection, (namespace, name))
        if found is None:
            raise not_found(resource, name)
        return found


def user_info(user: User) -> Object:
    """A user as authentication.k8s.io/v1 UserInfo."""
    info: Object = {"username": user.name}
    if user.uid:
        info["uid"] = user.uid
    if user.groups:
        info["groups"] = list(user.groups)
    if user.extra:
        info["extra"] = {key: list(values) for key, values in user.extra}
    return info


def _asked(spec: Object) -> Access:
    asked = spec.get("resourceAttributes")
    if asked is None:
        asked = spec["nonResourceAttributes"]
        return Access(asked.get("verb", ""), path=asked.get("path", ""))
    names = ("verb", "group", "resource", "subresource", "namespace", "name")
    return Access(**{name: asked.get(name, "") for name in names})


def _review_errors(request: Request, review: Object) -> list[field_errors.FieldError]:
    spec, errors = review.get("spec") or {}, []
    asked = [
        spec[key] for key in ("resourceAttributes", "nonResourceAttributes") if spec.get(key) is not None
    ]
    if len(asked) != 1:
        errors.append(field_errors.invalid("spec", _go_form(spec.get("nonResourceAttributes")), _ONE_OF_TWO))
    allowed = ("managedFields", "namespace") if request.namespace else ("managedFields",)
    metadata = {key: value for key, value in (review.get("metadata") or {}).items() if key not in allowed}
    if metadata:
        but = " except for namespace" if request.namespace else ""
        errors.append(field_errors.invalid("metadata", metadata, f"must be empty{but}"))
    return errors


def _go_form(attributes: Object | None) -> Object | None:
    """Attributes of a path with the names that Go has for their fields, as messages show them."""
    return attributes and {name: attributes.get(name.lower(), "") for name in ("Path", "Verb")}


def _picked(rule: Any, *fields: str) -> Object:
    return {field: list(rule[field]) for field in fields if rule.get(field)}
