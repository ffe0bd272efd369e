"""Checks that an update of a pod changes only images, deadlines, tolerations and gates.

Parts of a spec are compared by apimachinery's semantic equality.
"""

from __future__ import annotations

import difflib
import json
from typing import Any

from kubernetes_rules.quantity import Quantity
from kubernetes_rules.validation.field import FieldError, forbidden, invalid
from kubernetes_rules.validation.pods.claims import MIRROR

Object = dict[str, Any]

_APPARMOR = "container.apparmor.security.beta.kubernetes.io/"
_MOST_SECONDS = 2**31 - 1
_LISTS = ("containers", "initContainers")
_CHANGEABLE = (
    "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"
    "`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"

_AMOUNTS = frozenset({"limits", "requests", "overhead"})
_MAPS = _AMOUNTS | {"nodeSelector", "matchLabels", "labels", "annotations", "volumeAttributes", "options"}
_STRUCTS = frozenset({"resources", "preference", "metadata", "podAffinityTerm"})
"""Fields that are structs in Go, so that absent and empty are the same; other objects are pointers."""
_TELLING_ZEROS = frozenset(
    {
        "activeDeadlineSeconds",
        "allowPrivilegeEscalation",
        "automountServiceAccountToken",
        "defaultMode",
        "enableServiceLinks",
        "fsGroup",
        "hostUsers",
        "hostnameOverride",
        "mode",
        "optional",
        "preemptionPolicy",
        "priority",
        "privileged",
        "readOnlyRootFilesystem",
        "resourceClaimName",
        "resourceClaimTemplateName",
        "runAsGroup",
        "runAsNonRoot",
        "runAsUser",
        "runtimeClassName",
        "setHostnameAsFQDN",
        "shareProcessNamespace",
        "terminationGracePeriodSeconds",
        "tolerationSeconds",
    }
)
"""Fields that are pointers in Go, so that zero, false and the empty text differ from absence."""


def changed_annotation_errors(
    new: Object, old: Object, path: str = "metadata.annotations"
) -> list[FieldError]:
    """The errors of changed annotations that are immutable; ``new`` and ``old`` are metadata."""
    errors: list[FieldError] = []
    now, before = new.get("annotations") or {}, old.get("annotations") or {}
    for key in sorted({*now, *before}):
        if now.get(key) == before.get(key):
            continue
        verb = "remove or update" if key in before else "add"
        if key.startswith(_APPARMOR):
            errors.append(forbidden(f"{path}[{key}]", f"may not {verb} AppArmor annotations"))
        if key == MIRROR:
            errors.append(forbidden(f"{path}[{key}]", f"may not {verb} mirror pod annotation"))
    return errors


def changed_spec_errors(new: Object, old: Object, path: str = "spec") -> list[FieldError]:
    """The errors of a spec as an update of ``old``.

    A pod with scheduling gates may also get a narrower node selector and node affinity (KEP-3838).
    """
    errors: list[FieldError] = []
    for kind in _LISTS:
        if len(new.get(kind) or []) != len(old.get(kind) or []):
            text = "pod updates may not add or remove containers"
            return [*errors, forbidden(f"{path}.{kind}", text)]
    deadline = _deadline_errors(new, old, f"{path}.activeDeadlineSeconds")
    if deadline and new.get("activeDeadlineSeconds") is not None:
        return errors + deadline
    errors += deadline
    errors += _toleration_errors(new, old, f"{path}.tolerations")
    errors += _gate_errors(new, old, f"{path}.schedulingGates")
    if same(new, old):
        return errors
    kept = _with_old_changeable(new, old)
    if old.get("schedulingGates"):
        errors += _narrowing_errors(new, old, path)
        kept = _with_old_placement(kept, old)
    if not same(kept, old):
        text = f"pod updates may not change fields other than {_CHANGEABLE}\n{_difference(old, kept)}"
        errors.append(forbidden(path, text))
    return errors


def _deadline_errors(new: Object, old: Object, path: str) -> list[FieldError]:
    """A deadline may be set, and made shorter."""
    now, before = new.get("activeDeadlineSeconds"), old.get("activeDeadlineSeconds")
    if now is None:
        text = "must not update from a positive integer to nil value"
        return [] if before is None else [invalid(path, None, text)]
    if not 0 <= now <= _MOST_SECONDS:
        return [invalid(path, now, f"must be between 0 and {_MOST_SECONDS}, inclusive")]
    if before is not None and before < now:
        return [invalid(path, now, "must be less than or equal to previous value")]
    return []


def _toleration_errors(new: Object, old: Object, path: str) -> list[FieldError]:
    """Tolerations may be added, and the seconds of one may change."""
    now = [_without_seconds(one) for one in new.get("tolerations") or []]
    if any(_without_seconds(one) not in now for one in old.get("tolerations") or []):
        text = "existing toleration can not be modified except its tolerationSeconds"
        return [forbidden(path, text)]
    return []


def _without_seconds(toleration: Object) -> Object:
    return {key: value for key, value in toleration.items() if key != "tolerationSeconds" and value}


def _gate_errors(new: Object, old: Object, path: str) -> list[FieldError]:
    before = {gate.get("name") or "" for gate in old.get("schedulingGates") or []}
    places = {gate.get("name") or "": index for index, gate in enumerate(new.get("schedulingGates") or [])}
    text = "only deletion is allowed, but found new scheduling gate '{}'"
    return [
        forbidden(f"{path}[{index}].name", text.format(name))
        for name, index in places.items()
        if name not in before
    ]


def _with_old_changeable(new: Object, old: Object) -> Object:
    """The new spec with the old values of all fields that may change."""
    kept = {**new, "schedulingGates": old.get("schedulingGates"), "tolerations": old.get("tolerations")}
    kept["activeDeadlineSeconds"] = old.get("activeDeadlineSeconds")
    for kind in _LISTS:
        pairs = zip(new.get(kind) or [], old.get(kind) or [], strict=True)
        kept[kind] = [{**one, "image": before.get("image")} for one, before in pairs]
    return kept


def _with_old_placement(new: Object, old: Object) -> Object:
    """The new spec with the old node selector and node affinity."""
    affinity, old_affinity = new.get("affinity"), old.get("affinity")
    before = (old_affinity or {}).get("nodeAffinity")
    if not same((affinity or {}).get("nodeAffinity"), before):
        if old_affinity is None and not (set(affinity or {}) - {"nodeAffinity"}):
            affinity = None
        else:
            affinity = {**(affinity or {}), "nodeAffinity": before}
    return {**new, "nodeSelector": old.get("nodeSelector"), "affinity": affinity}


def _narrowing_errors(new: Object, old: Object, path: str) -> list[FieldError]:
    """The errors of a gated pod's node selector and node affinity, which may only become narrower."""
    errors: list[FieldError] = []
    labels, before = new.get("nodeSelector") or {}, old.get("nodeSelector") or {}
    if any(labels.get(key) != value for key, value in before.items()):
        text = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        shown = None if new.get("nodeSelector") is None else dict(sorted(labels.items()))
        errors.append(invalid(f"{path}.nodeSelector", shown, text))
    given, old_terms = _required_terms(new), _required_terms(old) or []
    terms = given or []
    here = f"{path}.affinity.nodeAffinity.{_REQUIRED}.nodeSelectorTerms"
    if old_terms and len(terms) != len(old_terms):
        text = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        shown_terms = None if given is None else [_in_go(term) for term in given]
        return [*errors, invalid(here, shown_terms, text)]
    text = "only additions are allowed (no mutations or deletions)"
    return errors + [
        invalid(f"{here}[{index}]", _in_go(term), text)
        for index, (term, old_term) in enumerate(zip(terms, old_terms, strict=False))
        if not _has_only_additions(term, old_term)
    ]


def _required_terms(spec: Object) -> list[Object] | None:
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    terms: list[Object] | None = (affinity.get(_REQUIRED) or {}).get("nodeSelectorTerms")
    return terms


def _has_only_additions(term: Object, old: Object) -> bool:
    lists = [(term.get(key) or [], old.get(key) or []) for key in ("matchExpressions", "matchFields")]
    if not any(before for _, before in lists):
        return not any(now for now, _ in lists)
    return all(same(now[: len(before)], before) for now, before in lists)


def _in_go(term: Object) -> Object:
    """A term with Go's field names, as Kubernetes prints it."""

    def shown(requirements: list[Object] | None) -> list[Object] | None:
        if requirements is None:
            return None
        return [
            {"Key": one.get("key") or "", "Operator": one.get("operator") or "", "Values": one.get("values")}
            for one in requirements
        ]

    kinds = {"MatchExpressions": "matchExpressions", "MatchFields": "matchFields"}
    return {name: shown(term.get(key)) for name, key in kinds.items()}


def _difference(old: Object, new: Object) -> str:
    """A unified diff of the two specs, with three lines of context."""
    lines = difflib.unified_diff(_lines(old), _lines(new), lineterm="")
    return "\n".join(list(lines)[2:])


def _lines(spec: Object) -> list[str]:
    given = {key: value for key, value in spec.items() if value not in (None, [], {})}
    return json.dumps(given, indent=1, sort_keys=True).splitlines()


def same(one: Any, other: Any, path: tuple[str, ...] = ()) -> bool:
    """Whether both mean the same: ``500m`` equals ``0.5``, and an empty list or text equals an absent one.

    ``path`` are the names of the fields that lead to them.
    """
    field = path[-1] if path else ""
    if isinstance(one, dict) or isinstance(other, dict):
        if (one is None or other is None) and field not in _MAPS | _STRUCTS:
            return False
        left, right = one or {}, other or {}
        return all(same(left.get(key), right.get(key), (*path, key)) for key in {*left, *right})
    if isinstance(one, list) or isinstance(other, list):
        left, right = one or [], other or []
        return len(left) == len(right) and all(same(a, b, path) for a, b in zip(left, right, strict=True))
    if path[-2:-1] and path[-2] in _AMOUNTS and one is not None and other is not None:
        return Quantity.parse(str(one)) == Quantity.parse(str(other))
    if field in _TELLING_ZEROS or (path[-2:-1] and path[-2] in _MAPS):
        return bool(one == other)
    return bool((one or None) == (other or None))
