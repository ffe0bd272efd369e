"""Finds out who sends a request, by their token, and whether roles let them.

In the order of kube-apiserver's filters (k8s.io/apiserver, pkg/endpoints/filters).
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from typing import Any

from envtest.embedded.api.requests import ADMIN, Request, User
from envtest.embedded.api.statuses import Refused, details_of
from envtest.embedded.api.store import Store
from envtest.embedded.api.wire import HttpRequest
from kubernetes_rules.rbac import MASTERS, SERVICE_ACCOUNTS, Access, Policy, forbidden_text

Object = dict[str, Any]

_RBAC = "rbac.authorization.k8s.io"
_NAME_FIELD = re.compile(r"(?:^|,)metadata\.name==?([^,]+)(?:,|$)")
_BEARER = re.compile(r"Bearer\s+(\S+)", re.IGNORECASE)
_AUTHENTICATED = "system:authenticated"
_PROBES = ("/healthz", "/livez", "/readyz")
_EVERYBODY: dict[str, Object] = {
    "system:basic-user": {
        "apiGroups": ["authorization.k8s.io"],
        "resources": ["selfsubjectaccessreviews"],
        "verbs": ["create"],
    },
    "system:discovery": {
        "nonResourceURLs": ["/api", "/api/*", "/apis", "/apis/*", "/openapi/*", "/version", *_PROBES],
        "verbs": ["get"],
    },
}
"""What every authenticated user may do: the rules of two of the roles that kube-apiserver makes."""


class Gate:
    """Lets requests in. Thread-safe.

    Everybody on this machine can connect, so a client has to show a token: ``admin_bearer``, or one of
    ``add_user``. Other tokens are refused (401), and so is none.
    """

    def __init__(self, store: Store) -> None:
        self.admin_bearer = secrets.token_hex(16)
        self._store = store
        self._users: dict[str, User] = {}

    def add_user(self, user: User) -> str:
        """A new token of a user."""
        token = secrets.token_hex(16)
        self._users[token] = user
        return token

    def add_account(self, namespace: str, name: str, node: str) -> str:
        """A new token of a service account, as a pod on the node has it."""
        groups = "system:serviceaccounts", f"system:serviceaccounts:{namespace}", _AUTHENTICATED
        return self.add_user(User(f"{SERVICE_ACCOUNTS}{namespace}:{name}", groups, node))

    def admit(self, head: HttpRequest, request: Request | None) -> User:
        """The user who sends a request; raises Refused (401, 403)."""
        shown = _BEARER.fullmatch(head.header("authorization"))
        token = "" if shown is None else shown[1]
        user = ADMIN if token == self.admin_bearer else self._users.get(token)
        if user is None:
            raise Refused(401, "Unauthorized")
        access = access_of(head, request)
        allowed, reason = self.decide(user, access)
        if not allowed:
            raise _forbidden(user, access, reason)
        return user

    def decide(self, user: User, access: Access) -> tuple[bool, str]:
        """Whether the user may do it, and the reason, which may be empty."""
        if MASTERS in user.groups:
            return True, ""
        return self.policy(access.namespace).decide(user.name, user.groups, access)

    def policy(self, namespace: str) -> Policy:
        """The roles and bindings that count in a namespace (empty: in the whole cluster)."""
        everywhere = [item for _, item in self._store.items((_RBAC, "clusterrolebindings"))]
        inside = self._store.in_namespace((_RBAC, "rolebindings"), namespace) if namespace else []
        return Policy([*_BINDINGS, *everywhere], inside, self._rules_of)

    def _rules_of(self, kind: str, namespace: str, name: str) -> Sequence[Object] | None:
        plural = "roles" if kind == "Role" else "clusterroles"
        found = self._store.get((_RBAC, plural), (namespace, name))
        if found is None and kind == "ClusterRole" and name in _EVERYBODY:
            return (_EVERYBODY[name],)
        return None if found is None else found.get("rules") or ()


_BINDINGS: list[Object] = [
    {
        "metadata": {"name": name},
        "roleRef": {"kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "Group", "name": _AUTHENTICATED}],
    }
    for name in _EVERYBODY
]


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
    return Access(request.verb, request.group, request.resource, request.subresource, namespace, name)


def _forbidden(user: User, access: Access, reason: str) -> Refused:
    text = forbidden_text(user.name, access) + (f": {reason}" if reason else "")
    if access.path:
        return Refused(403, f"forbidden: {text}", details={})
    resource = f"{access.resource}.{access.group}" if access.group else access.resource
    head = f'{resource} "{access.name}"' if access.name else resource
    details = details_of(access.group, access.resource, access.name)
    return Refused(403, f"{head} is forbidden: {text}", details=details)
