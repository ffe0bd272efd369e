"""``python -m tools.release VERSION`` builds a release into dist/VERSION, without a registry.

That is the wheel and the source archive, the chart as helm packages it, an image archive for each platform,
the release notes, and a file with the SHA-256 sum of each of the others.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import yaml
from hatchling import build as hatchling

from deploy.image.build import SOURCE, git, version
from deploy.image.build import main as build_image
from envtest.real.build import go_programs

_CHART = SOURCE / "deploy" / "chart"
_CHANGELOG = SOURCE / "CHANGELOG.md"
_HEADING = re.compile(r"^## \[?([0-9][^\s\]]*)\]?[^\n]*\n", re.MULTILINE)


class ReleaseRefused(Exception):
    """The release cannot be built from this checkout; the message says what to change."""


def release_notes(changelog: str, wanted: str) -> str:
    """The section of a version in the changelog, without its heading; raises ReleaseRefused."""
    found = list(_HEADING.finditer(changelog))
    for number, heading in enumerate(found):
        if heading[1] == wanted:
            end = found[number + 1].start() if number + 1 < len(found) else len(changelog)
            return changelog[heading.end() : end].strip() + "\n"
    raise ReleaseRefused(f"CHANGELOG.md has no section '## {wanted}': write one")


def check_versions(wanted: str, project: str, chart: dict[str, str]) -> None:
    """Raises ReleaseRefused unless the project and the chart have the version that is to be released."""
    stated = {
        "version in pyproject.toml": project,
        "version in deploy/chart/Chart.yaml": str(chart["version"]),
        "appVersion in deploy/chart/Chart.yaml": str(chart["appVersion"]),
    }
    other = [f"{name} is {value}" for name, value in stated.items() if value != wanted]
    if other:
        raise ReleaseRefused(f"{'; '.join(other)}: set it to {wanted}, and run make manifests")


def build_packages(folder: Path) -> None:
    """Build the wheel and the source archive."""
    with contextlib.chdir(SOURCE):
        hatchling.build_wheel(str(folder))
        hatchling.build_sdist(str(folder))


def build_chart(folder: Path) -> None:
    """Package the chart, with the helm on PATH or else with one built for the tests."""
    helm = shutil.which("helm") or str(go_programs("helm4") / "helm")
    # helm says where it put the package; all other output of this program goes to stderr too.
    subprocess.run(
        [helm, "package", str(_CHART), "--destination", str(folder)], stdout=sys.stderr, check=True
    )


def build_archive(image: str, platform: str, folder: Path, options: Sequence[str]) -> None:
    """Build the image for one platform with buildah, and write it as an OCI archive."""
    if shutil.which("buildah") is None:
        raise ReleaseRefused("image archives need buildah: install it, or build none with PLATFORMS=")
    name = f"{image}-{platform.replace('/', '-')}"
    if build_image(["--tool", "buildah", "--image", name, "--platform", platform, *options]) != 0:
        raise ReleaseRefused(f"the image for {platform} could not be built: see the output above")
    storage = [word.removeprefix("--global=") for word in options if word.startswith("--global=")]
    target = folder / f"gpu-dra-{version()}-{platform.replace('/', '-')}.oci.tar"
    subprocess.run(["buildah", *storage, "push", name, f"oci-archive:{target}:{image}"], check=True)


def write_sums(folder: Path) -> None:
    """Write SHA256SUMS, which ``sha256sum --check`` reads."""
    files = sorted(path for path in folder.iterdir() if path.name != "SHA256SUMS")
    lines = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files]
    (folder / "SHA256SUMS").write_text("".join(lines))


def main(arguments: Sequence[str] | None = None) -> int:
    """Build everything; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.release", description=__doc__)
    parser.add_argument("version", help="the version to release; the checkout has to have it already")
    parser.add_argument("--platform", action="append", default=[], help="build an image archive for it, too")
    parser.epilog = "All other options are those of python -m deploy.image.build, for the images."
    given, image_options = parser.parse_known_args(arguments)
    folder = SOURCE / "dist" / given.version
    try:
        check_versions(given.version, version(), yaml.safe_load((_CHART / "Chart.yaml").read_text()))
        notes = release_notes(_CHANGELOG.read_text(), given.version)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / "release-notes.md").write_text(notes)
        # Equal contents get equal archives: files have the time of the commit.
        os.environ.setdefault("SOURCE_DATE_EPOCH", git("log", "-1", "--format=%ct") or "315532800")
        build_packages(folder)
        build_chart(folder)
        for platform in given.platform:
            image = f"localhost/gpu-dra:{given.version}"
            build_archive(image, platform, folder, image_options)
        write_sums(folder)
    except ReleaseRefused as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stderr.write(f"the release is in {folder.relative_to(SOURCE)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
