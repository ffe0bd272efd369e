"""``make carry`` builds a folder that runs gpuctl with nothing but a Python, and without a network."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tools.carry import CARRIED, LEFT_OUT, build_folder

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_SECONDS = 120


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("carry") / "verify"
    build_folder(target)
    return target


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of the system, which finds no package that is installed."""
    script = tmp_path_factory.mktemp("python") / "python3"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    script.write_text(f'#!/bin/sh\nexec {Path(sys.base_prefix, "bin", version)} -S "$@"\n')
    script.chmod(0o755)
    return script


def run(program: Path, *words: str, python: Path | str) -> subprocess.CompletedProcess[str]:
    """Run a program of the folder with an environment that leads nowhere else."""
    return subprocess.run(
        [program, *words],
        env={"PYTHON": str(python), "PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}, cwd="/",
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=DEADLINE_SECONDS,
    )  # fmt: skip


def test_every_dependency_is_carried_or_has_a_reason_why_not() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {one.partition(">")[0] for one in project["dependencies"]}
    assert wanted <= {*CARRIED, *LEFT_OUT}
    assert not set(CARRIED) & set(LEFT_OUT)


def test_everything_is_verified_from_the_folder_alone(folder: Path, python: Path) -> None:
    done = run(folder / "verify", "--nvml", "fake:t4", "--may-change", python=python)
    assert done.returncode == 0, done.stdout
    assert "cuda-probe: 0000:3b:00.0: Tesla T4" in done.stdout
    assert "everything holds on this machine" in done.stdout


def test_the_makers_learn_about_the_machine_from_the_same_folder(
    folder: Path, python: Path, tmp_path: Path
) -> None:
    words = ("--nvml", "fake:gh200", "--record", str(tmp_path / "new"))
    done = run(folder / "hardware", *words, python=python)
    assert done.returncode == 0, done.stdout
    assert "nvml-contract: NVML keeps 21 of 24 promises" in done.stdout
    assert (tmp_path / "new/machine.yaml").is_file()
