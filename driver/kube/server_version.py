"""Knows which version of Kubernetes an API server is of, as ``/version`` tells."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from driver.kube.client import KubeClient

_DIGITS = re.compile(r"[0-9]{1,6}", re.ASCII)


class ServerVersion(NamedTuple):
    """Major and minor; versions are compared as they follow each other."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


OLDEST = ServerVersion(1, 36)
"""The oldest that is supported: it has the DRA fields that this driver writes, and is what tests run on."""


def server_version(client: KubeClient) -> ServerVersion | None:
    """The server's version; None for an answer that does not tell. Raises ApiError."""
    return _read(client.get("/version"))


def _read(answer: dict[str, Any]) -> ServerVersion | None:
    """Both numbers are text, and clouds write a plus behind the minor one (version.Info of apimachinery)."""
    major, minor = (_DIGITS.match(str(answer.get(key, ""))) for key in ("major", "minor"))
    return ServerVersion(int(major[0]), int(minor[0])) if major and minor else None
