"""Builds programs that tests run from pinned Go modules, each once, into the user's cache.

Each folder of ``go_programs/`` is a module whose ``tool`` lines name what it builds: programs of others that
judge what this project ships, and small ones that have the libraries of others judge it. They lie apart from
those of a cluster, whose cache they would end.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from envtest.client.cache import user_cache
from envtest.client.errors import ClusterError
from envtest.real.build import KEY_DIGITS, go_command, run_go

MODULES_FOLDER = Path(__file__).parent / "go_programs"
WITH_C = frozenset({"container-toolkit"})
"""The modules whose programs load C libraries (cgo), and take a C compiler to build."""


def go_programs(
    module: str, environment: Mapping[str, str] = os.environ, modules_folder: Path = MODULES_FOLDER
) -> Path:
    """The folder with the programs of a module, each by the last part of its package's path.

    Args:
        module: a folder of ``modules_folder`` with go.mod and go.sum.
        environment: of the Go command.
        modules_folder: where modules lie.

    Raises:
        MissingPrerequisite: they are not built yet, and there is no Go.
        BuildFailed: Go failed.
        ClusterError: there is no such module.
    """
    source = modules_folder / module
    if not (source / "go.mod").is_file():
        raise ClusterError(f"there is no Go module {source}")
    with_c = module in WITH_C
    cache = user_cache(environment) / "go-programs"
    target = cache / f"{module}-{_key(source, with_c=with_c)}"
    if target.is_dir():
        return target
    cache.mkdir(parents=True, exist_ok=True)
    with Path(f"{target}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            _build(source, target, {**environment, "CGO_ENABLED": "01"[with_c], "GOWORK": "off"})
    return target


def modules() -> list[str]:
    """All modules of ``MODULES_FOLDER``."""
    return sorted(path.name for path in MODULES_FOLDER.iterdir() if (path / "go.mod").is_file())


def _key(source: Path, *, with_c: bool) -> str:
    """A digest of all that a module's programs are built from."""
    digest = hashlib.sha256(b"cgo" if with_c else b"")
    for file in sorted(path for path in source.rglob("*") if path.is_file()):
        digest.update(f"{file.relative_to(source)}\0{file.stat().st_size}\0".encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()[:KEY_DIGITS]


def _build(source: Path, target: Path, environment: Mapping[str, str]) -> None:
    """Build into a folder beside the target, so that an interrupted build leaves nothing that counts."""
    go = go_command(environment)
    for leftover in target.parent.glob(f".{target.name}-*"):
        shutil.rmtree(leftover)
    work = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    packages = run_go([go, "list", "tool"], source, environment).split()
    build = [go, "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", f"{work}/"]
    run_go([*build, *packages], source, environment)
    work.chmod(0o755)
    work.rename(target)
