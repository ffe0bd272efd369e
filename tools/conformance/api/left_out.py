"""What the embedded API server does otherwise than Kubernetes on purpose, and how answers are compared."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from tools.conformance.area import Answer, Case


@dataclass(frozen=True, slots=True)
class LeftOut:
    """One difference on purpose: what, why, and the names of the cases that have it.

    ``fields`` are the places in the answers that it concerns, such as ``*.body.metadata.managedFields``; the
    rest of these answers is compared. Without any, the cases are not compared at all.
    """

    what: str
    why: str
    cases: tuple[str, ...] = ("*",)
    fields: tuple[str, ...] = ()

    def covers(self, case: Case) -> bool:
        """Whether the case may have this difference."""
        return any(fnmatchcase(case["name"], pattern) for pattern in self.cases)

    def hides(self, path: str) -> bool:
        """Whether the place in the answers to a covered case may differ."""
        return not self.fields or any(fnmatchcase(path, field) for field in self.fields)


LEFT_OUT: tuple[LeftOut, ...] = (
    LeftOut(
        "an Accept header that asks for another form than the served ones is answered in JSON",
        "clients that are in use ask for JSON, tables or metadata",
        cases=("accept/*", "watch/accept*", "path/apis"),
    ),
    LeftOut(
        "kinds that the driver does not touch are hardly checked, and tables have columns for few kinds",
        "a wrong manifest of theirs does nothing to devices; kubectl prints columns of what people look at",
        cases=(
            *("kinds/*", "*/services", "*/daemonsets", "*/networkpolicies", "watch/accept*/table"),
            *("*/configmap-both", "*/secret-type", "*/lease-negative", "update/immutable"),
            *("patch/lists/volume-source", "body/nearly-too-large"),
        ),
    ),
    LeftOut(
        "the words of messages",
        "code, reason and fields are the same",
        fields=("*.message",),
    ),
    LeftOut(
        "the columns of tables have no descriptions",
        "nobody prints them",
        cases=("accept/*", "watch/accept/*"),
        fields=("*.description",),
    ),
    LeftOut(
        "objects that nobody has applied have no managedFields",
        "nobody reads them before an apply, and they would make each write slower",
        fields=("*.managedFields",),
    ),
    LeftOut(
        "what was written before the first apply belongs to `before-first-apply`, not to who wrote it",
        "owners are kept from the first apply on; Kubernetes does so with objects older than that",
        cases=(
            "apply/there/*",
            "apply/created",
            "apply/kinds/nodes",
            "apply/kinds/jobs",
        ),
        fields=("*.managedFields*", "*.metadata.resourceVersion"),
    ),
    LeftOut(
        "a new node has no taint `node.kubernetes.io/not-ready`",
        "the embedded kubelet is ready at once",
        fields=("*.spec.taints*", "*.f:taints*", "*.metadata.resourceVersion"),
        cases=("*/node*",),
    ),
    LeftOut(
        "a ResourceQuota has its status at once, and clients cannot change it",
        "quotas are counted when objects are written",
        cases=("*resourcequotas*",),
        fields=("*.body.status*", "*.metadata.resourceVersion", "*.rows.0.cells.1"),
    ),
)


def differences(case: Case, answer: Answer, ours: Answer) -> list[str]:
    """How our answers to a case differ from Kubernetes', without what is left out."""
    covering = [one for one in LEFT_OUT if one.covers(case)]
    return [
        f"{path}: {_text(theirs)} by Kubernetes, {_text(own)} here"
        for path, theirs, own in unequal(answer["answers"], ours["answers"])
        if not any(one.hides(path) for one in covering)
    ]


_ABSENT = object()


def unequal(theirs: Any, ours: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """The places below ``path`` where two values differ, with both."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in {**theirs, **ours}:
            below = f"{path}.{key}" if path else key
            yield from unequal(theirs.get(key, _ABSENT), ours.get(key, _ABSENT), below)
    elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for index, (one, other) in enumerate(zip(theirs, ours, strict=True)):
            yield from unequal(one, other, f"{path}.{index}" if path else str(index))
    elif theirs != ours or isinstance(theirs, bool) is not isinstance(ours, bool):
        yield path, theirs, ours


def _text(value: Any) -> str:
    return "nothing" if value is _ABSENT else repr(value)
