"""What roles and their bindings allow (RBAC).

Go: kubernetes/plugin/pkg/auth/authorizer/rbac, pkg/registry/rbac/validation,
component-helpers/auth/rbac/validation. Rules, subjects and references are those of
rbac.authorization.k8s.io/v1, as JSON has them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Object = Mapping[str, Any]

MASTERS = "system:masters"
"""The group whose members may do everything."""

SERVICE_ACCOUNTS = "system:serviceaccount:"
"""How the user names of service accounts begin; the namespace, a colon and the name follow."""


@dataclass(frozen=True, slots=True)
class Access:
    """Something that a user asks to do (apiserver: authorizer.Attributes).

    ``path`` is set for a request that is about no resource, such as ``/version``; the other fields are
    empty then, except for the verb.
    """

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""

    @property
    def qualified_resource(self) -> str:
        """The resource with its subresource: ``pods/log``."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


@dataclass(frozen=True, slots=True)
class Grant:
    """A rule that a user has, and the binding that gives it, in the words of Kubernetes."""

    rule: Object
    source: str


@dataclass(frozen=True, slots=True)
class Policy:
    """The roles and bindings of a cluster.

    ``role`` finds the rules of a role by kind, namespace (empty for a ClusterRole) and name; None where there
    is no such role.
    """

    cluster_bindings: Sequence[Object]
    bindings: Sequence[Object]
    role: Callable[[str, str, str], Sequence[Object] | None]

    def grants(
        self, user: str, groups: Sequence[str], namespace: str, errors: list[str] | None = None
    ) -> Iterator[Grant]:
        """All rules that the user has in the namespace; ``errors`` collects the bindings to absent roles.

        ``bindings`` are those of that namespace.
        """
        for binding in (*self.cluster_bindings, *(self.bindings if namespace else ())):
            inside = binding["metadata"].get("namespace") or ""
            subject = next(
                (one for one in binding.get("subjects") or () if applies(one, user, groups, inside)), None
            )
            if subject is None:
                continue
            reference = binding["roleRef"]
            rules = self.role(
                reference["kind"], inside if reference["kind"] == "Role" else "", reference["name"]
            )
            if rules is None:
                if errors is not None:
                    errors.append(_absent(reference))
                continue
            source = _source(binding, inside, reference, subject)
            yield from (Grant(rule, source) for rule in rules)

    def decide(self, user: str, groups: Sequence[str], access: Access) -> tuple[bool, str]:
        """Whether a rule allows it, and the reason as Kubernetes says it; empty where no rule does."""
        errors: list[str] = []
        for grant in self.grants(user, groups, access.namespace, errors):
            if allows(grant.rule, access):
                return True, f"RBAC: allowed by {grant.source}"
        unique = list(dict.fromkeys(errors))
        if not unique:
            return False, ""
        return False, "rbac: RBAC: " + (unique[0] if len(unique) == 1 else f"[{', '.join(unique)}]")


def _absent(reference: Object) -> str:
    resource = "roles" if reference["kind"] == "Role" else "clusterroles"
    return f'{resource.removesuffix("s")}.rbac.authorization.k8s.io "{reference["name"]}" not found'


def _source(binding: Object, inside: str, reference: Object, subject: Object) -> str:
    kind, name = (
        ("RoleBinding", f"{binding['metadata']['name']}/{inside}")
        if inside
        else (
            "ClusterRoleBinding",
            binding["metadata"]["name"],
        )
    )
    who = subject["name"]
    if subject["kind"] == "ServiceAccount":
        who = f"{who}/{subject.get('namespace') or inside}"
    return f'{kind} "{name}" of {reference["kind"]} "{reference["name"]}" to {subject["kind"]} "{who}"'


def applies(subject: Object, user: str, groups: Sequence[str], namespace: str) -> bool:
    """Whether the user is the subject of a binding; ``namespace`` is that of the binding."""
    match subject.get("kind"):
        case "User":
            return bool(user == subject["name"])
        case "Group":
            return subject["name"] in groups
        case "ServiceAccount":
            home = subject.get("namespace") or namespace
            return bool(home) and user == f"{SERVICE_ACCOUNTS}{home}:{subject['name']}"
    return False


def allows(rule: Object, access: Access) -> bool:
    """Whether a rule allows the access."""
    if not _has(rule, "verbs", access.verb):
        return False
    if access.path:
        return any(_path_covers(one, access.path) for one in rule.get("nonResourceURLs") or ())
    names = rule.get("resourceNames") or ()
    resources = rule.get("resources") or ()
    subresource = f"*/{access.subresource}" if access.subresource else access.qualified_resource
    return (
        _has(rule, "apiGroups", access.group)
        and any(one in ("*", access.qualified_resource, subresource) for one in resources)
        and (not names or access.name in names)
    )


def _has(rule: Object, field: str, value: str) -> bool:
    found = rule.get(field) or ()
    return "*" in found or value in found


def _path_covers(pattern: str, path: str) -> bool:
    return pattern in ("*", path) or (pattern.endswith("*") and path.startswith(pattern.rstrip("*")))


def forbidden_text(user: str, access: Access) -> str:
    """What a user may not do, in the words of the 403 (apiserver: responsewriters.forbiddenMessage)."""
    if access.path:
        return f'User "{user}" cannot {access.verb} path "{access.path}"'
    place = f'in the namespace "{access.namespace}"' if access.namespace else "at the cluster scope"
    return (
        f'User "{user}" cannot {access.verb} resource "{access.qualified_resource}" in API group '
        f'"{access.group}" {place}'
    )
