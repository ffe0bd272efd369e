"""Builds the image of this project for test clusters, once for each content of the working tree.

No registry is needed: the base image is made by debootstrap, with the Python and the glibc of Debian 12. The
stages that need pip and a C compiler use the same base with both added. Everything is in the user's cache.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from envtest.client.errors import BuildFailed, MissingPrerequisite
from envtest.client.layout import user_cache
from envtest.client.shipped import PACKAGE_ROOT
from envtest.real.build import KEY_DIGITS, go_command, run_go

IMAGE = "localhost/gpu-dra:test"
"""The name of the image in test clusters."""

SUITE = "bookworm"
BASE_PACKAGES = "python3,ca-certificates"
TOOL_PACKAGES = ("python3-pip", "gcc", "libc6-dev")
# Debian's slim images have none of this either; nothing reads it at run time.
NOT_IN_A_SLIM_BASE = ("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info", "var/log")
FETCHED = ("var/cache/apt", "var/lib/apt/lists")

DOCKERFILE = Path("deploy", "image", "Dockerfile")
HOOK = Path("deploy", "image", "hook")
GO = "/usr/local/go"
CERTIFICATES = "/etc/ssl/certs"
EPOCH = "315532800"
"""The time of all files in the image (SOURCE_DATE_EPOCH): equal contents make equal images."""

MOST_KEPT = 8
"""How many images of former contents are kept; those unused for longest are removed first."""


def driver_image(environment: Mapping[str, str] = os.environ, source: Path = PACKAGE_ROOT) -> Path:
    """A docker archive with the image of a checkout as ``IMAGE``, built first if it is not in the cache.

    It is not compressed, so that nodes import it fast. Two callers at once build it once. A first build takes
    two to three minutes, a build after a change half a minute.

    Raises:
        MissingPrerequisite: a program or Go is missing; names the package.
        BuildFailed: a step failed; the message ends with its output.
    """
    cache = _cache(environment)
    target = cache / f"driver-{content_key(source)}.tar"
    with _alone(cache):
        if target.is_file():
            # Its time says when it was used last.
            target.touch()
        else:
            _build(cache, target, environment, source)
            _forget_oldest(cache)
    return target


def build_anew(
    target: Path, environment: Mapping[str, str] = os.environ, source: Path = PACKAGE_ROOT
) -> None:
    """Build the archive of ``driver_image`` into a file, even if it is in the cache; raises the same."""
    cache = _cache(environment)
    with _alone(cache):
        _build(cache, target, environment, source)


def _cache(environment: Mapping[str, str]) -> Path:
    cache = user_cache(environment) / "images"
    cache.mkdir(parents=True, exist_ok=True)
    return cache


@contextmanager
def _alone(cache: Path) -> Iterator[None]:
    """Hold the lock with which one process builds at a time."""
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(cache: Path, target: Path, environment: Mapping[str, str], source: Path) -> None:
    check_programs(environment)
    builder = Builder(cache, environment, source)
    base = _base_name()
    builder.prepare_bases(base)
    builder.build(base, target)


def content_key(source: Path) -> str:
    """A digest of the base's recipe and of all files that the Dockerfile may copy."""
    # The ignore file excludes everything; its lines with ! name what the build gets.
    listed = (source / DOCKERFILE).with_name("Dockerfile.dockerignore").read_text().splitlines()
    digest = hashlib.sha256(_base_name().encode())
    for top in sorted(line[1:] for line in listed if line.startswith("!")):
        for file in _files(source / top):
            digest.update(f"{file.relative_to(source)}\0{file.stat().st_size}\0".encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()[:KEY_DIGITS]


def _files(top: Path) -> list[Path]:
    found = [top] if top.is_file() else sorted(path for path in top.rglob("*") if path.is_file())
    return [path for path in found if "__pycache__" not in path.parts]


def _base_name() -> str:
    """The name of the base image, with a digest of its recipe."""
    recipe = json.dumps([SUITE, BASE_PACKAGES, TOOL_PACKAGES, NOT_IN_A_SLIM_BASE, FETCHED])
    return f"localhost/gpu-dra-base:{hashlib.sha256(recipe.encode()).hexdigest()[:KEY_DIGITS]}"


def check_programs(environment: Mapping[str, str]) -> None:
    """Raise MissingPrerequisite, with the packages' names, if a program for building images is missing."""
    path = environment.get("PATH")
    missing = [name for name in ("buildah", "debootstrap") if shutil.which(name, path=path) is None]
    if missing:
        raise MissingPrerequisite(
            f"an image needs {' and '.join(missing)}: apt-get install {' '.join(missing)}"
        )


class Builder:
    """Runs buildah with an image store below a cache folder; the caller has to hold the lock."""

    def __init__(self, cache: Path, environment: Mapping[str, str], source: Path) -> None:
        self._cache = cache
        self._environment = dict(environment)
        self._source = source
        store = ["--root", str(cache / "store"), "--runroot", str(cache / "store-run")]
        shared = ["buildah", *store, "--storage-driver"]
        # overlay does not work on every file system, for example not on that of many containers. vfs copies
        # each layer instead.
        layered = self._works([*shared, "overlay", "info"])
        self._buildah = [*shared, "overlay" if layered else "vfs"]

    def prepare_bases(self, base: str) -> None:
        """Make the base and the base with tools, unless they are stored."""
        # Containers that an interrupted build left.
        self._run([*self._buildah, "rm", "--all"])
        if not self._stored(base):
            # Bases of former recipes.
            self._run([*self._buildah, "rmi", "--all", "--force"])
            with tempfile.TemporaryDirectory(dir=self._cache) as work:
                self._make_base(base, Path(work))
        if not self._stored(_tools(base)):
            with tempfile.TemporaryDirectory(dir=self._cache) as work:
                self._make_tools(base, Path(work))

    def build(self, base: str, target: Path) -> None:
        """Build the image as ``make image`` does, on these bases, and write it as an archive."""
        go = go_command(self._environment)
        run_go([go, "mod", "download"], self._source / HOOK, {**self._environment, "GOWORK": "off"})
        names = ("GOROOT", "GOMODCACHE", "GOCACHE")
        root, modules, built = run_go([go, "env", *names], self._source, self._environment).split()
        # Go makes this folder in its first build, which may be the one inside the container.
        Path(built).mkdir(parents=True, exist_ok=True)
        # The container uses this machine's Go, with its modules and its build cache.
        mounted = {
            root: f"{GO}:ro",
            modules: "/go/pkg/mod:ro",
            built: "/go/built",
            CERTIFICATES: f"{CERTIFICATES}:ro",
        }
        volumes = [word for here, there in mounted.items() for word in ("--volume", f"{here}:{there}")]
        script = [sys.executable, "-m", "deploy.image.build", "--tool", "buildah", "--image", IMAGE]
        bases = ["--base", base, "--pip-base", _tools(base), "--go-base", _tools(base)]
        words = [f"--global={word}" for word in self._buildah[1:]]
        offline = ["--isolation", "chroot", "--pull-never", "--quiet"]
        self._run([*script, *bases, *words, "--", *offline, *volumes])
        # By rename, so that an interrupted build leaves no archive that looks complete.
        half = target.with_suffix(".part")
        half.unlink(missing_ok=True)
        self._run([*self._buildah, "push", "--quiet", IMAGE, f"docker-archive:{half}:{IMAGE}"])
        self._run([*self._buildah, "rmi", IMAGE])
        half.rename(target)

    def _stored(self, image: str) -> bool:
        return self._works([*self._buildah, "images", "--quiet", image])

    def _works(self, command: Sequence[str]) -> bool:
        done = subprocess.run(command, env=self._environment, capture_output=True, check=False)
        return done.returncode == 0

    def _make_base(self, base: str, work: Path) -> None:
        root = work / "root"
        self._run(["debootstrap", "--variant=minbase", f"--include={BASE_PACKAGES}", SUITE, str(root)])
        for folder in (*NOT_IN_A_SLIM_BASE, *FETCHED):
            for path in (root / folder).iterdir():
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink()
        for compiled in sorted(root.rglob("__pycache__")):
            shutil.rmtree(compiled)
        self._run(["tar", "--create", "--directory", str(root), "--file", str(work / "root.tar"), "."])
        self._from_dockerfile(base, work, "FROM scratch\nADD root.tar /\n", "root.tar")

    def _make_tools(self, base: str, work: Path) -> None:
        apt = f"apt-get update -qq && apt-get install -qq --no-install-recommends {' '.join(TOOL_PACKAGES)}"
        settings = f"PATH={GO}/bin:/usr/sbin:/usr/bin:/sbin:/bin GOMODCACHE=/go/pkg/mod GOCACHE=/go/built"
        steps = f"FROM {base}\nENV DEBIAN_FRONTEND=noninteractive {settings}\nRUN {apt}\n"
        self._from_dockerfile(_tools(base), work, steps)

    def _from_dockerfile(self, name: str, context: Path, steps: str, *copied: str) -> None:
        """Build an image in a folder, of which only the files ``copied`` become part of the build context."""
        (context / "Dockerfile").write_text(steps)
        (context / ".dockerignore").write_text("\n".join(["*", *(f"!{one}" for one in copied)]))
        offline = ["--isolation", "chroot", "--pull-never", "--quiet"]
        self._run([*self._buildah, "bud", *offline, "--tag", name, str(context)])

    def _run(self, command: Sequence[str]) -> None:
        environment = {**self._environment, "SOURCE_DATE_EPOCH": EPOCH}
        done = subprocess.run(
            command, cwd=self._source, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            wrote = (done.stdout + done.stderr)[-4000:]
            raise BuildFailed(f"{' '.join(command)} failed with exit code {done.returncode}:\n{wrote}")


def _tools(base: str) -> str:
    """The name of the base image with pip and a C compiler."""
    return base.replace("gpu-dra-base", "gpu-dra-tools")


def _forget_oldest(cache: Path) -> None:
    images = sorted(cache.glob("driver-*.tar"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in images[MOST_KEPT:]:
        path.unlink(missing_ok=True)
