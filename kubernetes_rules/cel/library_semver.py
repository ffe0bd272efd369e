"""Functions on semantic versions such as ``1.2.3-rc.1`` (k8s.io/apiserver/pkg/cel/library/semverlib.go)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import ClassVar

from kubernetes_rules.cel.types import BOOL, INT, STRING, CelError, Type, function, method
from kubernetes_rules.cel.values import OpaqueValue, traversed_string

SEMVER = Type("kubernetes.Semver")

_NUMBER = re.compile(r"0|[1-9][0-9]*")
_IDENTIFIER = re.compile(r"[0-9A-Za-z-]+")
_DIGITS_OF_UINT64 = 20


@dataclass(frozen=True, slots=True, order=True)
class Semver(OpaqueValue):
    """A version by semver.org 2.0.0, without its build metadata, which does not count in comparisons.

    ``before`` orders pre-releases: the release itself comes after them, and numbers come before words.
    """

    type: ClassVar[Type] = SEMVER

    major: int
    minor: int
    patch: int
    before: tuple[tuple[int, int, str], ...] = field(default=())


_NO_PRERELEASE = ((2, 0, ""),)


def parse(text: str) -> Semver:
    """The version of a text in strict form. Raises CelError for other text."""
    parts = text.split(".", 2)
    if len(parts) != 3:
        raise CelError(f"{text[:64]!r} is not a version: no major.minor.patch found")
    core, plus, build = parts[2].partition("+")
    patch, dash, prerelease = core.partition("-")
    if plus and not all(map(_IDENTIFIER.fullmatch, build.split("."))):
        raise CelError(f"{text[:64]!r} is not a version: its build metadata is not alphanumeric")
    before = tuple(map(_prerelease_part, prerelease.split("."))) if dash else _NO_PRERELEASE
    return Semver(_number(parts[0]), _number(parts[1]), _number(patch), before)


def parse_normalized(text: str, normalize: bool) -> Semver:
    """Like parse, if wanted after normalization: leading v and zeros removed, missing numbers 0."""
    if not normalize:
        return parse(text)
    parts = [_without_zeros(part) for part in text.removeprefix("v").split(".", 2)]
    if len(parts) < 3 and ("+" in parts[-1] or "-" in parts[-1]):
        raise CelError("short version cannot contain PreRelease/Build meta data")
    return parse(".".join([*parts, "0", "0"][: max(3, len(parts))]))


def _without_zeros(part: str) -> str:
    if len(part) < 2:
        return part
    stripped = part.lstrip("0")
    return stripped if stripped[:1] in set("0123456789") else f"0{stripped}"


def _number(digits: str) -> int:
    if not _NUMBER.fullmatch(digits) or len(digits) > _DIGITS_OF_UINT64 or int(digits) >= 2**64:
        raise CelError(f"{digits[:64]!r} is not a number of a version")
    return int(digits)


def _prerelease_part(part: str) -> tuple[int, int, str]:
    if not _IDENTIFIER.fullmatch(part):
        raise CelError(f"{part[:64]!r} is not an identifier of a pre-release")
    return (0, _number(part), "") if part.isdigit() else (1, 0, part)


def is_semver(text: str, normalize: bool = False) -> bool:
    """Whether a text is a version."""
    try:
        parse_normalized(text, normalize)
    except CelError:
        return False
    return True


def compare(left: Semver, right: Semver) -> int:
    """-1, 0 or 1."""
    return (left > right) - (left < right)


def _as_int64(number: int) -> int:
    """Kubernetes converts a uint64 to an int64, so that large ones become negative."""
    return number - 2**64 if number >= 2**63 else number


OVERLOADS = (
    function("semver", (STRING,), SEMVER, parse, traversed_string()),
    function("semver", (STRING, BOOL), SEMVER, parse_normalized, traversed_string()),
    function("isSemver", (STRING,), BOOL, is_semver, traversed_string()),
    function("isSemver", (STRING, BOOL), BOOL, is_semver, traversed_string()),
    method("isGreaterThan", (SEMVER, SEMVER), BOOL, lambda left, right: left > right),
    method("isLessThan", (SEMVER, SEMVER), BOOL, lambda left, right: left < right),
    method("compareTo", (SEMVER, SEMVER), INT, compare),
    method("major", (SEMVER,), INT, lambda version: _as_int64(version.major)),
    method("minor", (SEMVER,), INT, lambda version: _as_int64(version.minor)),
    method("patch", (SEMVER,), INT, lambda version: _as_int64(version.patch)),
)
