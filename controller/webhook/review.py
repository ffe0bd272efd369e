"""Answers an AdmissionReview (admission.k8s.io/v1) about an object with configurations for this driver. Pure.

The decision is up to prepare (kubeletplugin.claims.plan), which knows the device that the scheduler picked.
Here only the object is known. So an error is what prepare refuses for every device. A warning is what prepare
never says: a configuration that has no effect.
"""

from __future__ import annotations

import http
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from controller.webhook.subject import (
    GROUP,
    REVIEWED_KINDS,
    VERSIONS,
    Config,
    Request,
    ReviewMalformed,
    Subject,
    read_subject,
)
from driver.claims.opaque import (
    Document,
    GpuConfig,
    MalformedConfig,
    MigDeviceConfig,
    VfioDeviceConfig,
    decode_any,
)
from driver.devices.sharing import Strategy
from driver.kinds.registry import KINDS

API_VERSION = "admission.k8s.io/v1"
_MOST_UID_CHARACTERS = 128
_MOST_ERRORS = 32
_MOST_ERROR_CHARACTERS = 512
# If the warnings of an answer have more than 4096 characters together, the API server cuts each to 256.
_MOST_WARNINGS = 16
_MOST_WARNING_CHARACTERS = 256

CLASS_KINDS: dict[str, type[Document]] = {
    "gpu.nvidia.com": GpuConfig,
    "large": GpuConfig,
    "medium": GpuConfig,
    "shared-timesliced": GpuConfig,
    "shared-mps": GpuConfig,
    "shared-memory": GpuConfig,
    "mig.nvidia.com": MigDeviceConfig,
    "mig-small": MigDeviceConfig,
    "mig-medium": MigDeviceConfig,
    "mig-large": MigDeviceConfig,
    "shared-mig": MigDeviceConfig,
    "vfio.gpu.nvidia.com": VfioDeviceConfig,
    "vgpu.gpu.nvidia.com": VfioDeviceConfig,
}
"""The classes that come with the driver, each with the kind of configuration for its devices.

A claim under review only names its class, and the webhook has no right to read classes. An admin can give
most of these names to other classes. So a class counts if it was installed with the driver, or if its name
has the driver's domain.
"""

CHANNEL_CLASS = "nvlink-channel"
"""The class of IMEX channels that comes with the driver."""

CLASS_STRATEGIES: dict[str, Strategy] = {
    "shared-timesliced": "TimeSlicing",
    "shared-mps": "MPS",
}
"""The classes of shared devices that are all shared by the same strategy."""


@dataclass(frozen=True, slots=True)
class Answer:
    """``document`` is the AdmissionReview to send; ``kind`` is empty for an object that is not reviewed."""

    kind: str
    findings: Findings
    document: dict[str, Any]

    @property
    def allowed(self) -> bool:
        """Whether the object may be stored."""
        return not self.findings.errors


def review(asked: Any, classes: frozenset[str] = frozenset()) -> Answer:
    """Answer one AdmissionReview; raises ReviewMalformed for anything else.

    ``classes`` are those of this driver's own that were installed with it.
    """
    if not isinstance(asked, Mapping) or asked.get("kind") != "AdmissionReview":
        raise ReviewMalformed("the body is not an AdmissionReview")
    if asked.get("apiVersion") != API_VERSION:
        raise ReviewMalformed(f"the AdmissionReview is not of {API_VERSION}")
    request = asked.get("request")
    if not isinstance(request, Mapping):
        raise ReviewMalformed("the AdmissionReview has no request")
    uid = request.get("uid")
    if not isinstance(uid, str) or not 0 < len(uid) <= _MOST_UID_CHARACTERS:
        raise ReviewMalformed("the request has no uid")
    kind = _kind(request)
    findings = judge(_subject(kind, request), classes) if kind else Findings()
    document = {"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": _response(uid, findings)}
    return Answer(kind, findings, document)


def _kind(request: Mapping[str, Any]) -> str:
    """The kind of the object if it is reviewed; empty for others, for deletions and for subresources."""
    kind = request.get("kind")
    if not isinstance(kind, Mapping):
        raise ReviewMalformed("the request has no kind")
    known = (
        kind.get("group") == GROUP and kind.get("version") in VERSIONS and kind.get("kind") in REVIEWED_KINDS
    )
    if not known or request.get("operation") not in ("CREATE", "UPDATE") or request.get("subResource"):
        return ""
    return str(kind["kind"])


def _subject(kind: str, request: Mapping[str, Any]) -> Subject:
    """The object to judge; an empty one if an update does not change it."""
    subject = read_subject(kind, request.get("object"))
    # A stored object may be wrong, and it must still be possible to label it and to remove its finalizers.
    if request["operation"] == "UPDATE" and subject == read_subject(kind, request.get("oldObject")):
        return Subject((), ())
    return subject


def _response(uid: str, findings: Findings) -> dict[str, Any]:
    response: dict[str, Any] = {"uid": uid, "allowed": not findings.errors}
    if findings.warnings:
        warnings = _bounded(findings.warnings, _MOST_WARNINGS, _MOST_WARNING_CHARACTERS)
        response["warnings"] = warnings
    if findings.errors:
        response["status"] = {
            "status": "Failure",
            "code": int(http.HTTPStatus.UNPROCESSABLE_ENTITY),
            "reason": "Invalid",
            "message": "; ".join(_bounded(findings.errors, _MOST_ERRORS, _MOST_ERROR_CHARACTERS)),
        }
    return response


def _bounded(sentences: tuple[str, ...], most: int, most_characters: int) -> list[str]:
    """As many sentences as may be shown, with non-printable characters escaped, for a terminal."""
    shown = [_printable(one)[:most_characters] for one in sentences[:most]]
    more = len(sentences) - len(shown)
    return [*shown, f"and {more} more"] if more else shown


def _printable(characters: Iterable[str]) -> str:
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in characters
    )


@dataclass(frozen=True, slots=True)
class Findings:
    """Sentences that begin with field paths; without errors the object is allowed."""

    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Decoded:
    config: Config
    document: Document

    @property
    def kind(self) -> type[Document]:
        return type(self.document)

    @property
    def word(self) -> str:
        """The kind that is written in the document."""
        return str(self.config.parameters["kind"])

    def misfits(self, request: Request) -> bool:
        """Whether the devices of the request's class are certainly of another kind."""
        return request.is_certain and CLASS_KINDS.get(request.class_name, self.kind) is not self.kind

    def names(self, request: Request) -> bool:
        """Whether it is for this request by name; a configuration of a class is for every request of it."""
        named = self.config.requests
        return not request.name or request.name in named or request.top in named

    def applies_to(self, request: Request) -> bool:
        """Whether it can configure the request's device; one for all requests skips other kinds."""
        if self.names(request):
            return True
        return not self.config.requests and CLASS_KINDS.get(request.class_name, self.kind) is self.kind


def _devices(document: type[Document]) -> str:
    """The devices that a configuration is for, in words."""
    return KINDS.described(document.__name__) or "a device that this driver does not offer"


def judge(subject: Subject, classes: frozenset[str]) -> Findings:
    """All errors and warnings of an object; for ``classes`` see ``review``."""
    errors: list[str] = []
    decoded: list[_Decoded] = []
    for config in subject.configs:
        try:
            path = f"{config.path}.opaque.parameters"
            decoded.append(_Decoded(config, decode_any(config.parameters, path)))
        except MalformedConfig as error:
            errors.extend(error.errors)
    # If a document is malformed, warnings would only be guesses.
    if errors:
        return Findings(tuple(errors))
    requests = tuple(replace(one, is_installed=one.class_name in classes) for one in subject.requests)
    misfits = (*_of_other_kinds(decoded, requests), *_of_other_strategies(decoded, requests))
    # Each sentence once, in order.
    return Findings(
        (*_contradictions(decoded, requests), *dict.fromkeys(misfits)),
        tuple(dict.fromkeys((*_without_effect(decoded), *_overridden(decoded, requests), *_gang(requests)))),
    )


def _contradictions(decoded: list[_Decoded], requests: tuple[Request, ...]) -> Iterator[str]:
    """Requests that configurations of two kinds name, so that one of them is wrong for every device."""
    clashing: dict[str, list[_Decoded | None]] = {}
    for request in requests:
        clashing.setdefault(request.top, []).append(_clash(decoded, request))
    # Only if it is so for all alternatives of a request; otherwise one of them can be prepared.
    for top, found in clashing.items():
        first = next(iter(found))
        if first is not None and None not in found:
            yield (
                f"{first.config.path}.requests: {top} is named by configurations for different "
                "kinds of devices, so prepare refuses one of them for any device: name the "
                "request in only one"
                if top
                else f"{first.config.path}: a class applies its configurations to every request for "
                "it, and prepare refuses those for another kind of device: keep one kind"
            )


def _clash(decoded: list[_Decoded], request: Request) -> _Decoded | None:
    """The first configuration for the request that is of another kind than the request's first one."""
    named = [one for one in decoded if one.names(request)]
    return next((one for one in named if one.kind is not named[0].kind), None)


def _without_effect(decoded: list[_Decoded]) -> Iterator[str]:
    for one in decoded:
        if isinstance(one.document, MigDeviceConfig) and one.document.strategy == "TimeSlicing":
            yield (
                f"{one.config.path}.opaque.parameters.sharing: TimeSlicing has no effect on a "
                "partition, which has no interval to set"
            )


def _gang(requests: tuple[Request, ...]) -> Iterator[str]:
    """What a claim for an IMEX channel asks for that no gang can want."""
    channels = [one for one in requests if one.class_name == CHANNEL_CLASS]
    if channels and any(one.is_certain for one in requests if one not in channels):
        yield (
            f"request {channels[0].name}: pods that share this claim for an IMEX channel all run on the node "
            "of its GPUs: leave the channel to a claim of the gang, and give each pod a claim for its GPUs"
        )
    for one in channels:
        if one.takes_all:
            yield (
                f"request {one.name}: allocationMode All takes every channel of an NVLink clique, so no "
                "other gang can run there: one channel is enough for a gang"
            )


def _overridden(decoded: list[_Decoded], requests: tuple[Request, ...]) -> Iterator[str]:
    for request in requests:
        last: dict[type[Document], _Decoded] = {}
        for one in reversed([one for one in decoded if one.applies_to(request)]):
            winner = last.setdefault(one.kind, one)
            if winner.document != one.document:
                whom = f"request {request.name}" if request.name else "this class"
                yield f"{one.config.path}: has no effect on {whom}: {winner.config.path} comes later and wins"


def _of_other_kinds(decoded: list[_Decoded], requests: tuple[Request, ...]) -> Iterator[str]:
    """What prepare refuses because no device that it can be for is of its kind."""
    for one in decoded:
        for name in one.config.requests or ("",):
            meant = [request for request in requests if name in ("", request.name, request.top)]
            if not meant or not all(one.misfits(request) for request in meant):
                continue
            what = f"{one.config.path}: {one.word} is for {_devices(one.kind)}"
            if name:
                for request in meant:
                    but = f"{request.class_words} selects {_devices(CLASS_KINDS[request.class_name])}"
                    yield f"{what}, but {but}, for which prepare refuses it"
            # One for all requests may be meant for an alternative that is not chosen.
            elif not any("/" in request.name for request in meant):
                yield f"{what}, and no request asks for one: prepare refuses it"


def _of_other_strategies(decoded: list[_Decoded], requests: tuple[Request, ...]) -> Iterator[str]:
    """What prepare refuses because the device is shared by another strategy."""
    for request in requests:
        # A device that is not shared takes any strategy, for the pods of its claim.
        strategy = CLASS_STRATEGIES.get(request.class_name) if request.is_certain else None
        # With admin access it only looks on. An alternative may not be chosen.
        if strategy is None or request.admin_access or "/" in request.name:
            continue
        # The last configuration of a kind counts.
        winners = {one.kind: one for one in decoded if one.applies_to(request)}
        one = winners.get(CLASS_KINDS[request.class_name])
        if one is None or isinstance(one.document, VfioDeviceConfig):
            continue
        if one.document.strategy not in (None, strategy):
            yield (
                f"{one.config.path}.opaque.parameters.sharing: prepare refuses {one.document.strategy}: "
                f"{request.class_words} selects GPUs that are shared by {strategy}"
            )
