"""The node configuration's ConfigMap becomes the controllers' file, as the kubelet does it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from envtest.client.errors import NotReady
from envtest.cluster import DRIVER_NAMESPACE
from envtest.embedded.cluster import EmbeddedCluster
from tests.eventually import eventually
from tools.scenarios.places import projection
from tools.scenarios.places.projection import KEY, PATH, Projection, set_config


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as started:
        started.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": DRIVER_NAMESPACE}})
        yield started


def wait_content(file: Path, wanted: str | None) -> None:
    """Wait until a file holds this; None for no file."""

    def content() -> str | None:
        return file.read_text() if file.exists() else None

    eventually(f"{file.name} is {wanted!r}", content, lambda text: text == wanted)


def test_the_files_are_there_from_the_start_and_follow_the_config_map(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    one, other = tmp_path / "one.yaml", tmp_path / "other.yaml"
    set_config(cluster.api, "version: v1\n")
    with Projection(cluster.admin, [one, other]):
        assert (one.read_text(), other.read_text()) == ("version: v1\n", "version: v1\n")
        set_config(cluster.api, "version: v1\nrules: []\n")
        wait_content(one, "version: v1\nrules: []\n")
        wait_content(other, "version: v1\nrules: []\n")


def test_a_change_is_a_new_file_so_that_nobody_reads_half_of_it(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    file = tmp_path / "one.yaml"
    set_config(cluster.api, "version: v1\n")
    with Projection(cluster.admin, [file]):
        before = file.stat().st_ino
        with file.open() as opened:
            set_config(cluster.api, "version: v1\nrules: []\n")
            wait_content(file, "version: v1\nrules: []\n")
            assert opened.read() == "version: v1\n"
        assert file.stat().st_ino != before


def test_the_file_goes_with_the_key_and_stays_when_the_config_map_goes(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    file = tmp_path / "one.yaml"
    set_config(cluster.api, "version: v1\n")
    with Projection(cluster.admin, [file]):
        cluster.api.patch(PATH, {"data": {KEY: None, "other": "x"}})
        wait_content(file, None)
        set_config(cluster.api, "version: v1\n")
        wait_content(file, "version: v1\n")
        cluster.api.delete(PATH)
        set_config(cluster.api, "version: v1\nrules: []\n")
        wait_content(file, "version: v1\nrules: []\n")


def test_a_config_map_that_cannot_be_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projection, "_WAIT_SECONDS", 0.2)
    with EmbeddedCluster() as gone:
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_bytes(gone.admin.read_bytes())
    with pytest.raises(NotReady, match="gpu-dra-node-config could not be read"), Projection(kubeconfig, []):
        pass
