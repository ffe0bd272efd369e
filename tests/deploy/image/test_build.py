"""The command line that builds the image names all that decides what comes out of it."""

import os
from importlib.metadata import version
from pathlib import Path

import pytest

from deploy.image.build import TOOLS, Wanted, command, main, own_platform

WANTED = Wanted(
    "registry.example/gpu-dra:1",
    "linux/arm64",
    {"BASE": "registry.example/python@sha256:0"},
    revision="abc",
    epoch=1700000000,
    extra=("--no-cache",),
)


def build_arguments(line: list[str]) -> dict[str, str]:
    named = [line[at + 1] for at, word in enumerate(line) if word == "--build-arg"]
    return dict(one.split("=", 1) for one in named)


@pytest.mark.parametrize("tool", TOOLS)
def test_either_tool_is_told_the_same(tool: str) -> None:
    line = command(tool, WANTED)

    assert line[0] == tool
    assert line[-2:] == ["--no-cache", "."]
    assert line[line.index("--tag") + 1] == WANTED.image
    assert line[line.index("--platform") + 1] == "linux/arm64"
    told = build_arguments(line)
    assert told["BASE"] == "registry.example/python@sha256:0"
    assert (told["VERSION"], told["REVISION"]) == (version("gpu-dra"), "abc")
    assert told["SOURCE_DATE_EPOCH"] == "1700000000"


def test_buildah_gives_every_file_one_time_and_is_told_its_own_platform() -> None:
    line = command("buildah", WANTED)
    assert line[line.index("--timestamp") + 1] == "1700000000"
    assert build_arguments(line)["BUILDPLATFORM"] == own_platform()


def test_docker_without_buildx_is_told_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    docker = tmp_path / "docker"
    docker.write_text("#!/bin/sh\necho unknown flag: --load >&2\nexit 125\n")
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    assert main(["--tool", "docker"]) == 1
    assert "docker has no buildx" in capsys.readouterr().err
