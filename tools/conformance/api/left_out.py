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


_YAML = ("yaml/*", "yaml-strict/*", "apply/*/yaml-*", "apply/*/json-twice")
_BODIES = ("body/*", "body-strict/*", "body-update/*")

LEFT_OUT: tuple[LeftOut, ...] = (
    LeftOut(
        "objects that nobody has applied have no managedFields",
        "ownership is kept from the first apply on: until then it costs each write time and tells nobody",
        fields=("*.managedFields",),
    ),
    LeftOut(
        "what was written before the first apply belongs to `before-first-apply`, not to who wrote it",
        "so does Kubernetes with objects that were written before it kept owners",
        cases=(
            "apply/there/*",
            "apply/created/*",
            "apply/kinds/nodes",
            "apply/kinds/jobs",
            "apply/managed/emptied",
        ),
        fields=("*.managedFields*", "*.metadata.resourceVersion"),
    ),
    LeftOut(
        "a conflict with who has made an object without an apply names `before-first-apply`",
        "the same",
        cases=("apply/created/then-conflict",),
        fields=("*.causes.0.message", "*.body.message"),
    ),
    LeftOut(
        "an apply to `scale` does not conflict with who has written the replicas without an apply",
        "the same: nobody is kept as their owner",
        cases=("scale/patch/apply",),
    ),
    LeftOut(
        "managedFields that a client writes are kept as they are, and no new version comes from them alone",
        "the same; clients that write them copy those that they have read",
        cases=("create/metadata/managed-*", "update/metadata/*managed*"),
        fields=("*.managedFields*", "*.metadata.resourceVersion"),
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
            *("patch/*/kind", "patch/*/api-version", "patch/strategic/wrong-*"),
            *("patch/strategic/metadata-text", "patch/lists/*-number", "patch/lists/*-text"),
            *("patch/lists/list-is-map", "patch/lists/map-is-list", "patch/type/two"),
        ),
        fields=("*.message", "*.body.details"),
    ),
    LeftOut(
        "an object of another kind than that of its path is refused without being decoded as what it is",
        "the answer says in both cases that the kind is wrong",
        cases=("create/head/*",),
        fields=("*.message",),
    ),
    LeftOut(
        "a Binding of another kind lacks its target, instead of being of the wrong kind",
        "both are errors; nobody but a test sends one",
        cases=("binding/other-kind",),
    ),
    LeftOut(
        "a control character in a quoted value is written as in JSON, `\\u0001` instead of `\\x01`",
        "both are one character in quotes",
        cases=("*/query/manager-unprintable*",),
        fields=("*.message",),
    ),
    LeftOut(
        "where a body is no JSON or YAML, the parser of Python says it in its own words",
        "the code and the reason are the same",
        cases=(*_BODIES, *_YAML),
        fields=("*.message",),
    ),
    LeftOut(
        "keys that come twice in YAML are warned about as those of JSON are",
        "the warning names the field instead of the line; kubectl sends JSON",
        cases=_YAML,
        fields=("*.warnings*",),
    ),
    LeftOut(
        "a map that comes twice in a body counts as it stands the last time, and is not merged",
        "a body that has a key twice is a mistake, about which both warn",
        cases=("body/twice", "body-update/twice"),
        fields=("*.data.a",),
    ),
    LeftOut(
        "a new Node has no taint `node.kubernetes.io/not-ready`",
        "the embedded kubelet is ready at once",
        fields=("*.spec.taints*", "*.f:taints*", "*.metadata.resourceVersion"),
        cases=("*/node*",),
    ),
    LeftOut(
        "a change of a pod that is forbidden is shown as a difference of JSON, not of Go's structs",
        "the fields and their values are the same",
        cases=("update/*pod*",),
        fields=("*.message",),
    ),
    LeftOut(
        "the status of a ResourceQuota is there at once, and only the quota's own controller keeps it",
        "quotas are counted when objects are written",
        cases=("*resourcequotas*",),
        fields=("*.body.status*", "*.metadata.resourceVersion"),
    ),
    LeftOut(
        "what is wrong with a CEL expression is said in other words",
        "another parser reads it; the code, the field and the value are the same",
        cases=("*/class-broken",),
        fields=("*.message",),
    ),
    LeftOut(
        "objects are answered in JSON to who wants protobuf",
        "client-go, which asks for protobuf, reads what it gets by its Content-Type",
        cases=("accept/*/protobuf*",),
    ),
    LeftOut(
        "the columns of tables have no descriptions",
        "no client shows them",
        cases=("accept/*", "watch/accept*"),
        fields=("*.columnDefinitions.*.description",),
    ),
    LeftOut(
        "`/version` is answered in JSON whatever the client accepts",
        "no client asks for anything else",
        cases=("path/version-types",),
    ),
    LeftOut(
        "kube-apiserver's own pages are not there: the index, the profiler, and the checks of its parts",
        "they are about the process kube-apiserver",
        cases=("path/", "path/index.html", "path/debug/pprof", "path/*?verbose*", "path/api/v1/watch"),
    ),
    LeftOut(
        "nobody can enter a container, forward a port, or reach a kubelet through the API server",
        "there are no containers; `kubectl logs` shows what their commands print",
        cases=("path/*/exec", "path/*/portforward", "path/api/v1/nodes/*", "path/*componentstatuses*"),
    ),
    LeftOut(
        "a version that is no group's is unknown as the versions of other groups are",
        "both are 404",
        cases=("path/apis//v1",),
    ),
    LeftOut(
        "a list at an older version is never older than the last write",
        "nothing is cached, which Kubernetes allows; controllers get stale lists from faults",
        cases=("list/query/newer*", "list/query/match-empty", "deletecollection/version"),
    ),
    LeftOut(
        "objects that cannot be read from the store need no deletion of their own",
        "the embedded store has none",
        cases=("delete/*/ignore-unreadable",),
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
