"""Finds out who sends a request and whether they may: authentication, impersonation, authorization.

In the order of kube-apiserver's filters (k8s.io/apiserver, pkg/endpoints/filters).
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from envtest.embedded.access.impersonation import ANONYMOUS, AUTHENTICATED, impersonated
from envtest.embedded.access.tokens import ServiceAccountTokens
from envtest.embedded.api.requests import ADMIN, Request, User
from envtest.embedded.api.statuses import Refused, details_of
from envtest.embedded.api.store import Store
from envtest.embedded.api.wire import HttpRequest
from kubernetes_rules.rbac import MASTERS, Access, Grant, Policy, forbidden_text

Object = dict[str, Any]

_RBAC = "rbac.authorization.k8s.io"
_NAME_FIELD = re.compile(r"(?:^|,)metadata\.name==?([^,]+)(?:,|$)")
_BEARER = re.compile(r"Bearer\s+(\S+)", re.IGNORECASE)


class Gate:
    """Lets requests in. Thread-safe.

    Everybody on this machine can connect, so a client has to show a token: ``admin_bearer``, one of
    ``add_user``, or one of a service account (``tokens``). Other tokens are refused (401), and so is none.
    With RBAC roles decide, and who shows none is anonymous; without it who shows one may do everything.
    """

    def __init__(self, store: Store, *, rbac: bool) -> None:
        self.admin_bearer = secrets.token_hex(16)
        self.tokens = ServiceAccountTokens(store)
        self.has_rbac = rbac
        self._store = store
        self._users: dict[str, User] = {}

    def add_user(self, user: User) -> str:
        """A new token of a user."""
        token = secrets.token_hex(16)
        self._users[token] = user
        return token

    def admit(
        self, head: HttpRequest, request: Request | None, certificate: Mapping[str, Any] | None
    ) -> User:
        """The user on whose behalf a request comes.

        ``certificate`` is that of the client, as Python's ssl shows it. Raises Refused (400, 401, 403).
        """
        access = access_of(head, request)
        user = impersonated(head, self._authenticated(head, certificate), access, self.check)
        self.check(user, access)
        return user

    def check(self, user: User, access: Access) -> None:
        """Raises Refused (403) where the user may not do it."""
        allowed, reason = self.decide(user, access)
        if not allowed:
            raise _forbidden(user, access, reason)

    def decide(self, user: User, access: Access) -> tuple[bool, str]:
        """Whether the user may do it, and the reason, which may be empty."""
        if not self.has_rbac or MASTERS in user.groups:
            return True, ""
        return self.policy(access.namespace).decide(user.name, user.groups, access)

    def grants(self, user: User, namespace: str) -> Iterator[Grant]:
        """The rules that the user has in a namespace (empty: everywhere)."""
        return self.policy(namespace).grants(user.name, user.groups, namespace)

    def policy(self, namespace: str) -> Policy:
        """The roles and bindings that count in a namespace (empty: in the whole cluster)."""
        everywhere = [item for _, item in self._store.items((_RBAC, "clusterrolebindings"))]
        inside = self._store.in_namespace((_RBAC, "rolebindings"), namespace) if namespace else []
        return Policy(everywhere, inside, self.rules_of)

    def rules_of(self, kind: str, namespace: str, name: str) -> Sequence[Object] | None:
        """The rules of a Role or ClusterRole; None where there is none of that name."""
        plural = "roles" if kind == "Role" else "clusterroles"
        found = self._store.get((_RBAC, plural), (namespace, name))
        return None if found is None else found.get("rules") or ()

    def _authenticated(self, head: HttpRequest, certificate: Mapping[str, Any] | None) -> User:
        if certificate:
            return certified(certificate)
        shown = _BEARER.fullmatch(head.header("authorization"))
        if shown is None and self.has_rbac:
            return ANONYMOUS
        user = None if shown is None else self.user_of_token(shown[1])
        if user is None:
            raise Refused(401, "Unauthorized")
        return user

    def user_of_token(self, token: str) -> User | None:
        """The user with the token; None for an unknown token."""
        if token == self.admin_bearer:
            return ADMIN
        known = self._users.get(token)
        if known is not None:
            return known
        found = self.tokens.user_of(token)
        return None if found is None else found[0]


def certified(certificate: Mapping[str, Any]) -> User:
    """The user of a client certificate: its common name, with its organizations as groups."""
    parts = [pair for name in certificate.get("subject") or () for pair in name]
    name = next((value for key, value in parts if key == "commonName"), "")
    groups = tuple(value for key, value in parts if key == "organizationName")
    return User(name, (*groups, AUTHENTICATED))


def access_of(head: HttpRequest, request: Request | None) -> Access:
    """What a request asks to do (apiserver: RequestInfo); ``request`` is None for a path of no resource."""
    if request is None:
        return Access(head.method.lower(), path=head.target.partition("?")[0])
    namespace, name = request.namespace, request.name
    if (request.group, request.resource) == ("", "namespaces"):
        # A namespace lies in itself, so rights inside it can cover it.
        namespace = name
    if not name and request.verb in ("list", "watch"):
        match = _NAME_FIELD.search(request.query.get("fieldSelector", ""))
        name = "" if match is None else match[1]
    return Access(request.verb or "", request.group, request.resource, request.subresource, namespace, name)


def _forbidden(user: User, access: Access, reason: str) -> Refused:
    text = forbidden_text(user.name, access) + (f": {reason}" if reason else "")
    if access.path:
        return Refused(403, f"forbidden: {text}", details={})
    resource = f"{access.resource}.{access.group}" if access.group else access.resource
    head = f'{resource} "{access.name}"' if access.name else resource
    details = details_of(access.group, access.resource, access.name)
    return Refused(403, f"{head} is forbidden: {text}", details=details)
