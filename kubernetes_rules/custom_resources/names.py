"""Which names of a CustomResourceDefinition are accepted, and when its API is served.

Sources: k8s.io/apiextensions-apiserver/pkg/controller/status/naming_controller.go and
pkg/controller/establish/establishing_controller.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kubernetes_rules.printed import quoted

Object = dict[str, Any]
Condition = dict[str, str]
"""A condition without the time of its last change."""

_NAMES = (
    ("plural", "PluralConflict"),
    ("singular", "SingularConflict"),
    ("shortNames", "ShortNamesConflict"),
    ("kind", "KindConflict"),
    ("listKind", "ListKindConflict"),
)
"""The names in the order of comparison, with the reasons of conflicts; the last one is reported."""
_RESOURCES = ("plural", "singular", "shortNames")


@dataclass(frozen=True, slots=True)
class NamesDecision:
    """The names that a definition has from now on, and its conditions about them.

    ``established`` is False until the API is served: ``ESTABLISHED`` then takes its place.
    """

    accepted_names: Object
    names_accepted: Condition
    established: Condition

    def changes(self, crd: Object) -> bool:
        """Whether the definition's status says something else."""
        status = crd.get("status") or {}
        found = condition_of(crd, "NamesAccepted")
        known = found is not None and self.names_accepted == {
            key: found.get(key) for key in self.names_accepted
        }
        return not known or (status.get("acceptedNames") or {}) != self.accepted_names


ESTABLISHED: Condition = {
    "type": "Established",
    "status": "True",
    "reason": "InitialNamesAccepted",
    "message": "the initial names have been accepted",
}
"""The condition of a definition whose API is served; it stays whatever happens to its names."""


def names_decision(crd: Object, others: Iterable[Object]) -> NamesDecision:
    """Decide about the names of a definition; ``others`` are the other definitions, of any group."""
    spec, status = crd.get("spec") or {}, crd.get("status") or {}
    wanted, held = spec.get("names") or {}, status.get("acceptedNames") or {}
    accepted, conflict = dict(held), None
    resources, kinds = _used_names([*others, crd], spec.get("group"))
    for name, reason in _NAMES:
        used = resources if name in _RESOURCES else kinds
        taken = _taken(wanted.get(name), held.get(name), used)
        if taken:
            conflict = reason, f"[{', '.join(taken)}]" if len(taken) > 1 else taken[0]
        else:
            accepted[name] = wanted.get(name)
    accepted["categories"] = wanted.get("categories")
    accepted = {name: value for name, value in accepted.items() if value}
    reason, message = conflict or ("NoConflicts", "no conflicts found")
    state = "False" if conflict else "True"
    names_accepted = {"type": "NamesAccepted", "status": state, "reason": reason, "message": message}
    return NamesDecision(accepted, names_accepted, _established(crd, is_accepted=not conflict))


def condition_of(crd: Object, kind: str) -> Mapping[str, Any] | None:
    """The condition of a type in the status of a definition."""
    conditions = (crd.get("status") or {}).get("conditions") or []
    return next((condition for condition in conditions if condition.get("type") == kind), None)


def _established(crd: Object, *, is_accepted: bool) -> Condition:
    found = condition_of(crd, "Established")
    condition = {
        "type": "Established",
        "status": "False",
        "reason": "NotAccepted",
        "message": "not all names are accepted",
    }
    if found is not None:
        condition = {key: found.get(key) or "" for key in condition}
    if condition["status"] != "True" and is_accepted:
        text = "the initial names have been accepted"
        condition |= {"status": "False", "reason": "Installing", "message": text}
    return condition


def _used_names(crds: Iterable[Object], group: Any) -> tuple[set[str], set[str]]:
    """The names of resources and of kinds that definitions of a group have."""
    resources: set[str] = set()
    kinds: set[str] = set()
    for crd in crds:
        if (crd.get("spec") or {}).get("group") != group:
            continue
        held = (crd.get("status") or {}).get("acceptedNames") or {}
        resources |= {held.get("plural") or "", held.get("singular") or "", *(held.get("shortNames") or [])}
        kinds |= {held.get("kind") or "", held.get("listKind") or ""}
    return resources, kinds


def _taken(wanted: Any, held: Any, used: set[str]) -> list[str]:
    """What is said about names that others have."""
    mine = set(held or []) if isinstance(held, list) else {held or ""}
    asked = wanted if isinstance(wanted, list) else [] if wanted is None else [wanted]
    texts = [f"{quoted(name)} is already in use" for name in asked if name not in mine and name in used]
    return list(dict.fromkeys(texts))
