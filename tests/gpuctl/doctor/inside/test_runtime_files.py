"""Configurations of containerd and CRI-O are read as these programs read them, as far as CDI goes."""

from pathlib import Path

import pytest

from gpuctl.doctor.inside.runtime_files import runtime_configs
from gpuctl.doctor.inside.seen import RuntimeConfig

CONTAINERD = "etc/containerd/config.toml"
OLD = """
version = 2
[plugins."io.containerd.grpc.v1.cri"]
  enable_cdi = {cdi}
  cdi_spec_dirs = ["/etc/cdi", "/srv/cdi"]
"""
NEW = """
version = 3
[plugins."io.containerd.cri.v1.runtime"]
  cdi_spec_dirs = ["/var/run/cdi"]
"""


def put(root: Path, name: str, text: str) -> None:
    file = root / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def read_one(root: Path) -> RuntimeConfig:
    (found,) = runtime_configs(root)
    return found


@pytest.mark.parametrize("cdi", [True, False])
def test_containerd_1_says_whether_cdi_is_on(tmp_path: Path, cdi: bool) -> None:
    put(tmp_path, CONTAINERD, OLD.format(cdi=str(cdi).lower()))

    assert read_one(tmp_path) == RuntimeConfig(
        f"/{CONTAINERD}", "containerd", cdi, ("/etc/cdi", "/srv/cdi"), since_2=False
    )


def test_containerd_2_is_known_by_the_version_of_its_file(tmp_path: Path) -> None:
    put(tmp_path, CONTAINERD, NEW)

    found = read_one(tmp_path)

    assert (found.since_2, found.cdi, found.folders) == (True, None, ("/var/run/cdi",))


def test_a_file_that_is_imported_counts_also_below_another_root(tmp_path: Path) -> None:
    put(tmp_path, CONTAINERD, 'version = 2\nimports = ["/etc/containerd/conf.d/*.toml", "own.toml"]\n')
    put(tmp_path, "etc/containerd/conf.d/99-nvidia.toml", OLD.format(cdi="true"))
    put(tmp_path, "etc/containerd/own.toml", OLD.format(cdi="false"))

    assert read_one(tmp_path).cdi is False
    (tmp_path / "etc/containerd/own.toml").unlink()
    assert read_one(tmp_path).cdi is True


@pytest.mark.parametrize("text", ["version =", "imports = 3", 'plugins = "none"', 'version = "two"'])
def test_what_is_no_configuration_says_so(tmp_path: Path, text: str) -> None:
    put(tmp_path, CONTAINERD, text)

    assert read_one(tmp_path).wrong


def test_cri_o_has_cdi_on_and_its_last_file_names_the_folders(tmp_path: Path) -> None:
    put(tmp_path, "etc/crio/crio.conf", '[crio.runtime]\ncdi_spec_dirs = ["/a"]\n')
    put(tmp_path, "etc/crio/crio.conf.d/10-x.conf", '[crio.runtime]\ncdi_spec_dirs = ["/b"]\n')
    put(tmp_path, "etc/crio/crio.conf.d/20-y.conf", "[crio.image]\n")

    found = read_one(tmp_path)

    assert (found.runtime, found.cdi, found.folders) == ("cri-o", True, ("/b",))
