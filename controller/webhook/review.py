"""Answers an AdmissionReview (admission.k8s.io/v1) about an object with configurations for this driver.

Pure: a document in, a document out. Nothing of the object is trusted, nor kept.
"""

from __future__ import annotations

import http
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from controller.webhook.findings import Findings, judge
from controller.webhook.subject import GROUP, KINDS, VERSIONS, ReviewMalformed, Subject, read_subject

API_VERSION = "admission.k8s.io/v1"
_MOST_UID_CHARACTERS = 128
_MOST_ERRORS = 32
_MOST_ERROR_CHARACTERS = 512
# The API server cuts warnings of an answer that have more than 4096 characters together, each to 256.
_MOST_WARNINGS = 16
_MOST_WARNING_CHARACTERS = 256


@dataclass(frozen=True, slots=True)
class Answer:
    """What to answer: ``document`` is the AdmissionReview to send, ``kind`` one of KINDS or empty."""

    kind: str
    findings: Findings
    document: dict[str, Any]

    @property
    def allowed(self) -> bool:
        """Whether the object may be stored."""
        return not self.findings.errors


def review(asked: Any) -> Answer:
    """Answer one AdmissionReview. Raises ReviewMalformed when it is none."""
    if not isinstance(asked, Mapping) or asked.get("kind") != "AdmissionReview":
        raise ReviewMalformed("the body is no AdmissionReview")
    if asked.get("apiVersion") != API_VERSION:
        raise ReviewMalformed(f"the AdmissionReview is not of {API_VERSION}")
    request = asked.get("request")
    if not isinstance(request, Mapping):
        raise ReviewMalformed("the AdmissionReview has no request")
    uid = request.get("uid")
    if not isinstance(uid, str) or not 0 < len(uid) <= _MOST_UID_CHARACTERS:
        raise ReviewMalformed("the request has no uid")
    kind = _kind(request)
    findings = judge(_subject(kind, request)) if kind else Findings()
    document = {"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": _response(uid, findings)}
    return Answer(kind, findings, document)


def _kind(request: Mapping[str, Any]) -> str:
    """Which of our kinds the object is; empty for any other, for a deletion and for a subresource."""
    kind = request.get("kind")
    if not isinstance(kind, Mapping):
        raise ReviewMalformed("the request has no kind")
    known = kind.get("group") == GROUP and kind.get("version") in VERSIONS and kind.get("kind") in KINDS
    if not known or request.get("operation") not in ("CREATE", "UPDATE") or request.get("subResource"):
        return ""
    return str(kind["kind"])


def _subject(kind: str, request: Mapping[str, Any]) -> Subject:
    """What is to be judged: the object, or nothing where an update leaves it as it was.

    What is stored already may be wrong, and still has to be labelled, and its finalizers removed.
    """
    subject = read_subject(kind, request.get("object"))
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
    """As many sentences as may be shown, for a terminal: what is not printable is escaped."""
    shown = [_printable(one)[:most_characters] for one in sentences[:most]]
    more = len(sentences) - len(shown)
    return [*shown, f"and {more} more"] if more else shown


def _printable(characters: Iterable[str]) -> str:
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in characters
    )
