"""Reads the names of container images, as far as it decides when an image is pulled by default."""

from __future__ import annotations

import re

_HOST_PART = "(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])"
_DOMAIN = rf"(?:{_HOST_PART}(?:\.{_HOST_PART})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?"
_PATH_PART = "[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_PATH = f"{_PATH_PART}(?:/{_PATH_PART})*"
_TAG = r"[\w][\w.-]{0,127}"
_DIGEST = "sha256:[a-f0-9]{64}|sha384:[a-f0-9]{96}|sha512:[a-f0-9]{128}"
_IMAGE = re.compile(f"{_DOMAIN}/(?P<path>{_PATH})(?::(?P<tag>{_TAG}))?(?:@(?P<digest>{_DIGEST}))?", re.ASCII)
_MOST_PATH = 255


def default_pull_policy(image: str) -> str:
    """``Always`` for an image without a version or with ``latest``, else ``IfNotPresent``.

    So is what is no name of an image. Go: SetDefaults_Container in pkg/apis/core/v1, ParseNormalizedNamed in
    distribution/reference.
    """
    match = _IMAGE.fullmatch(_with_domain(image))
    if match is None or len(match["path"]) > _MOST_PATH or re.fullmatch("[a-f0-9]{64}", image):
        return "IfNotPresent"
    tag = match["tag"] or ("" if match["digest"] else "latest")
    return "Always" if tag == "latest" else "IfNotPresent"


def _with_domain(image: str) -> str:
    """The name with the domain that is meant where it has none."""
    first, slash, _ = image.partition("/")
    has_domain = slash and (first == "localhost" or re.search(r"[.:]", first) or first.lower() != first)
    return image if has_domain else f"docker.io/{image}"
