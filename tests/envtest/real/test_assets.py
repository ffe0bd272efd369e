"""Which binaries a cluster runs: they are built once and cached, and a build that fails says why."""

import shutil
from pathlib import Path

import pytest

from envtest.client.errors import BuildFailed
from envtest.real import build
from tests.clusters import find_assets


def give_go(folder: Path, script: str) -> dict[str, str]:
    """A stand-in for go that runs a shell script; returns an environment with it and a cache."""
    path = folder / "bin" / "go"
    path.parent.mkdir()
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return {
        "PATH": f"{path.parent}:/usr/bin:/bin",
        "HOME": str(folder),
        "XDG_CACHE_HOME": str(folder / "cache"),
    }


# Makes the file after -o, or a file in that folder; counts its runs; lists two tools.
BUILDING_GO = """
echo run >> "$HOME/runs"
test "$1" = list && echo example.org/cmd/ctr && exit 0
while test "$1" != -o; do shift; done
case "$2" in */) touch "$2/ctr";; *) touch "$2";; esac
"""


def test_binaries_are_built_once_and_then_cached(tmp_path: Path) -> None:
    environment = give_go(tmp_path, BUILDING_GO)

    first = find_assets("1.37", environment)
    runs = (tmp_path / "runs").read_text()
    again = find_assets("1.37", environment)

    assert first == again
    assert first.folder.parent == tmp_path / "cache" / "gpu-dra" / "envtest"
    assert (first.folder / "kubelet").resolve() == first.folder / "kube"
    assert (tmp_path / "runs").read_text() == runs == "run\n" * 4


def test_of_a_beta_the_scheduler_is_built_and_the_rest_is_that_of_a_release(tmp_path: Path) -> None:
    environment = give_go(tmp_path, BUILDING_GO)

    beta, release = (find_assets(version, environment).folder for version in ("1.38", "1.37"))

    assert not (beta / "kube-scheduler").is_symlink()
    assert (beta / "kubelet").resolve() == beta / "kube"
    assert {path.name for path in beta.iterdir()} == {path.name for path in release.iterdir()}
    assert (tmp_path / "runs").read_text() == "run\n" * 6


def test_failed_build_says_what_go_said_and_leaves_nothing_that_counts(tmp_path: Path) -> None:
    environment = give_go(tmp_path, "echo no route to the proxy >&2; exit 1")

    for _ in range(2):
        with pytest.raises(BuildFailed, match="no route to the proxy"):
            find_assets("1.36", environment)

    cache = tmp_path / "cache" / "gpu-dra" / "envtest"
    assert not (cache / build.cache_key("1.36")).exists()
    assert len(list(cache.glob(".*-*"))) == 1, "the next build removes what the last one left"


def test_cache_key_depends_on_the_version_and_on_every_go_file(tmp_path: Path) -> None:
    changed = tmp_path / "go"
    shutil.copytree(build.GO_FOLDER, changed)
    keys = {build.cache_key("1.37"), build.cache_key("1.36")}
    assert build.cache_key("1.37", changed) in keys

    with (changed / "runtime" / "go.sum").open("a") as file:
        file.write("\n")

    keys.add(build.cache_key("1.37", changed))
    assert len(keys) == 3
