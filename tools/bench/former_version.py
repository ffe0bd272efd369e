"""The source tree of a former version of this project, which is compared with today's.

A former version runs with today's interpreter and libraries.
"""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

from envtest.client.errors import MissingPrerequisite
from envtest.client.layout import user_cache
from envtest.client.shipped import PACKAGE_ROOT

# git sets these for its hooks; they would lead to another repository than the given one.
_OF_ANOTHER_REPOSITORY = frozenset({"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"})


def former_version(
    commit: str, repository: Path = PACKAGE_ROOT, environment: Mapping[str, str] = os.environ
) -> Path:
    """The folder with all files of a commit, extracted first if it is not in the cache.

    Several callers at once get the same folder. An interrupted call leaves no folder that is used later.

    Args:
        commit: the name of a commit, which may be short.
        repository: a folder of the repository that has the commit.
        environment: the environment variables for git, and to find the user's cache.

    Raises:
        MissingPrerequisite: there is no git, no repository, or no such commit in its history.
    """
    name = _git(commit, repository, environment, "rev-parse", "--verify", f"{commit}^{{commit}}")
    hexadecimal = name.decode().strip()
    cache = user_cache(environment) / "former"
    target = cache / hexadecimal
    if target.is_dir():
        return target
    archive = _git(commit, repository, environment, "archive", "--format=tar", hexadecimal)
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{hexadecimal}-", dir=cache) as work:
        tree = Path(work, "tree")
        # Not a zip, whose links Python extracts as files with the path: manifests are links into the chart.
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(tree, filter="data")
        try:
            tree.rename(target)
        except OSError:
            # A folder cannot replace one that is not empty: another caller was faster.
            if not target.is_dir():
                raise
    return target


def _git(commit: str, repository: Path, environment: Mapping[str, str], *arguments: str) -> bytes:
    own = {name: value for name, value in environment.items() if name not in _OF_ANOTHER_REPOSITORY}
    try:
        done = subprocess.run(
            ["git", "-C", str(repository), *arguments], env=own, capture_output=True, check=False
        )
    except FileNotFoundError as error:
        raise MissingPrerequisite(f"version {commit} is needed, and there is no git: install it") from error
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip()
        raise MissingPrerequisite(
            f"version {commit} is not in the history of {repository} ({said}): get all of it with "
            f"git fetch --unshallow, in a clone of the project where this folder is none"
        )
    return done.stdout
