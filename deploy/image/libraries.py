"""Installs what the wheel of this project needs at run time, for the platform of the image, into a folder.

Run as ``python3 -m deploy.image.libraries ARCHITECTURE FOLDER`` in the stage of the image that has pip. pip
checks each wheel against ``requirements.lock``.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
RUNTIME = FOLDER / "requirements.lock"
BUILD = FOLDER / "build.lock"

SITE = "site"
BUILDER = "builder"
REPORT = "report.json"

MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
"""The image specification's names of architectures (GOARCH) and those in the names of wheels."""

# The name of a wheel says the oldest glibc that it runs on (PEP 600). pip takes only the tags that are
# listed, so all older ones are named, and none newer than the last.
GLIBC = ("2_5", "2_12", "2_17", "2_24", "2_26", "2_27", "2_28")
OLDER_NAMES = ("manylinux1", "manylinux2010", "manylinux2014")


def platforms(architecture: str) -> list[str]:
    """The platform tags of wheels that run on an architecture with glibc 2.28, oldest first.

    Raises:
        SystemExit: no image is built for the architecture.
    """
    if architecture not in MACHINES:
        raise SystemExit(f"no image is built for {architecture}: choose {' or '.join(MACHINES)}")
    tags = [*OLDER_NAMES, *(f"manylinux_{version}" for version in GLIBC)]
    return [f"{tag}_{MACHINES[architecture]}" for tag in tags]


def install(lock: Path, folder: Path, *options: str) -> list[str]:
    """The pip command that installs everything in a lock file, with known digests, and nothing else."""
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--disable-pip-version-check",
        "--no-input",
        "--no-cache-dir",
    ]
    pinned = ["--require-hashes", "--no-deps", "--only-binary", ":all:", "--requirement", str(lock)]
    return [
        *pip,
        "--quiet",
        "--root-user-action",
        "ignore",
        "--no-compile",
        *pinned,
        "--target",
        str(folder),
        *options,
    ]


def main(architecture: str, folder: str) -> None:
    """Install the libraries for the image, and what builds the wheel for this machine."""
    into = Path(folder)
    # With --platform, pip chooses wheels by name for another machine than this one, and runs nothing of them.
    target = [word for tag in platforms(architecture) for word in ("--platform", tag)]
    target += ["--implementation", "cp", "--python-version", f"{sys.version_info[0]}.{sys.version_info[1]}"]
    into.mkdir(parents=True)
    subprocess.run(install(RUNTIME, into / SITE, *target, "--report", str(into / REPORT)), check=True)
    subprocess.run(install(BUILD, into / BUILDER), check=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
