"""The image of a working tree is built once, and anew when anything changes that goes into it."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from envtest.client.errors import BuildFailed, MissingPrerequisite
from tests.envtest.real.test_assets import BUILDING_GO, give_go
from tools.testbed.driver_image import MOST_KEPT, build_anew, content_key, driver_image

# Says what it is asked, answers where images are stored, and writes the archive that a push names.
BUILDAH = """\
echo "$@" >> {log}
for word in "$@"; do
  case $word in
    images) test -e {stored} || exit 125 ;;
    bud) touch {stored} ;;
    docker-archive:*) path=${{word#docker-archive:}}; echo image > "${{path%%:*}}" ;;
  esac
done
"""
DEBOOTSTRAP = """\
for root in "$@"; do :; done
for folder in usr/share/doc usr/share/man usr/share/locale usr/share/info \\
    var/log var/cache/apt var/lib/apt/lists; do
  mkdir -p "$root/$folder"
  touch "$root/$folder/file"
done
ln -s nowhere "$root/usr/share/doc/link"
touch "$root/python3"
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A checkout with what builds the image, and one module."""
    root = tmp_path / "source"
    hook = root / "deploy" / "image" / "hook"
    hook.mkdir(parents=True)
    (root / "deploy/image/Dockerfile.dockerignore").write_text(
        "*\n!LICENSE\n!deploy\n!driver\n**/__pycache__\n"
    )
    (root / "deploy/image/build.py").write_text(
        "import subprocess, sys\nsubprocess.run(['buildah', 'bud', *sys.argv[1:]], check=True)\n"
    )
    (root / "LICENSE").write_text("licence")
    (root / "driver" / "__pycache__").mkdir(parents=True)
    (root / "driver" / "module.py").write_text("one = 1\n")
    return root


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Stand-ins for Go, buildah and debootstrap on the PATH, and a cache of the test's own."""
    given = give_go(tmp_path, BUILDING_GO)
    programs = Path(given["PATH"].split(os.pathsep)[0])
    texts = {
        "go": 'test "$1" = env && printf "%s\\n" /go "$HOME/modules" "$HOME/built"; exit 0',
        "buildah": BUILDAH.format(log=tmp_path / "log", stored=tmp_path / "stored"),
        "debootstrap": DEBOOTSTRAP,
    }
    for name, text in texts.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}")
        (programs / name).chmod(0o755)
    return given


def builds(tmp_path: Path) -> int:
    """How often an image was written."""
    return sum(" push " in line for line in (tmp_path / "log").read_text().splitlines())


def test_a_content_is_built_once_and_a_change_anew(
    tmp_path: Path, source: Path, environment: dict[str, str]
) -> None:
    first = driver_image(environment, source)
    assert first.read_text() == "image\n"
    assert driver_image(environment, source) == first
    assert builds(tmp_path) == 1

    (source / "driver" / "module.py").write_text("one = 2\n")

    assert driver_image(environment, source) != first
    assert builds(tmp_path) == 2


def test_only_what_the_dockerfile_may_copy_counts(source: Path) -> None:
    before = content_key(source)
    (source / "tests").mkdir()
    (source / "tests" / "test_module.py").write_text("")
    (source / "driver" / "__pycache__" / "module.pyc").write_text("")
    assert content_key(source) == before

    (source / "LICENSE").write_text("another licence")
    assert content_key(source) != before


def test_the_base_is_made_once(tmp_path: Path, source: Path, environment: dict[str, str]) -> None:
    driver_image(environment, source)
    build_anew(tmp_path / "again.tar", environment, source)

    lines = (tmp_path / "log").read_text().splitlines()
    assert sum("--tag localhost/gpu-dra-base:" in line for line in lines) == 1
    mounted = {path for line in lines for path in re.findall(r"--volume (/\S*?):", line)}
    assert str(tmp_path / "built") in mounted
    assert (tmp_path / "built").is_dir()  # buildah mounts only what is there
    assert (tmp_path / "again.tar").read_text() == "image\n"


def test_a_build_that_fails_leaves_nothing_that_counts(source: Path, environment: dict[str, str]) -> None:
    (source / "deploy/image/build.py").write_text("import sys; sys.exit('no such base')")
    for _ in range(2):
        with pytest.raises(BuildFailed, match="no such base"):
            driver_image(environment, source)


def test_former_images_are_forgotten(source: Path, environment: dict[str, str]) -> None:
    for number in range(MOST_KEPT + 2):
        (source / "driver" / "module.py").write_text(f"one = {number}\n")
        last = driver_image(environment, source)
    assert last.is_file()
    assert len(list(last.parent.glob("driver-*.tar"))) == MOST_KEPT


def test_what_is_missing_is_named_with_its_package(
    tmp_path: Path, source: Path, environment: dict[str, str]
) -> None:
    with pytest.raises(MissingPrerequisite, match="apt-get install buildah debootstrap"):
        driver_image({**environment, "PATH": str(tmp_path)}, source)
