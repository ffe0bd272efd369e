"""The version of an API server is read as clouds write it, and unknown where it is not told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from driver.kube.client import KubeClient
from driver.kube.server_version import OLDEST, ServerVersion, server_version

if TYPE_CHECKING:
    from pathlib import Path

    from envtest.embedded.api.server import EmbeddedApiServer


@pytest.mark.parametrize(
    ("minor", "version"),
    [("36", (1, 36)), ("36+", (1, 36)), ("9", (1, 9)), ("", None), ("x36", None), ("٣٦", None)],
)
def test_the_minor_version_is_its_digits(
    server: EmbeddedApiServer, tmp_path: Path, minor: str, version: tuple[int, int] | None
) -> None:
    server.minor = minor
    client = KubeClient.connect(server.write_kubeconfig(tmp_path / "kubeconfig"))

    assert server_version(client) == version


def test_versions_follow_each_other_by_number() -> None:
    assert ServerVersion(1, 9) < ServerVersion(1, 35) < OLDEST <= ServerVersion(1, 36) < ServerVersion(2, 0)
    assert str(ServerVersion(1, 36)) == "1.36"
