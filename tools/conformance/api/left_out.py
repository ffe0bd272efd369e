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
        """Whether the case has this difference."""
        return any(fnmatchcase(case["name"], pattern) for pattern in self.cases)


LEFT_OUT: tuple[LeftOut, ...] = (
    LeftOut(
        "objects that nobody has applied have no managedFields",
        "ownership is kept from the first apply on: until then it costs each write time and tells nobody",
        fields=("*.managedFields",),
    ),
    LeftOut(
        "writing an object that has no effect in the embedded cluster is answered with a warning",
        "kubectl shows it: else somebody would look for a fault in what they have written",
        fields=("*.warnings",),
        cases=(
            *("*services*", "*limitranges*", "*networkpolicies*", "*roles*"),
            *("*rolebindings*", "*admission*", "*webhook*"),
        ),
    ),
    LeftOut(
        "what of a patch has the wrong type is said in the words of another of Kubernetes' decoders",
        "Kubernetes decodes the result of each kind of patch in its own way; code and field are the same",
        cases=(
            *(
                "patch/*/kind",
                "patch/*/api-version",
                "patch/strategic/wrong-*",
                "patch/strategic/metadata-text",
            ),
            *(
                "patch/lists/*-number",
                "patch/lists/*-text",
                "patch/lists/list-is-map",
                "patch/lists/map-is-list",
            ),
        ),
        fields=("*.message",),
    ),
    LeftOut(
        "an object of another kind than that of its path is refused without being decoded as what it is",
        "the answer says in both cases that the kind is wrong",
        cases=("create/head/*",),
        fields=("*.message",),
    ),
    LeftOut(
        "a control character in a quoted value is written as in JSON, `\\u0001` instead of `\\x01`",
        "both are one character in quotes",
        cases=("*/query/manager-unprintable*",),
        fields=("*.message",),
    ),
    LeftOut(
        "a new Node has no taint `node.kubernetes.io/not-ready`",
        "the embedded kubelet is ready at once",
        fields=("*.spec.taints",),
        cases=("*/nodes*",),
    ),
    LeftOut(
        "a new pod has no tolerations of `not-ready` and `unreachable` for 300 seconds",
        "no controller evicts pods from nodes that are not ready",
        fields=("*.spec.tolerations",),
    ),
)


def differences(case: Case, answer: Answer, ours: Answer) -> list[str]:
    """How our answers to a case differ from Kubernetes', without what is left out."""
    covering = [one for one in LEFT_OUT if one.covers(case)]
    if any(not one.fields for one in covering):
        return []
    ignored = [field for one in covering for field in one.fields]
    return [
        f"{path}: {_text(theirs)} by Kubernetes, {_text(own)} here"
        for path, theirs, own in _unequal("", answer["answers"], ours["answers"])
        if not any(fnmatchcase(path, field) for field in ignored)
    ]


_ABSENT = object()


def _unequal(path: str, theirs: Any, ours: Any) -> Iterator[tuple[str, Any, Any]]:
    """The places where two values differ, with both."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in {**theirs, **ours}:
            yield from _unequal(
                f"{path}.{key}" if path else key, theirs.get(key, _ABSENT), ours.get(key, _ABSENT)
            )
    elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for index, (one, other) in enumerate(zip(theirs, ours, strict=True)):
            yield from _unequal(f"{path}.{index}" if path else str(index), one, other)
    elif theirs != ours or isinstance(theirs, bool) is not isinstance(ours, bool):
        yield path, theirs, ours


def _text(value: Any) -> str:
    return "nothing" if value is _ABSENT else repr(value)
