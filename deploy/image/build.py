"""Builds the image with buildah or docker, whichever is there; ``make image`` runs it."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).parents[2]
DOCKERFILE = Path("deploy", "image", "Dockerfile")
IGNORED = DOCKERFILE.with_name("Dockerfile.dockerignore")
TOOLS = ("buildah", "docker")

# Python's name of a machine -> the image specification's (GOARCH).
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}

EARLIEST = 315532800
"""The first second of 1980, before which a zip archive, and so a wheel, can hold no time."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to build.

    ``bases`` are build arguments that replace those of the Dockerfile, ``epoch`` is the time of all files, in
    seconds since 1970, ``options`` are options of the tool, before its subcommand, and ``extra`` are options
    of the build.
    """

    image: str
    platform: str
    bases: Mapping[str, str]
    revision: str = "unknown"
    epoch: int = EARLIEST
    options: Sequence[str] = ()
    extra: Sequence[str] = ()


def command(tool: str, wanted: Wanted) -> list[str]:
    """The command line of a tool, to be run in the root of the repository."""
    arguments = {
        **wanted.bases,
        "VERSION": version(),
        "REVISION": wanted.revision,
        "SOURCE_DATE_EPOCH": str(wanted.epoch),
    }
    # With --timestamp, buildah makes the same layers each time. docker does so only with an output that
    # rewrites times, which not every builder of docker has; ``extra`` can name it.
    if tool == "buildah":
        line = [
            "buildah",
            *wanted.options,
            "bud",
            "--timestamp",
            str(wanted.epoch),
            "--ignorefile",
            str(IGNORED),
        ]
        arguments["BUILDPLATFORM"] = own_platform()  # older versions do not set it themselves
    else:
        line = ["docker", *wanted.options, "buildx", "build", "--load", "--provenance=false"]
    line += ["--file", str(DOCKERFILE), "--tag", wanted.image, "--platform", wanted.platform]
    for name, value in arguments.items():
        line += ["--build-arg", f"{name}={value}"]
    return [*line, *wanted.extra, "."]


def own_platform() -> str:
    """The platform of this machine."""
    machine = platform.machine()
    return f"linux/{ARCHITECTURES.get(machine, machine)}"


def version() -> str:
    """The version of this project."""
    return str(tomllib.loads((SOURCE / "pyproject.toml").read_text())["project"]["version"])


def git(*words: str) -> str | None:
    """The answer of git in this checkout; None outside of a repository, or without git."""
    if shutil.which("git") is None:
        return None
    done = subprocess.run(["git", *words], cwd=SOURCE, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def has_buildx() -> bool:
    """Whether docker has the plugin: without it, docker only complains about the option --load."""
    return not subprocess.run(["docker", "buildx", "version"], capture_output=True, check=False).returncode


def main(arguments: Sequence[str] | None = None) -> int:
    """Build; returns the exit code of the tool."""
    parser = argparse.ArgumentParser(description="Build the image of this project.")
    parser.add_argument("--image", default=f"localhost/gpu-dra:{version()}", help="its name (%(default)s)")
    parser.add_argument("--platform", default=own_platform(), help="linux/amd64 or linux/arm64 (%(default)s)")
    parser.add_argument("--tool", choices=TOOLS, default=next(filter(shutil.which, TOOLS), None))
    for name in ("base", "pip-base", "go-base"):
        parser.add_argument(
            f"--{name}", help=f"in place of {name.upper().replace('-', '_')} of the Dockerfile"
        )
    parser.add_argument("--global", dest="options", action="append", default=[], help="an option of the tool")
    parser.add_argument("extra", nargs="*", help="behind --: more arguments for the tool")
    given = parser.parse_args(arguments)
    if given.tool is None:
        print(f"an image needs {' or '.join(TOOLS)}: install one of them", file=sys.stderr)
        return 1
    if given.tool == "docker" and not has_buildx():
        print("docker has no buildx: install it (docker-buildx-plugin), or buildah", file=sys.stderr)
        return 1
    named = {"BASE": given.base, "PIP_BASE": given.pip_base, "GO_BASE": given.go_base}
    wanted = Wanted(
        given.image,
        given.platform,
        {name: value for name, value in named.items() if value},
        git("describe", "--always", "--abbrev=40", "--dirty", "--exclude=*") or "unknown",
        int(os.environ.get("SOURCE_DATE_EPOCH") or git("log", "-1", "--format=%ct") or EARLIEST),
        given.options,
        given.extra,
    )
    return subprocess.run(command(given.tool, wanted), cwd=SOURCE, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
