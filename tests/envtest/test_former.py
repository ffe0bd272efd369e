"""A former version is taken out of the history once, and its processes import its own packages."""

from __future__ import annotations

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from envtest.client.errors import MissingPrerequisite
from envtest.client.shipped import PACKAGE_ROOT
from envtest.former import RELEASED, former_version, python_command, python_environment


@pytest.fixture(scope="module")
def released() -> Path:
    return former_version(RELEASED)


def test_a_former_version_lies_in_the_cache_as_it_was_committed(tmp_path: Path) -> None:
    folder = former_version(RELEASED, environment={**os.environ, "XDG_CACHE_HOME": str(tmp_path)})

    assert folder.parent == tmp_path / "gpu-dra" / "former"
    assert folder.name.startswith(RELEASED)
    assert (folder / "kubeletplugin" / "entry.py").is_file()
    assert not (folder / "kubeletplugin" / "journal").exists()
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_callers_at_once_share_one_folder(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        calls = [
            pool.submit(former_version, RELEASED, environment={**os.environ, "XDG_CACHE_HOME": str(tmp_path)})
            for _ in range(4)
        ]
    (folder,) = {call.result() for call in calls}
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_a_version_that_the_history_lacks_is_named_with_what_brings_it(tmp_path: Path) -> None:
    shallow = tmp_path / "shallow"
    clone = ["git", "clone", "--quiet", "--depth=1", f"file://{PACKAGE_ROOT}", str(shallow)]
    subprocess.run(clone, check=True)
    with pytest.raises(MissingPrerequisite, match=rf"{RELEASED} is not in .*git fetch --unshallow"):
        former_version(RELEASED, shallow)
    with pytest.raises(MissingPrerequisite, match="in a clone of the project"):
        former_version(RELEASED, Path("/"))


@pytest.mark.parametrize(
    ("module", "file"),
    [
        ("kubeletplugin.entry", "kubeletplugin/entry.py"),
        ("driver", "driver/__init__.py"),
        ("controller.__main__", "controller/__main__.py"),
        ("kubeletplugin.mps.__main__", "kubeletplugin/mps/__main__.py"),
        ("proto.dra_v1_pb2", "proto/dra_v1_pb2.py"),
    ],
)
def test_a_process_of_a_former_version_imports_its_packages(released: Path, module: str, file: str) -> None:
    program = f"import importlib; print(importlib.import_module({module!r}).__file__)"
    done = subprocess.run(
        python_command("-c", program),
        env=python_environment(released, {}),
        cwd=PACKAGE_ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == str(released / file)


def test_its_packages_come_before_those_of_the_callers_environment(tmp_path: Path) -> None:
    assert python_environment(tmp_path, {"PYTHONPATH": "/other"}) == {"PYTHONPATH": f"{tmp_path}:/other"}
    assert python_environment(tmp_path, {}) == {"PYTHONPATH": str(tmp_path)}
