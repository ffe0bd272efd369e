"""kubectl of older versions, each built once into the user's cache from the module files of ``older/``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from envtest.client.layout import user_cache
from envtest.real.assets import find_assets
from envtest.real.build import DEFAULT_KUBERNETES, built_once, digest, go_command, run_go, version_stamp

SOURCE = Path(__file__).parent / "older"
VERSIONS = {"1.32": "v1.32.3", "1.33": "v1.33.13", "1.34": "v1.34.13", "1.35": "v1.35.10", "1.36": "v1.36.6"}
_DEFAULT_MODULE = "1.36"
"""The version of go.mod; those of the others have names of their own."""


def kubectl(version: str, environment: Mapping[str, str] = os.environ) -> Path:
    """The program of a minor version, built first where it is not there: about two minutes of processor time.

    Raises:
        MissingPrerequisite: it is not built yet, and there is no Go.
        BuildFailed: Go failed.
    """
    if version == DEFAULT_KUBERNETES:
        return find_assets(version, environment).binary("kubectl")
    target = user_cache(environment) / "go-programs" / f"kubectl-{version}-{digest(SOURCE)}"
    return built_once(target, lambda folder: _build(folder, version, environment)) / "kubectl"


def _build(folder: Path, version: str, environment: Mapping[str, str]) -> None:
    modules = [] if version == _DEFAULT_MODULE else [f"-modfile={version}.mod"]
    build = [go_command(environment), "build", *modules, "-trimpath", "-buildvcs=false"]
    flags = ["-ldflags", version_stamp(VERSIONS[version]), "-o", str(folder / "kubectl")]
    run_go([*build, *flags, "."], SOURCE, {**environment, "CGO_ENABLED": "0", "GOWORK": "off"})
