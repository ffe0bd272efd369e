"""What the image is built from is pinned, and pinned alike wherever it is named."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
IMAGE = ROOT / "deploy" / "image"


def entries(lock: Path) -> set[str]:
    """The requirements of a lock file, each with its digests."""
    return set(re.split(r"\n(?=\S)", lock.read_text().strip()))


def module_versions(go_mod: Path) -> dict[str, str]:
    """The version of each module that a go.mod requires."""
    return dict(re.findall(r"^\s+(\S+) (v\S+)", go_mod.read_text(), re.MULTILINE))


def test_the_build_is_given_what_the_wheel_holds_and_no_more() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    ignored = (IMAGE / "Dockerfile.dockerignore").read_text().splitlines()
    given = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    assert given == {
        *packages,
        "pyproject.toml",
        project["project"]["readme"],
        *project["project"]["license-files"],
    }
    assert "*" in ignored


@pytest.mark.parametrize("lock", ["requirements.lock", "build.lock"])
def test_the_libraries_are_those_that_the_tests_run_with(lock: str) -> None:
    pinned = entries(IMAGE / lock)
    assert pinned
    assert [one.split()[0] for one in pinned - entries(ROOT / "requirements.lock")] == []
    assert [one.split()[0] for one in pinned if "--hash=sha256:" not in one] == []


def test_the_hook_is_that_of_the_toolkit_that_judges_it() -> None:
    ours = module_versions(IMAGE / "hook" / "go.mod")
    theirs = module_versions(ROOT / "envtest/real/go_programs/container-toolkit/go.mod")
    assert ours["github.com/NVIDIA/nvidia-container-toolkit"]
    assert {name: one for name, one in ours.items() if theirs[name] != one} == {}


def test_every_module_of_the_hook_has_a_sum() -> None:
    sums = (IMAGE / "hook" / "go.sum").read_text()
    versions = module_versions(IMAGE / "hook" / "go.mod")
    assert [name for name, version in versions.items() if f"{name} {version} h1:" not in sums] == []


def test_the_bases_are_named_by_their_full_version() -> None:
    bases = re.findall(r"^ARG \w+=(\S+[:/]\S+)", (IMAGE / "Dockerfile").read_text(), re.MULTILINE)
    assert len(bases) == 2
    assert [base for base in bases if not re.search(r":\d+\.\d+\.\d+-[a-z-]*bookworm$", base)] == []


def test_no_stage_runs_anything_of_the_target() -> None:
    """An image for another platform needs no emulation."""
    stages = re.split(r"^FROM ", (IMAGE / "Dockerfile").read_text(), flags=re.MULTILINE)[1:]
    *before, last = stages
    assert [one for one in before if not one.startswith("--platform=$BUILDPLATFORM ")] == []
    assert "\nRUN " not in last
