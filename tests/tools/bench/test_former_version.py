"""A former version is taken out of the history once, and its processes import its own packages."""

from __future__ import annotations

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from envtest.client.errors import MissingPrerequisite
from envtest.client.shipped import PACKAGE_ROOT, python_command, python_environment
from tests import needs
from tools.bench.former_version import former_version

pytestmark = needs.GIT


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with two commits, of which the first has a package that the second has no more."""
    folder = tmp_path_factory.mktemp("repository")
    git(folder, "init", "--quiet")
    package = folder / "driver" / "__init__.py"
    package.parent.mkdir()
    package.write_text("")
    (folder / "link").symlink_to("driver/__init__.py")
    commit(folder, "first")
    shutil.rmtree(package.parent)
    (folder / "link").unlink()
    (folder / "readme").write_text("")
    commit(folder, "second")
    return folder


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=somebody", "-c", "user.email=somebody@example.com")
    command = ["git", *identity, "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def commit(folder: Path, message: str) -> None:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", message)


def first(repository: Path) -> str:
    return git(repository, "rev-parse", "--short", "HEAD~1")


def test_a_former_version_lies_in_the_cache_as_it_was_committed(repository: Path, tmp_path: Path) -> None:
    folder = former_version(first(repository), repository, {**os.environ, "XDG_CACHE_HOME": str(tmp_path)})

    assert folder.parent == tmp_path / "gpu-dra" / "former"
    assert folder.name.startswith(first(repository))
    assert (folder / "driver" / "__init__.py").is_file()
    assert (folder / "link").readlink() == Path("driver/__init__.py")
    assert not (folder / "readme").exists()
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_callers_at_once_share_one_folder(repository: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    with ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(former_version, first(repository), repository, environment) for _ in range(4)]
    (folder,) = {call.result() for call in calls}
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_a_version_that_the_history_lacks_is_named_with_what_brings_it(
    repository: Path, tmp_path: Path
) -> None:
    missing = first(repository)
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{repository}", str(shallow))
    with pytest.raises(MissingPrerequisite, match=rf"{missing} is not in .*git fetch --unshallow"):
        former_version(missing, shallow)
    with pytest.raises(MissingPrerequisite, match="in a clone of the project"):
        former_version(missing, tmp_path)


def test_a_process_imports_the_packages_of_a_former_version(repository: Path, tmp_path: Path) -> None:
    folder = former_version(first(repository), repository, {**os.environ, "XDG_CACHE_HOME": str(tmp_path)})
    done = subprocess.run(
        python_command("-c", "import driver; print(driver.__file__)"),
        env=python_environment(folder, {}),
        cwd=PACKAGE_ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == str(folder / "driver" / "__init__.py")


def test_its_packages_come_before_those_of_the_callers_environment(tmp_path: Path) -> None:
    assert python_environment(tmp_path, {"PYTHONPATH": "/other"}) == {"PYTHONPATH": f"{tmp_path}:/other"}
    assert python_environment(tmp_path, {}) == {"PYTHONPATH": str(tmp_path)}
