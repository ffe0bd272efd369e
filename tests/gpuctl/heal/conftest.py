"""The node of the tests of ``gpuctl heal``, whose command looks again without a pause."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuctl.heal import run
from tests.clusters import EmbeddedApiServer
from tests.gpuctl.heal.scene import HealScene
from tests.kubeletplugin.fake_kubelet import short_folder


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HealScene]:
    monkeypatch.setattr(run, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(run, "WELL_SECONDS", 0.5)
    with EmbeddedApiServer() as server, short_folder() as plugins:
        found = HealScene(server, tmp_path, plugins)
        monkeypatch.setenv("PATH", str(found.kubectl.folder), prepend=":")
        yield found
