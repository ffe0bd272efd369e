"""The user whom a request names instead of the one who sends it.

A requester needs either the older right ``impersonate``, or two narrower ones: on the user
(``impersonate:user-info``...) and on what is done in their name (``impersonate-on:user-info:list``...).
Go: k8s.io/apiserver/pkg/endpoints/filters/impersonation (KEP-5284).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import unquote

from envtest.embedded.access.tokens import service_account_groups
from envtest.embedded.api.requests import User
from envtest.embedded.api.statuses import Refused
from envtest.embedded.api.wire import HttpRequest
from kubernetes_rules.rbac import SERVICE_ACCOUNTS, Access

ANONYMOUS = User("system:anonymous", ("system:unauthenticated",))
AUTHENTICATED = "system:authenticated"

_IDENTITY = "authentication.k8s.io"
_EXTRA = "impersonate-extra-"
_NODES = "system:node:"

Check = Callable[[User, Access], None]
"""Raises Refused where a user may not do something."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What the headers say of the user."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def account(self) -> tuple[str, str] | None:
        """Namespace and name of a service account; None for other users."""
        parts = self.name.removeprefix(SERVICE_ACCOUNTS).split(":")
        return (parts[0], parts[1]) if self.name.startswith(SERVICE_ACCOUNTS) and len(parts) == 2 else None

    @property
    def node(self) -> str:
        """The node whose kubelet it is; empty for other users."""
        return self.name.removeprefix(_NODES) if self.name.startswith(_NODES) else ""

    @property
    def is_only_named(self) -> bool:
        """Whether nothing but the name is given."""
        return not (self.uid or self.groups or self.extra)


def impersonated(head: HttpRequest, user: User, access: Access, check: Check) -> User:
    """The user in whose name the request comes; raises Refused (400, 403) where ``user`` may not do that."""
    # Most requests have no such header, and every request is asked.
    if not any(name.startswith("impersonate-") for name in head.headers):
        return user
    wanted = _wanted(head)
    if not wanted.name:
        if wanted.is_only_named:
            return user
        raise Refused(400, f"requested {_go_text(wanted)} without impersonating a user name")
    refused: Refused | None = None
    for mode in _modes(wanted, user):
        try:
            if mode:
                check(user, replace(access, verb=f"impersonate-on:{mode}:{access.verb}"))
            for asked in _asked(wanted, mode):
                check(user, asked)
        except Refused as error:
            # The answer is that of the narrowest right that would do.
            refused = refused or error
            continue
        return _user(wanted, mode)
    assert refused is not None
    raise refused


def _wanted(head: HttpRequest) -> _Wanted:
    extra = {
        unquote(key.removeprefix(_EXTRA)): tuple(head.values(key))
        for key in head.headers
        if key.startswith(_EXTRA)
    }
    groups = tuple(head.values("impersonate-group"))
    return _Wanted(head.header("impersonate-user"), head.header("impersonate-uid"), groups, extra)


def _modes(wanted: _Wanted, user: User) -> Iterator[str]:
    """The modes in which this user can be impersonated, narrowest first; the empty one is the older right."""
    if wanted.node:
        if wanted.is_only_named:
            nodes = dict(user.extra).get("authentication.kubernetes.io/node-name", ())
            if user.name.startswith(SERVICE_ACCOUNTS) and nodes == (wanted.node,):
                yield "associated-node"
            yield "arbitrary-node"
    elif wanted.account is not None:
        if wanted.is_only_named:
            yield "serviceaccount"
    else:
        yield "user-info"
    yield ""


def _asked(wanted: _Wanted, mode: str) -> Iterator[Access]:
    """The rights on everything that the headers say of the user."""
    verb = f"impersonate:{mode}" if mode else "impersonate"
    group = _IDENTITY if mode else ""
    if wanted.account is not None:
        yield Access(verb, group, "serviceaccounts", "", *wanted.account)
    elif mode and wanted.node:
        # A node that the requester is on stands for all of them.
        yield Access(verb, group, "nodes", name="*" if mode == "associated-node" else wanted.node)
    else:
        yield Access(verb, group, "users", name=wanted.name)
    if wanted.uid:
        yield Access(verb, _IDENTITY, "uids", name=wanted.uid)
    yield from (Access(verb, group, "groups", name=one) for one in wanted.groups)
    for key, values in wanted.extra.items():
        yield from (Access(verb, _IDENTITY, "userextras", key, name=one) for one in values)


def _user(wanted: _Wanted, mode: str) -> User:
    groups = wanted.groups
    if wanted.account is not None and not groups:
        groups = service_account_groups(wanted.account[0])[:2]
    elif mode and wanted.node:
        groups = ("system:nodes",)
    everybody = ANONYMOUS.groups[0] if wanted.name == ANONYMOUS.name else AUTHENTICATED
    if not {everybody, ANONYMOUS.groups[0]} & set(groups):
        groups = (*groups, everybody)
    return User(wanted.name, groups, wanted.uid, tuple(sorted(wanted.extra.items())))


def _go_text(wanted: _Wanted) -> str:
    """A user without a name, as Go's %#v prints it."""

    def listed(values: Sequence[str]) -> str:
        return f"{{{', '.join(map(json.dumps, values))}}}" if values else "(nil)"

    entries = [f"{json.dumps(key)}:[]string{listed(one)}" for key, one in sorted(wanted.extra.items())]
    shown = f"{{{', '.join(entries)}}}" if entries else "(nil)"
    return (
        f'&user.DefaultInfo{{Name:"", UID:{json.dumps(wanted.uid)}, Groups:[]string{listed(wanted.groups)}, '
        f"Extra:map[string][]string{shown}}}"
    )
